// Handles do not survive a fork: the threads and locks behind them stay with the parent.
//
// A handle keeps a ForkGuard, made where the handle was made, and asks it at each entry,
// before it takes any lock: in a forked child the answer is a typed error instead of a hang.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "reverie/base/status.h"

namespace reverie {

// 0 in the first process, one more in each forked child of a child.
std::uint32_t fork_generation();

class ForkGuard {
 public:
  ForkGuard() : generation_(fork_generation()) {}
  // A load and a compare. FAILED_PRECONDITION, naming `what`, in a forked child.
  Status check(std::string_view what) const {
    if (__builtin_expect(generation_ == fork_generation(), 1)) return {};
    return refuse(what);
  }

 private:
  static Status refuse(std::string_view what);
  std::uint32_t generation_;
};

// In a forked child, leaks what a handle held: it belongs to the parent; no join, no destructor.
template <typename T>
void leave_to_parent(T held) noexcept {
  union Left {
    explicit Left(T&& from) : value(std::move(from)) {}
    ~Left() {}
    T value;
  };
  const Left left(std::move(held));
}

}  // namespace reverie
