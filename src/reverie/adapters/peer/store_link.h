// StoreLink: one connection between a store's client and its server: frames out and in, over a
// socket or through shared memory (rpc/wire_link.h).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/adapters/peer/link_loops.h"
#include "reverie/net/connection.h"
#include "reverie/os/arena_link.h"
#include "reverie/rpc/frame.h"

namespace reverie {

// The receiver of a link's events: called on its loop thread or a polling thread, one event at a
// time, under no lock.
class StoreLinkEvents {
 public:
  virtual ~StoreLinkEvents() = default;
  virtual void on_frames(std::vector<Frame> frames) = 0;
  // The last event: the other side is gone, which is UNAVAILABLE, or what it sends is refused.
  virtual void on_lost(const Status& why) = 0;
  // Before on_lost(): what a refused side is sent last, as kRefused; null: nothing.
  virtual std::shared_ptr<const Message> refusal(const Status&) { return nullptr; }
  // The unsent bytes have fallen below kRoomBytes.
  virtual void on_room() = 0;
};

// Thread-safe, except for what is marked as loop thread only. An interface, so that tests can put a
// simulated network in the place of a connection.
class StoreLink {
 public:
  // While this many bytes wait to be sent, the caller should not produce more.
  static constexpr std::size_t kRoomBytes = std::size_t{4} << 20;

  // A link over a connection. Loop thread only, as start(). `loops` has the connection's loop, and
  // outlives the link.
  static std::shared_ptr<StoreLink> make(LinkLoops& loops, std::unique_ptr<Connection> connection,
                                         std::weak_ptr<StoreLinkEvents> events,
                                         const FrameLimits& limits);
  virtual ~StoreLink() = default;
  // Starts reading, after the bytes that were received already.
  virtual void start(std::string_view received) = 0;

  // The other side has proved its identity: its frames may be long, and shared memory is offered to
  // it after the next frame.
  virtual void trust() = 0;
  // Sends a frame after all earlier ones. Does nothing once the link has ended.
  virtual void send(const FrameHeader& header, std::shared_ptr<const Message> message) = 0;
  // Sends what can be sent at once, and ends the link: there are no further events, except one that
  // is being delivered.
  virtual void hang_up() = 0;

  // Whether fewer than kRoomBytes wait to be sent.
  virtual bool has_room() const = 0;
  virtual bool is_over() const = 0;
  // The transport that carries frames now: "shared memory", "Unix socket", "TCP".
  virtual std::string transport() = 0;
  // Has the other side map an arena of this process; call it once. True if the other side has
  // mapped it. Only a link through shared memory supports this.
  virtual bool offer_map(const std::shared_ptr<SharedArena>& arena) = 0;
  // The arena that the other side offered in this way; null before that.
  virtual std::shared_ptr<const ArenaView> map() = 0;
  // Polls for as long as that pays; returns `is_done` (LinkPolls::wait).
  virtual bool look(const std::function<bool()>& is_done) = 0;
  // Runs `work` later on the thread of the events, also after the link has ended. Dropped if that
  // thread has ended.
  virtual void post(std::function<void()> work) = 0;
};

}  // namespace reverie
