// A counter for statistics: one thread adds to it, any thread reads it.
#pragma once

#include <atomic>
#include <cstdint>

namespace reverie {

class StatCounter {
 public:
  // One thread only: there is no read-modify-write, so it costs as much as a plain number.
  void add(std::uint64_t count) {
    count_.store(count_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
  // On any thread.
  std::uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> count_{0};
};

}  // namespace reverie
