// One connection of a peer: frames in, frames out; over its socket or, between processes of one
// host, through shared memory.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/net/connection.h"
#include "reverie/net/ucx_connection.h"
#include "reverie/os/arena_link.h"
#include "reverie/os/link_share.h"
#include "reverie/rpc/frame.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {

// Smaller bulk goes through the ring: copying it twice costs less than returning a range.
inline constexpr std::size_t kArenaBulkMin = std::size_t{128} << 10;
// The size of each arena.
inline constexpr std::size_t kLinkArenaBytes = std::size_t{1} << 30;

// The polling threads read a ring, one at a time. The loop thread reads the socket, until the
// link's owner adopts it: then any thread does, one at a time. Any thread may write, under the lock
// of the peer that owns the link; to a connection that other threads may not write to, the loop
// thread alone.
class WireLink final : public ConnectionEvents, public std::enable_shared_from_this<WireLink> {
 public:
  // Called on the loop thread or on a polling thread.
  struct Events {
    std::function<void(LinkId, std::vector<Frame>)> received;  // empty: part of a frame arrived
    std::function<void(LinkId, const Status&)> lost;
    std::function<void(LinkId)> writable;
    // A frame about shared memory, and its descriptor or -1, which is closed afterwards. On the
    // thread that reads the socket.
    std::function<Status(LinkId, const Frame&, int)> shared;
    std::function<void(LinkId)> rings;        // must ring the other side's bell
    std::function<void(LinkId)> on_doorbell;  // the other side rang the bell
    // Ranges should be returned; on any thread, also under locks.
    std::function<void(LinkId)> on_return_due;
    // Adopts the socket of a trusted link, or returns false: from now on the owner calls
    // read_socket() and on_writable(), and the loop does not. On the loop thread. May be null.
    std::function<bool(LinkId)> adopts = nullptr;
  };

  // `poller_count` is the number of threads that poll now.
  WireLink(LinkId id, std::unique_ptr<Connection> connection, Allocator* bulk_memory,
           const std::atomic<int>& poller_count, const Events& events);
  // On the loop's thread.
  ~WireLink() override = default;

  Connection& connection() { return *connection_; }
  // What is read and written from here on goes over UCX. REQUIRES: no output, on the loop's thread,
  // under the owner's lock.
  void use_ucx(bool is_dialler, const UcxOptions& options);
  void start() { connection_->want_read(); }
  // The same, after bytes that were already read from the connection.
  void start(std::string_view received);
  // Limits of frames once the link is trusted. Call it before start().
  void set_limits(const FrameLimits& limits) {
    limits_ = limits;
    ring_frames_.set_limits(limits);
  }
  void trust() { is_trusted_.store(true, std::memory_order_release); }

  // --- Under the owner's lock.
  // A connection whose other side sends without reading what it is answered is lost, with
  // RESOURCE_EXHAUSTED.
  void queue(const FrameHeader& header, std::shared_ptr<const Message> message);
  bool has_output() const { return !out_.empty(); }
  std::size_t queued_bytes() const { return queued_bytes_ - written_; }
  // Writes what can be written now. False: the rest waits for room; the caller must ask a socket
  // for a notification, and poll a ring.
  bool flush();
  // Copies what is queued and may change, since its calls end; nothing more is written if there is
  // no memory for that.
  void keep_arrays();
  // There are no further events, and nothing more is written.
  void end();
  // After end(): the frames that were not written, which the link no longer holds. There may be
  // many, so the caller releases them under no lock.
  auto take_unsent() {
    queued_bytes_ = written_ = reply_count_ = 0;
    return std::exchange(out_, {});
  }
  bool is_over() const { return is_over_.load(std::memory_order_acquire); }
  bool is_flush_posted = false;
  std::string peer_name;     // once it is trusted
  bool shares_next = false;  // offer_share() after the next frame

  // --- Shared memory, under the owner's lock too.
  // Proposes shared memory, after the queued frames. why() says why it failed.
  void offer_share(const ShareNonce& nonce);
  Status on_share_frame(const Frame& frame, int descriptor);
  // Whether what is queued goes to the ring.
  bool is_out_ring() const { return is_out_ring_; }
  // Whether each side has read the other's nonce: their processes run on one host.
  bool is_host_proved() const { return is_confirmed_ && share_->is_open(); }
  // Whether the other side has this link still, as far as its memory shows.
  bool is_kept() const { return is_host_proved() && !share_->has_peer_ended(); }
  // Whether the other side may still prove it: over this link, or over one by the Unix socket that
  // may follow.
  bool may_prove_host() const {
    if (!connection_->is_unix()) return true;
    return (share_ || shares_next) && !is_unshared_ && !is_host_proved();
  }
  // Between two frames: behind the one of which the socket took a part, if there is one.
  void ring_doorbell();
  // The arena that the bulk of a message must be written to before it is queued; null if it goes
  // through the ring or the socket. The first call asks the other side to map an arena.
  std::shared_ptr<SharedArena> arena_for(std::size_t size_bytes, TimePoint now);
  // Has the other side map an arena of this process read-only, for as long as the link exists;
  // other frames say what is in it, and for how long. Call it once. True if the other side has
  // mapped it.
  bool offer_map(const std::shared_ptr<SharedArena>& arena);
  // The arena that the other side offered in this way; null before that.
  const std::shared_ptr<const ArenaView>& map() const { return map_; }
  // Called periodically: returns ranges, and frees unused memory.
  void rest(TimePoint now);
  // The transport that carries frames now, and why it was chosen.
  const char* transport() const;
  const std::string& why() const { return why_; }
  void set_why(std::string why) { why_ = std::move(why); }

