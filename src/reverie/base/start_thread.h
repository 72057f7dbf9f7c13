// Starts threads where the system may have no more of them: containers and users have a bound.
//
//     REVERIE_ASSIGN_OR_RETURN(thread_, start_thread("the journal", [this] { run(); }));
#pragma once

#include <atomic>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "reverie/base/status.h"

namespace reverie {

// RESOURCE_EXHAUSTED: `whose` thread cannot be started; with the reason, and what to do.
[[gnu::cold]] Status no_thread(std::string_view whose,
                               std::string_view why = "the system has no more of them");

// A thread that runs `body`, to be joined or detached; or no_thread(), and `body` never runs.
template <typename Body>
Result<std::thread> start_thread(std::string_view whose, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return no_thread(whose, error.what());
  }
}

// Knows which thread runs a body, for code that must not wait for itself. Thread-safe.
class OwnThread {
 public:
  template <typename Body>
  void run(Body body) {
    id_ = std::this_thread::get_id();
    body();
    id_ = std::thread::id();
  }
  // Whether the calling thread is the one in run().
  bool is_current() const { return id_ == std::this_thread::get_id(); }

 private:
  std::atomic<std::thread::id> id_{std::thread::id()};
};

}  // namespace reverie
