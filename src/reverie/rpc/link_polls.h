// Polling of shared memory and sockets by threads that would otherwise sleep.
//
//     a thread that waits for an answer      |
//     a thread that waits for a request      |-> enter   poll poll poll   exit: bells are needed
//     the I/O thread, while it is awake      |
//
// A write to a ring does not wake a thread, as a write to a socket does. While at least one thread
// polls, the other sides need not ring a bell, and a message is read by a running thread, usually
// the one that waits for it. The last thread to leave asks for a bell in each ring. A socket needs
// no such request: it always wakes the I/O thread, which then usually finds that the message has
// been read.
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

// Thread-safe, except for what is marked as I/O thread only.
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
  // Reads what has arrived, from one ring, or else from one socket. False if nothing has.
  bool poll(bool reads_sockets = true);
  // Polls until `is_done`, or for as long as polling pays (base/spin.h); returns `is_done`.
  bool look(const Clock& clock, const std::function<bool()>& is_done);

  // --- I/O thread only: it polls while it is awake and no other thread does.
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