  // --- The rings, on any thread, under no lock.
  bool has_ring() const { return is_in_ring_.load(std::memory_order_acquire); }
  bool has_work() const;  // that no other thread does already
  // Reads, and continues writing. False if there was nothing to do.
  bool poll();
  // Reads an adopted socket; one thread at a time. False if nothing arrived.
  bool read_socket();
  // Whether something has arrived that was not passed to the events yet. The owner's lock is held,
  // which the events need.
  bool has_unread() const;
  // Asks for bells from now on. False: there is something to do first.
  bool arm();
  void disarm();
  // Whether the other side wrote invalid data: its memory is no longer used.
  bool is_broken() const { return is_broken_.load(std::memory_order_acquire); }
  // Whether the socket has ended, and the link does once a thread that is long in a handler has
  // read the ring. The socket is read no more.
  bool is_ending() const { return is_ending_.load(); }
  // Whether the polling threads read this link. Set by its owner.
  std::atomic<bool> is_watched{false};
  // Counts the connection at the door that accepted it.
  std::shared_ptr<void> place;
  // Set by LinkPolls, under its lock.
  struct Adopted {
    int socket = -1;
    std::uint64_t id = 0;  // in the SocketSet; 0: it is not adopted
  };
  Adopted adopted;
  std::atomic<bool> is_socket_polled{false};

  void on_readable() override;
  void on_writable() override;

 private:
  struct Out {
    std::array<std::byte, kFrameHeaderBytes> header;
    std::shared_ptr<const Message> message;
    std::size_t size_bytes;
    std::array<std::byte, kRangeBytes> range;  // in the place of the bulk
    bool is_in_arena;
    bool brings_share;  // is sent alone, with the descriptor
    bool is_switch;     // the last one on the socket
    bool is_bell;
    bool is_reply;
  };
  Status check_cleartext(std::span<const std::byte> first);
  bool flush_ring();
  void lose_unread();
  void gather(bool stops);
  void took(std::size_t size_bytes);
  void try_switch();
  void queue_of_link(FrameKind kind, const ShareNonce& nonce, std::uint64_t says);
  void queue_returns();
  bool read_into(std::span<std::byte> scratch);
  bool read_frames(std::span<std::byte> scratch);
  void read_ring();
  void end_once_read();
  void deliver(std::vector<Frame> frames, bool is_socket);
  void lose(const Status& why) { events_.lost(id_, why); }

  const LinkId id_;
  std::unique_ptr<Connection> connection_;  // replaced on the loop's thread, under the owner's lock
  const std::atomic<int>& poller_count_;
  const Events& events_;
  const std::shared_ptr<ArenaReceiver> bulk_in_;
  FrameReader reader_;
  std::atomic<bool> is_trusted_{false};
  bool has_read_ = false;  // anything
  bool has_trusted_limits_ = false;
  std::atomic<bool> is_over_{false};
  FrameLimits limits_;
  std::deque<Out> out_;
  std::size_t queued_bytes_ = 0;  // of all in out_
  std::size_t written_ = 0;       // of the first
  std::size_t reply_count_ = 0;   // in out_
  bool is_by_ucx_ = false;
  bool is_unread_ = false;  // there were too many of these: the connection is lost
  std::vector<std::span<const std::byte>> pieces_;

  std::unique_ptr<LinkShare> share_;  // set once
  std::optional<ArenaSender> bulk_out_;
  std::shared_ptr<const ArenaView> map_;
  std::uint64_t offered_map_ = 0;  // its id
  bool is_map_taken_ = false;
  bool takes_arenas_ = false;  // the other side
  bool is_confirmed_ = false;  // the other side has read our nonce
  bool is_unshared_ = false;   // one of the sides does not map the other's memory
  bool has_switched_ = false;  // SWITCH is queued
  bool is_out_ring_ = false;   // and written
  std::string why_ = "no shared memory was proposed yet";
  std::atomic<bool> waits_for_room_{false};
  std::atomic<bool> is_in_ring_{false};
  std::atomic<bool> is_reading_{false};  // the ring
  std::atomic<bool> is_reading_socket_{false};
  std::atomic<bool> is_broken_{false};
  Status end_;                          // of the socket; written before is_ending_
  std::atomic<bool> is_ending_{false};  // once the ring is read
  FrameReader ring_frames_;
};

}  // namespace reverie
