// StoreLink: one connection between a store's client and its server: frames out and in, over a
// socket or through shared memory (rpc/wire_link.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/adapters/peer/link_loops.h"
#include "reverie/base/mutex.h"
#include "reverie/net/connection.h"
#include "reverie/rpc/frame.h"
#include "reverie/rpc/wire_link.h"

namespace reverie {

// The receiver of a link's events: called on its loop thread or a polling thread, one event at a
// time, under no lock.
class StoreLinkEvents {
 public:
  virtual ~StoreLinkEvents() = default;
  virtual void on_frames(std::vector<Frame> frames) = 0;
  // The last event: the other side is gone.
  virtual void on_lost(const Status& why) = 0;
  // The unsent bytes have fallen below kRoomBytes.
  virtual void on_room() = 0;
};

// Thread-safe, except for what is marked as loop thread only.
class StoreLink final : public std::enable_shared_from_this<StoreLink> {
 public:
  // While this many bytes wait to be sent, the caller should not produce more.
  static constexpr std::size_t kRoomBytes = std::size_t{4} << 20;

  // Loop thread only, as start(). `loops` has the connection's loop, and outlives the link.
  static std::shared_ptr<StoreLink> make(LinkLoops& loops, std::unique_ptr<Connection> connection,
                                         std::weak_ptr<StoreLinkEvents> events,
                                         const FrameLimits& limits);
  // Starts reading, after the bytes that were received already.
  void start(std::string_view received = {});

  // The other side has proved its identity: its frames may be long, and shared memory is offered to
  // it after the next frame.
  void trust();
  // Sends a frame after all earlier ones. Does nothing once the link has ended.
  void send(const FrameHeader& header, std::shared_ptr<const Message> message);
  // Sends what can be sent at once, and ends the link: there are no further events, except one that
  // is being delivered.
  void hang_up();

  std::size_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }
  bool has_room() const { return queued_bytes() < kRoomBytes; }
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }
  const std::string& peer() const { return peer_; }
  // The transport that carries frames now: "shared memory", "Unix socket", "TCP".
  std::string transport();
  // Has the other side map an arena of this process; call it once. True if the other side has
  // mapped it. Only a link through shared memory supports this.
  bool offer_map(const std::shared_ptr<SharedArena>& arena);
  // The arena that the other side offered in this way; null before that.
  std::shared_ptr<const ArenaView> map();
  // Polls for as long as that pays; returns `is_done` (LinkPolls::look).
  bool look(const std::function<bool()>& is_done) { return polls_.look(Clock::system(), is_done); }

 private:
  StoreLink(LinkLoops& loops, IoLoop& loop, std::weak_ptr<StoreLinkEvents> events)
      : loop_(loop), polls_(loops.polls_of(loop)), events_(std::move(events)) {}

  void flush() REVERIE_REQUIRES(mutex_);
  void write_on() REVERIE_REQUIRES(mutex_);
  void on_writable();
  void on_lost(const Status& why);
  void end() REVERIE_REQUIRES(mutex_);
  void tell_room();

  IoLoop& loop_;
  LinkPolls& polls_;
  const std::weak_ptr<StoreLinkEvents> events_;
  std::string peer_;
  std::atomic<std::size_t> queued_bytes_{0};
  std::atomic<bool> lacks_room_{false};
  std::atomic<bool> is_over_{false};

  Mutex mutex_;
  std::shared_ptr<WireLink> wire_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
