// Polling shared memory and sockets, by threads that have nothing better to do.
//
//     a thread that waits for an answer      |
//     a thread that waits for a request      |-> enter   poll poll poll   exit: bells are needed
//     the I/O thread, while it is awake      |
//
// Rings do not wake a thread when they are written to, as sockets do. While at least one thread
// polls, the other sides need no bell, and a message is read by a thread that runs already, mostly
// the one that waits for it. The last one to leave says in each ring that it has to be woken. A
// socket needs no such word: it wakes the I/O thread in any case, which mostly comes too late then.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/net/io_threads.h"

namespace reverie {

class WireLink;

// Thread-safe, except what is marked as the I/O thread's.
class LinkPolls final : public LoopWatch {
 public:
  // At most this many links are polled, those with the latest traffic; the others use bells.
  static constexpr std::size_t kWatchedMax = 16;

  // How many threads poll now.
  const std::atomic<int>& count() const { return count_; }

  void watch(const std::shared_ptr<WireLink>& link);
  void unwatch(const WireLink* link);
  void clear();

  void enter();
  void exit();
  // Reads what is there, in one ring, or else in one socket. False if nothing is.
  bool poll(bool reads_sockets = true);
  // Polls until `is_done`, or for as long as looking pays (base/spin.h); gives `is_done`.
  bool look(const Clock& clock, const std::function<bool()>& is_done);

  // --- The I/O thread's: it polls while it is awake and no other thread does.
  bool is_covered() const override {
    return count_.load(std::memory_order_relaxed) > 1 &&
           watched_count_.load(std::memory_order_relaxed) > 0;
  }
  bool look() override { return count_.load(std::memory_order_relaxed) <= 1 && poll(false); }
  void before_sleep() override { exit(); }
  void after_sleep() override { enter(); }

 private:
  std::atomic<int> count_{0};
  std::atomic<std::size_t> watched_count_{0};
  Mutex mutex_;
  std::vector<std::shared_ptr<WireLink>> watched_ REVERIE_GUARDED_BY(mutex_);  // the oldest first
  std::size_t socket_turn_ REVERIE_GUARDED_BY(mutex_) = 0;
};

}  // namespace reverie
