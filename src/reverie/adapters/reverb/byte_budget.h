// What all clients of a server together can make it hold: one count that every connection and every
// writer's stream takes from, beside the bounds of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "reverie/base/status.h"

namespace reverie {

// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // RESOURCE_EXHAUSTED, and nothing taken, when that would be too much. Never while nothing is
  // held: one that is alone has its own bounds, and could not go on otherwise.
  Status take(std::size_t bytes) {
    std::size_t held = held_bytes_.load(std::memory_order_relaxed);
    do {
      if (held > 0 && bytes > bytes_max_ - std::min(held, bytes_max_)) {
        return resource_exhausted(
            "the server holds {} bytes that its clients have in flight, and {} more would pass the "
            "{} allowed; try again later, or raise bytes_in_flight",
            held, bytes, bytes_max_);
      }
    } while (!held_bytes_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return {};
  }
  // Requires that they were taken.
  void give_back(std::size_t bytes) { held_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  std::size_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }

 private:
  const std::size_t bytes_max_;
  std::atomic<std::size_t> held_bytes_{0};
};

}  // namespace reverie
