// One connection of a peer: frames in, frames out.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "reverie/net/connection.h"
#include "reverie/rpc/frame.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {

// Reading is the loop's thread's. What goes out is guarded by the lock of the peer that owns it, on
// any thread.
class WireLink final : public ConnectionEvents, public std::enable_shared_from_this<WireLink> {
 public:
  // All on the loop's thread.
  struct Events {
    std::function<void(LinkId, std::vector<Frame>)> received;  // or bytes of a frame: none yet
    std::function<void(LinkId, const Status&)> lost;
    std::function<void(LinkId)> writable;
  };

  WireLink(LinkId id, std::unique_ptr<Connection> connection, Allocator* bulk_memory,
           const Events& events);
  // On the loop's thread.
  ~WireLink() override = default;

  Connection& connection() { return *connection_; }
  void start() { connection_->want_read(); }
  void trust() { is_trusted_.store(true, std::memory_order_release); }

  // --- Under the owner's lock.
  void queue(const FrameHeader& header, std::shared_ptr<const Message> message);
  bool has_output() const { return !out_.empty(); }
  std::size_t output_count() const { return out_.size(); }
  // Writes what can be written now. False: the rest waits until the connection is writable.
  bool flush();
  // No event comes any more, and nothing is written.
  void end() { is_over_.store(true, std::memory_order_release); }
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }
  bool is_flush_posted = false;

  void on_readable() override;
  void on_writable() override;

 private:
  struct Out {
    std::array<std::byte, kFrameHeaderBytes> header;
    std::shared_ptr<const Message> message;
    std::size_t size_bytes;
  };
  void lose(const Status& why);

  const LinkId id_;
  const std::unique_ptr<Connection> connection_;
  const Events& events_;
  FrameReader reader_;
  std::atomic<bool> is_trusted_{false};
  bool has_trusted_limits_ = false;
  std::atomic<bool> is_over_{false};
  std::deque<Out> out_;
  std::size_t written_ = 0;  // of the first
};

}  // namespace reverie
