// A bound on the bytes that a server holds for all its clients: every connection and every writer's
// stream takes from it, besides its own bounds.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/status.h"

namespace reverie {

// Thread-safe.
class ByteBudget {
 public:
  explicit ByteBudget(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // RESOURCE_EXHAUSTED, and nothing taken, if that exceeds the bound. Never while nothing is held:
  // a single client has its own bounds, and could not proceed otherwise.
  Status take(std::size_t bytes) {
    std::size_t held = held_bytes_.load(std::memory_order_relaxed);
    do {
      if (held > 0 && bytes > bytes_max_ - std::min(held, bytes_max_)) return refusal(bytes);
    } while (!held_bytes_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
    return {};
  }
  // Takes bytes that are held already, beyond the bound if need be.
  void add(std::size_t bytes) { held_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  // Requires that they were taken. Notifies those who wait for room.
  void give_back(std::size_t bytes) {
    if (bytes == 0) return;
    held_bytes_.fetch_sub(bytes);
    if (is_awaited_.load() && !is_full()) tell_room();
  }

  bool is_full() const { return held_bytes_.load() >= bytes_max_; }
  std::size_t held_bytes() const { return held_bytes_.load(std::memory_order_relaxed); }
  Status refusal(std::size_t bytes) const {
    return resource_exhausted(
        "the server holds {} bytes that its clients have in flight, and {} more would pass the "
        "{} allowed; try again later, or raise bytes_in_flight",
        held_bytes(), bytes, bytes_max_);
  }

  // Calls `on_room` once when there is room, on any thread; immediately if there is room now.
  void await_room(std::function<void()> on_room) REVERIE_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      waiting_.push_back(std::move(on_room));
      is_awaited_.store(true);
    }
    if (!is_full()) tell_room();
  }

 private:
  void tell_room() REVERIE_EXCLUDES(mutex_) {
    std::vector<std::function<void()>> waiting;
    {
      MutexLock lock(mutex_);
      waiting.swap(waiting_);
      is_awaited_.store(false);
    }
    for (const auto& on_room : waiting) on_room();
  }

  const std::size_t bytes_max_;
  std::atomic<std::size_t> held_bytes_{0};
  std::atomic<bool> is_awaited_{false};
  Mutex mutex_;
  std::vector<std::function<void()>> waiting_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
