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

// Where a link's events go: on its loop's thread or one that looks, one at a time, under no lock.
class StoreLinkEvents {
 public:
  virtual ~StoreLinkEvents() = default;
  virtual void on_frames(std::vector<Frame> frames) = 0;
  // The last event: the other side is gone.
  virtual void on_lost(const Status& why) = 0;
  // Less than kRoomBytes wait to be sent, after there were more.
  virtual void on_room() = 0;
};

// Thread-safe, except what is the loop's.
class StoreLink final : public std::enable_shared_from_this<StoreLink> {
 public:
  // While so many bytes wait to be sent, no more should be made.
  static constexpr std::size_t kRoomBytes = std::size_t{4} << 20;

  // `loops` has the connection's loop, and outlives the link. On the loop's thread, as start().
  static std::shared_ptr<StoreLink> make(LinkLoops& loops, std::unique_ptr<Connection> connection,
                                         std::weak_ptr<StoreLinkEvents> events,
                                         const FrameLimits& limits);
  // Begins to read, behind what was received already.
  void start(std::string_view received = {});

  // The other side has shown who it is: its frames may be long, and shared memory is offered to it
  // behind the next frame.
  void trust();
  // Sends behind what was sent before. Goes nowhere once the link has ended.
  void send(const FrameHeader& header, std::shared_ptr<const Message> message);
  // Sends what can be sent at once, and ends the link: no event comes any more, except one that is
  // on its way.
  void hang_up();

  std::size_t queued_bytes() const { return queued_bytes_.load(std::memory_order_relaxed); }
  bool has_room() const { return queued_bytes() < kRoomBytes; }
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }
  const std::string& peer() const { return peer_; }
  // What carries frames now: "shared memory", "Unix socket", "TCP".
  std::string transport();
  // Has the other side map an arena of this process, once; true when it has. A link through shared
  // memory alone has it.
  bool offer_map(const std::shared_ptr<SharedArena>& arena);
  // What the other side offered so; null before that.
  std::shared_ptr<const ArenaView> map();
  // Looks for what comes, for as long as that pays; gives `is_done` (LinkPolls::look).
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
