// UCX behind an interface of ours: a worker with one endpoint, which sends and receives messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/net/ucx_connection.h"

namespace reverie {

// 128 random bits that mark the messages to one worker.
using UcxKey = std::array<std::uint64_t, 2>;

// Not thread-safe. The events come from within progress() and send(); they must not call the
// worker.
class UcxWorker {
 public:
  static constexpr std::size_t kMessageMax = std::size_t{64} << 10;
  // Messages that UCX has not sent yet; each has a copy of its bytes.
  static constexpr std::size_t kPendingMax = 16;

  struct Events {
    // A message with this worker's key.
    std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)> received;
    // UCX's connection to the other worker is lost.
    std::function<void(const Status&)> lost;
  };

  // UNAVAILABLE if UCX can use no transport, and in a process that was forked while it had workers.
  // With `is_local` it listens at loopback only.
  static Result<std::unique_ptr<UcxWorker>> make(const UcxOptions& options, bool is_local,
                                                 const UcxKey& key, Events events);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  // Readable when progress() should be called, once arm() has returned true. Stays the worker's.
  int event_descriptor() const;
  std::span<const std::byte> address() const;
  // The address of the other worker, as its address() gave it: UCX does not check others.
  Status connect(std::span<const std::byte> address, const UcxKey& key);

  // False if too many messages are pending.
  bool can_send() const;
  std::size_t pending() const;
  // Memory for the next message. REQUIRES: can_send().
  std::span<std::byte, kMessageMax> buffer();
  // Sends the first bytes of buffer(). REQUIRES: connected, can_send().
  Status send(std::uint64_t offset, std::size_t size_bytes);

  // Carries out what can be done now, a bounded part of it. False if nothing was done.
  bool progress();
  // Asks for event_descriptor() to become readable. False: progress() has something to do first.
  bool arm();
  // Waits until what was sent has left this process, at most for that long.
  void flush(Duration at_most);

 private:
  struct Impl;
  explicit UcxWorker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reverie
