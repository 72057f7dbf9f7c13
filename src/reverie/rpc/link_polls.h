// How threads wait for messages: they poll for a moment, then sleep until a socket wakes them.
//
//     a thread that waits for an answer      |
//     a thread that waits for a request      |-> enter   poll poll poll   exit: bells are needed
//     the I/O thread, while it is awake      |
//
// A write to a ring does not wake a thread, as a write to a socket does. While at least one thread
// polls, the other sides need not ring a bell, and a message is read by a running thread, usually
// the one that waits for it. The last thread to leave asks for a bell in each ring, which comes
// through the ring's socket. Of the threads that wait, one has the seat of the SocketSet: it reads
// the adopted sockets, whether it polls or sleeps. The others sleep until what they wait for is
// done.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/net/io_threads.h"
#include "reverie/net/socket_set.h"

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

  // From here on its socket is read by the thread in the seat, or by the I/O thread, until it ends.
  // On the I/O thread; under the lock of the link's owner, as remove() and want_write().
  Status adopt(const std::shared_ptr<WireLink>& link, IoLoop& loop);
  void remove(WireLink& link);
  // Has on_writable() called once, for an adopted link.
  void want_write(WireLink& link);
  // Nothing is polled or read from here on. REQUIRES: on the I/O thread.
  void stop();

  void enter();
  void exit();
  // Reads what has arrived, from one ring. False if nothing has.
  bool poll();
  // Polls until `is_done`, or for as long as polling pays (base/spin.h); then sleeps in the seat
  // until `is_done` or `until`, and returns `is_done`. Returns earlier if there is no seat, after
  // stop(), and if another thread has the seat: then that one will do what this one waits for. A
  // thread that `yields` leaves the seat to one that does not. Who makes is_done() true on another
  // thread calls wake().
  bool wait(const Clock& clock, const std::function<bool()>& is_done, TimePoint until, bool yields);
  // Has the thread in the seat ask is_done() again. Thread-safe, and may be called under locks.
  void wake();

  // --- I/O thread only: it polls while it is awake and no other thread does.
  bool is_covered() const override {
    const std::shared_ptr<SocketSet> set = this->set();
    return (set && set->is_taken()) || (count_.load(std::memory_order_relaxed) > 1 &&
                                        watched_count_.load(std::memory_order_relaxed) > 0);
  }
  bool look() override { return count_.load(std::memory_order_relaxed) <= 1 && poll(); }
  void before_sleep() override { exit(); }
  void after_sleep() override { enter(); }

 private:
  // Whether there is something to read, which no thread reads, or room that was waited for.
  bool has_work();
  static void arm_unwatched(WireLink& link);
  std::shared_ptr<SocketSet> set() const;
  bool handle(std::span<const SocketSet::Ready> ready);

  std::atomic<int> count_{0};
  std::atomic<std::size_t> watched_count_{0};
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<WireLink>> watched_ REVERIE_GUARDED_BY(mutex_);  // the oldest first
  std::atomic<int> socket_count_{0};  // adopted links whose sockets carry frames, not only bells
  std::shared_ptr<SocketSet> set_ REVERIE_GUARDED_BY(mutex_);  // made with the first adopted link
  std::uint64_t next_id_ REVERIE_GUARDED_BY(mutex_) = 1;
  std::unordered_map<std::uint64_t, std::shared_ptr<WireLink>> adopted_ REVERIE_GUARDED_BY(mutex_);
  std::atomic<bool> is_stopped_{false};
};

}  // namespace reverie
