// Sockets that are read by a thread that waits for a message, rather than by the loop's thread.
//
//     socket ---.
//     socket ---+--> set --+--> the thread in the seat, which sleeps in wait()
//     nudge  ---'          '--> relay --> loop       open while no thread has the seat
//
// A message that the loop's thread reads for a thread that waits for it wakes two threads, one
// after the other. Here a socket wakes the waiting thread itself, and the loop's thread sleeps on.
// The seat is the right to read: one thread has it at a time. Without a thread in the seat, the
// loop's thread is told, so that sockets are always read.
//
// The relay is a second epoll descriptor around the set's, since Asio cannot stop watching a
// descriptor for a moment.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/net/io_threads.h"

namespace reverie {

// Thread-safe, except for what is marked.
class SocketSet final : public std::enable_shared_from_this<SocketSet> {
 public:
  struct Ready {
    std::uint64_t id;
    bool can_read;  // also after an error or a hang-up, which the read reports
    bool can_write;
  };
  // On the loop's thread, which has the seat meanwhile.
  using OnReady = std::function<void(std::span<const Ready>)>;
  // At most this many sockets are reported at once.
  static constexpr std::size_t kReadyMax = 16;

  // RESOURCE_EXHAUSTED if no descriptors are left. REQUIRES: on the loop's thread.
  static Result<std::shared_ptr<SocketSet>> make(IoLoop& loop, OnReady on_ready);
  ~SocketSet();
  SocketSet(const SocketSet&) = delete;
  SocketSet& operator=(const SocketSet&) = delete;
  // `on_ready` is not called again. REQUIRES: on the loop's thread; call it before the loop stops.
  void stop();

  // Reports the socket until it is removed, which must be before it is closed. `id` is > 0.
  Status add(std::uint64_t id, int socket);
  void remove(int socket);
  // Whether the socket is reported when it can be written, too.
  void want_write(std::uint64_t id, int socket, bool is_wanted);

  // False if another thread has the seat. One who `yields` it gives it to the next one who does
  // not: it is woken, and should leave when shall_yield().
  bool take_seat(bool yields);
  void leave_seat();
  bool is_taken() const { return is_taken_.load(std::memory_order_relaxed); }
  // Whether this thread has it.
  bool is_taken_here() const;

  // --- The thread in the seat only.
  bool shall_yield() const { return shall_yield_.load(std::memory_order_relaxed); }
  // What can be read or written now.
  std::span<const Ready> look(std::span<Ready, kReadyMax> into) { return wait_for(into, 0); }
  // The same, but sleeps until something can be, or nudge() is called, or until then. Returns at
  // once if `is_done`, which is asked after nudge() takes effect.
  std::span<const Ready> wait(std::span<Ready, kReadyMax> into,
                              const std::function<bool()>& is_done, TimePoint until);

  // Wakes the thread that sleeps in wait(), if there is one.
  void nudge();

  // A thread's seat, for a scope; not thread-safe.
  class Seat;

 private:
  struct Relay;  // Asio's part
  enum class Holder { kNone, kLoop, kThread };

  SocketSet() = default;
  std::span<const Ready> wait_for(std::span<Ready, kReadyMax> into, int timeout_ms);
  void open_relay(bool is_open) REVERIE_REQUIRES(mutex_);
  void nudge_locked() REVERIE_REQUIRES(mutex_);
  void watch_relay();
  void on_relay();

  int set_ = -1;
  int relay_ = -1;
  int bell_ = -1;                     // an eventfd, in the set
  std::unique_ptr<Relay> loop_part_;  // loop thread only
  OnReady on_ready_;                  // loop thread only

  Mutex mutex_;
  Holder holder_ REVERIE_GUARDED_BY(mutex_) = Holder::kNone;
  bool yields_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_sleeping_ REVERIE_GUARDED_BY(mutex_) = false;
  std::atomic<bool> is_taken_{false};
  std::atomic<bool> shall_yield_{false};
};

class SocketSet::Seat {
 public:
  explicit Seat(bool yields) : yields_(yields) {}
  ~Seat();
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  // False if another thread has it, or there is no set.
  bool take(const std::shared_ptr<SocketSet>& set);
  bool is_taken() const { return set_ != nullptr; }
  bool shall_yield() const { return set_->shall_yield(); }
  // As those of the set.
  std::span<const Ready> look() { return set_->look(memory_); }
  std::span<const Ready> wait(const std::function<bool()>& is_done, TimePoint until) {
    return set_->wait(memory_, is_done, until);
  }

 private:
  const bool yields_;
  std::shared_ptr<SocketSet> set_;
  const SocketSet* outer_ = nullptr;
  std::array<Ready, kReadyMax> memory_;
};

}  // namespace reverie
