// One file, since a link's frames are written in one order, whether by socket or by ring, and both
// directions use the same members.
//
// Tested in wire_link_test.cc and peer_test.cc.
#include "reverie/rpc/wire_link.h"

#include <algorithm>
#include <array>
#include <utility>

#include <unistd.h>

#include "reverie/base/check.h"
#include "reverie/net/shared_socket.h"

namespace reverie {
namespace {

constexpr int kReadsAtOnce = 16;  // then it is the turn of other connections
constexpr std::size_t kPiecesMax = 128;
constexpr int kRingReadsAtOnce = 64;
// Frames that are read in one turn; more would need a large buffer for each link.
constexpr std::size_t kRingFramesAtOnce = 64;
constexpr std::size_t kRingScratchBytes = std::size_t{8} << 10;
constexpr std::size_t kSocketScratchBytes = std::size_t{64} << 10;
// No sequence bounds the replies to what the other side sends. It bounds them itself if it reads:
// a peer that reads nothing ends its connection long before so many wait.
constexpr std::size_t kRepliesMax = 65'536;
constexpr std::array<std::byte, kBulkAlignment> kPadding{};

// The pieces of a frame from byte `from` on, as many as there is room for. True if all were added.
bool add_pieces(const std::array<std::byte, kFrameHeaderBytes>& header, const Message& message,
                std::span<const std::byte> range, std::size_t from,
                std::vector<std::span<const std::byte>>& pieces) {
  const auto add = [&](std::span<const std::byte> bytes) {
    if (from >= bytes.size()) {
      from -= bytes.size();
      return true;
    }
    if (pieces.size() >= kPiecesMax) return false;
    pieces.push_back(bytes.subspan(from));
    from = 0;
    return true;
  };
  if (!add(header) || !add(std::as_bytes(std::span(message.name))) || !add(message.payload.head)) {
    return false;
  }
  if (!range.empty()) return add(range);
  std::size_t end = 0;
  for (const BulkPiece& piece : message.payload.bulk) {
    const std::size_t begin = Payload::padded(end);
    if (!add(std::span(kPadding).first(begin - end)) || !add(piece.bytes)) return false;
    end = begin + piece.bytes.size();
  }
  return true;
}

bool is_of_link(FrameKind kind) {
  return kind >= FrameKind::kShare && kind <= FrameKind::kArenaTaken;
}

// Kinds that arrive through a ring.
bool is_of_ring(FrameKind kind) {
  return kind == FrameKind::kReturn || kind == FrameKind::kArenaTaken;
}

// Kinds by which the other side's frames are answered, without a sequence.
bool is_reply(FrameKind kind) {
  return kind == FrameKind::kAck || kind == FrameKind::kShared || kind == FrameKind::kReturn ||
         kind == FrameKind::kArenaTaken;
}

// The content of a frame about memory.
constexpr std::uint64_t kGood = 1;
constexpr std::uint64_t kTakesArenas = 2;
// In `received`: the arena is only to be read, and other frames name its ranges.
constexpr std::uint64_t kIsMap = 1;

// Sends an arena's descriptor. False: the socket is not writable now.
bool send_arena(Connection& connection, const SharedArena& arena, std::uint64_t purpose) {
  const auto header = encode_frame_header({FrameKind::kArena, arena.id(), purpose, 0}, {});
  const IoResult result = connection.write_with_descriptor(header, arena.reader_fd());
  // As for a bell.
  if (result.size_bytes > 0 && result.size_bytes < header.size()) connection.shut_down();
  return result.size_bytes == header.size();
}

Status open_map(int descriptor, std::uint64_t id, std::shared_ptr<const ArenaView>& map) {
  REVERIE_ASSIGN_OR_RETURN(map, ArenaView::open(descriptor, id));
  return {};
}

}  // namespace

WireLink::WireLink(LinkId id, std::unique_ptr<Connection> connection, Allocator* bulk_memory,
                   const std::atomic<int>& poller_count, const Events& events)
    : id_(id),
      connection_(std::move(connection)),
      poller_count_(poller_count),
      events_(events),
      bulk_in_(std::make_shared<ArenaReceiver>([id, &events] { events.on_return_due(id); })),
      reader_(FrameLimits::stranger(), bulk_memory),
      ring_frames_(FrameLimits(), bulk_memory) {
  connection_->set_events(this);
  ring_frames_.set_bulk_source([in = bulk_in_](const ArenaRange& range) { return in->at(range); });
}

void WireLink::end() {
  is_over_.store(true, std::memory_order_release);
  if (share_) share_->end();
  bulk_in_->end();
  if (bulk_out_) bulk_out_->end();
}

void WireLink::keep_arrays() {
  for (Out& out : out_) {
    if (std::ranges::none_of(out.message->payload.bulk, &BulkPiece::may_change)) continue;
    const auto kept = std::make_shared<Message>(*out.message);
    if (!keep_bulk(kept->payload, Allocator::heap()).ok()) return void(take_unsent());
    out.message = kept;
  }
}

void WireLink::use_ucx(bool is_dialler, const UcxOptions& options) {
  REVERIE_CHECK(!has_output() && connection_->loop().is_current());
  connection_ = make_ucx_connection(std::move(connection_), /*is_first=*/is_dialler, options);
  connection_->set_events(this);
  is_by_ucx_ = true;
  why_ = "both peers use UCX";
}

// --- Out.

void WireLink::queue(const FrameHeader& header, std::shared_ptr<const Message> message) {
  if (is_reply(header.kind)) {
    if (reply_count_ >= kRepliesMax) return lose_unread();
    ++reply_count_;
  }
  Out& out = out_.emplace_back();
  out.is_in_arena = bulk_out_ && message->payload.block && bulk_out_->lend(message->payload.block);
  out.header = encode_frame_header(header, *message, out.is_in_arena);
  out.size_bytes = kFrameHeaderBytes + message->size_bytes();
  if (out.is_in_arena) {
    out.range = encode_range(message->payload.block->range());
    out.size_bytes += kRangeBytes - message->payload.bulk_bytes();
  }
  queued_bytes_ += out.size_bytes;
  out.message = std::move(message);
  out.brings_share = header.kind == FrameKind::kShare;
  out.is_switch = header.kind == FrameKind::kSwitch;
  out.is_bell = header.kind == FrameKind::kBell;
  out.is_reply = is_reply(header.kind);
}

// Later and on the loop's thread, since the event needs the owner's lock.
void WireLink::lose_unread() {
  if (std::exchange(is_unread_, true)) return;
  connection_->loop().post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || self->is_over()) return;
    self->lose(resource_exhausted("{} sends and does not read: {} replies wait for it",
                                  self->connection_->peer(), kRepliesMax));
  });
}

// Collects what is written next. With `stops`, only up to a frame that must be written alone.
void WireLink::gather(bool stops) {
  pieces_.clear();
  std::size_t from = written_;
  for (const Out& out : out_) {
    if (stops && out.brings_share && !pieces_.empty()) return;
    const std::span<const std::byte> range =
        out.is_in_arena ? std::span<const std::byte>(out.range) : std::span<const std::byte>();
    if (!add_pieces(out.header, *out.message, range, from, pieces_)) return;
    if (stops && (out.brings_share || out.is_switch)) return;
    from = 0;
  }
}

void WireLink::took(std::size_t size_bytes) {
  written_ += size_bytes;
  while (!out_.empty() && written_ >= out_.front().size_bytes) {
    written_ -= out_.front().size_bytes;
    queued_bytes_ -= out_.front().size_bytes;
    reply_count_ -= out_.front().is_reply ? 1 : 0;
    is_out_ring_ = is_out_ring_ || out_.front().is_switch;
    out_.pop_front();
  }
}

bool WireLink::flush() {
  while (!out_.empty() && !is_over()) {
    if (is_out_ring_) return flush_ring();
    REVERIE_CHECK(connection_->can_write_on_any_thread() || connection_->loop().is_current());
    gather(/*stops=*/true);
    const IoResult result = out_.front().brings_share && written_ == 0
                                ? connection_->write_with_descriptor(pieces_.front(), share_->fd())
                                : connection_->write(pieces_);
    // The reader sees the loss too.
    if (!result.status.ok()) return true;
    if (result.size_bytes == 0) return false;
    took(result.size_bytes);
  }
  return true;
}

bool WireLink::flush_ring() {
  RingWriter& ring = share_->out();
  queue_returns();
  bool is_all = true;
  while (!out_.empty() && !is_over()) {
    gather(/*stops=*/false);
    const Result<std::size_t> size = ring.write(pieces_);
    if (!size.ok()) {
      // The reader of the socket reports it.
      why_ = size.status().message();
      is_broken_.store(true, std::memory_order_release);
      connection_->shut_down();
      break;
    }
    if (*size > 0) {
      took(*size);
      continue;
    }
    waits_for_room_.store(true);
    // A polling thread of this process will notice the room.
    if ((poller_count_.load() > 0 && is_watched.load()) || ring.request_doorbell()) {
      is_all = false;
      break;
    }
  }
  if (is_all) waits_for_room_.store(false, std::memory_order_relaxed);
  if (ring.needs_doorbell()) ring_doorbell();
  return is_all;
}

void WireLink::ring_doorbell() {
  if (!is_out_ring_ && written_ > 0) {
    // Part of a frame is on the socket, and the bell must not get into the rest of it. A frame
    // behind the switch would go to the ring.
    if (out_.front().is_switch) return connection_->shut_down();
    if (out_.size() > 1 && out_[1].is_bell) return;
    queue({FrameKind::kBell, 0, 0, 0}, std::make_shared<const Message>());
    std::rotate(out_.begin() + 1, out_.end() - 1, out_.end());
    return;
  }
  static const std::array<std::byte, kFrameHeaderBytes> bell =
      encode_frame_header({FrameKind::kBell, 0, 0, 0}, {});
  const std::span<const std::byte> piece = bell;
  // A full socket needs no bell: who reads it looks for room, too. A partial write, which does not
  // happen for so few bytes, makes the connection unusable.
  const IoResult result = connection_->write({&piece, 1});
  if (result.size_bytes > 0 && result.size_bytes < bell.size()) connection_->shut_down();
}

// --- Shared memory.

void WireLink::queue_of_link(FrameKind kind, const ShareNonce& nonce, std::uint64_t says) {
  queue({kind, nonce[0], nonce[1], says}, std::make_shared<const Message>());
}

void WireLink::queue_returns() {
  if (!bulk_in_->has_returns()) return;
  Message message;
  message.payload.head = bulk_in_->take_returns();
  queue({FrameKind::kReturn, 0, 0, 0}, std::make_shared<const Message>(std::move(message)));
}

std::shared_ptr<SharedArena> WireLink::arena_for(std::size_t size_bytes, TimePoint now) {
  if (!is_out_ring_ || !takes_arenas_ || size_bytes < kArenaBulkMin || is_over()) return nullptr;
  if (bulk_out_) return bulk_out_->room_for(size_bytes, now);
  Result<std::shared_ptr<SharedArena>> arena = SharedArena::make("reverie-bulk", kLinkArenaBytes);
  if (!arena.ok()) {
    takes_arenas_ = false;
    return nullptr;
  }
  if (send_arena(*connection_, **arena, /*purpose=*/0)) bulk_out_.emplace(std::move(*arena));
  return nullptr;
}

bool WireLink::offer_map(const std::shared_ptr<SharedArena>& arena) {
  if (offered_map_ != 0 || !is_out_ring_ || !takes_arenas_ || is_over()) {
    return is_map_taken_ && offered_map_ == arena->id();
  }
  if (send_arena(*connection_, *arena, kIsMap)) offered_map_ = arena->id();
  return false;
}

void WireLink::rest(TimePoint now) {
  if (bulk_out_) bulk_out_->rest(now);
  if (is_out_ring_ && bulk_in_->has_returns()) queue_returns();
}

void WireLink::offer_share(const ShareNonce& nonce) {
  if (share_ || !connection_->accepts_descriptors()) return;
  Result<std::unique_ptr<LinkShare>> share = LinkShare::make(nonce);
  if (!share.ok()) {
    why_ = share.status().message();
    return;
  }
  share_ = std::move(*share);
  why_ = "the other side has not answered yet";
  queue_of_link(FrameKind::kShare, {}, kGood | kTakesArenas);
}

Status WireLink::on_share_frame(const Frame& frame, int descriptor) {
  switch (frame.header.kind) {
    case FrameKind::kShare: {
      if (share_ && share_->is_open()) return data_loss("the other side shares memory twice");
      takes_arenas_ = (frame.header.call & kTakesArenas) != 0;
      ShareNonce nonce{};
      if (share_ && descriptor >= 0) {
        const Result<ShareNonce> found = share_->open(descriptor);
        if (found.ok()) {
          nonce = *found;
        } else {
          why_ = found.status().message();
        }
      } else if (share_) {
        why_ = "no descriptor comes through this socket";
      }
      is_unshared_ = is_unshared_ || !share_ || !share_->is_open();
      queue_of_link(FrameKind::kShared, nonce, share_ && share_->is_open() ? kGood : 0);
      break;
    }
    case FrameKind::kShared:
      if (!share_ || is_confirmed_)
        return data_loss("the other side answers a request that was not made");
      if (frame.header.call == 0) {
        why_ = "the other side cannot map this peer's memory";
        is_unshared_ = true;
        return {};
      }
      if (ShareNonce{frame.header.sequence, frame.header.received} != share_->nonce()) {
        return data_loss("the other side has read another nonce than the one that was written");
      }
      is_confirmed_ = true;
      share_->set_confirmed();
      break;
    case FrameKind::kSwitch:
      if (!share_ || !share_->is_open()) return data_loss("the other side shares no memory");
      return {};  // the caller reads the ring from here on
    case FrameKind::kArena: {
      if (!share_ || !share_->is_open()) return data_loss("the other side shares no memory");
      const bool is_map = frame.header.received == kIsMap;
      if (is_map && map_) return data_loss("the other side offers a second map");
      const Status opened = is_map ? open_map(descriptor, frame.header.sequence, map_)
                                   : bulk_in_->open(descriptor, frame.header.sequence);
      queue_of_link(FrameKind::kArenaTaken, {frame.header.sequence, frame.header.received},
                    opened.ok() ? kGood : 0);
      return {};
    }
    case FrameKind::kArenaTaken: {
      const bool is_map = frame.header.received == kIsMap;
      const std::uint64_t asked = is_map ? offered_map_ : (bulk_out_ ? bulk_out_->id() : 0);
      if (asked == 0 || asked != frame.header.sequence) {
        return data_loss("the other side answers a request that was not made");
      }
      if (frame.header.call == kGood) is_map ? void(is_map_taken_ = true) : bulk_out_->set_taken();
      return {};
    }
    case FrameKind::kReturn:
      if (!bulk_out_) return data_loss("the other side returns memory that was not lent");
      return bulk_out_->give_back(frame.message.payload.head);
    default:
      return data_loss("an unexpected frame of kind {} arrived",
                       static_cast<int>(frame.header.kind));
  }
  try_switch();
  return {};
}

void WireLink::try_switch() {
  if (!is_confirmed_ || !share_->is_open() || std::exchange(has_switched_, true)) return;
  why_ = "both sides have read the other's nonce";
  queue_of_link(FrameKind::kSwitch, {}, kGood);
}

const char* WireLink::transport() const {
  if (is_out_ring_) return "shared memory";
  if (connection_->is_unix()) return "Unix socket";
  if (is_by_ucx_) return "UCX";
  return connection_->is_encrypted() ? "TCP with TLS" : "TCP";
}

// --- Rings.

bool WireLink::has_work() const {
  if (is_over() || is_broken()) return false;
  return (has_ring() && share_->in().has_input() && !is_reading_.load()) ||
         (waits_for_room_.load(std::memory_order_acquire) && share_->out().has_room());
}

bool WireLink::poll() {
  if (is_over() || is_broken()) return false;
  bool has_moved = false;
  if (waits_for_room_.load(std::memory_order_acquire) && share_->out().has_room()) {
    events_.writable(id_);
    has_moved = true;
  }
  if (!has_ring() || !share_->in().has_input() || is_over()) return has_moved;
  if (is_reading_.exchange(true)) return has_moved;
  read_ring();
  // In one order with what other threads look at after it: one of both sees what the other did.
  is_reading_.store(false);
  if (is_ending_.load()) end_once_read();
  return true;
}

// A reader says that it reads before it takes bytes, and until it has passed them on: in the
// reverse order nothing is overlooked.
bool WireLink::has_unread() const {
  return (has_ring() && !is_broken() && share_->in().has_input()) || has_input(*connection_) ||
         is_reading_.load() || is_reading_socket_.load();
}

bool WireLink::arm() {
  if (is_over() || is_broken()) return true;
  bool is_quiet = true;
  if (has_ring()) is_quiet = share_->in().request_doorbell();
  if (waits_for_room_.load()) is_quiet = share_->out().request_doorbell() && is_quiet;
  return is_quiet;
}

void WireLink::disarm() {
  if (has_ring()) share_->in().clear_doorbell_request();
  if (waits_for_room_.load(std::memory_order_relaxed)) share_->out().clear_doorbell_request();
}

void WireLink::read_ring() {
  RingReader& ring = share_->in();
  std::array<std::byte, kRingScratchBytes> scratch;
  std::vector<Frame> frames;
  Status status;
  for (int i = 0; i < kRingReadsAtOnce && frames.size() < kRingFramesAtOnce && status.ok(); ++i) {
    const std::span<std::byte> direct = ring_frames_.direct();
    const std::span<std::byte> into = direct.empty() ? std::span<std::byte>(scratch) : direct;
    const Result<std::size_t> size = ring.read(into);
    if (!size.ok()) {
      status = size.status();
      break;
    }
    if (ring.needs_doorbell()) events_.rings(id_);
    if (*size == 0) break;
    if (direct.empty()) {
      status = ring_frames_.feed(into.first(*size), frames);
      if (*size < into.size()) break;
    } else {
      ring_frames_.advance(*size, frames);
    }
  }
  if (!is_over()) deliver(std::move(frames), /*is_socket=*/false);
  if (status.ok() || is_over()) return;
  is_broken_.store(true, std::memory_order_release);
  lose(status);
}

// Reads what the other side wrote before it hung up, a ring at most. If another thread reads, it
// may be long in a handler: then it does this afterwards.
void WireLink::end_once_read() {
  for (int i = 0; i < kRingReadsAtOnce && has_ring() && !is_over() && !is_broken(); ++i) {
    if (!share_->in().has_input()) break;
    if (is_reading_.exchange(true)) return;
    read_ring();
    is_reading_.store(false);
  }
  if (!is_over()) lose(end_);
}

// --- In.

void WireLink::deliver(std::vector<Frame> frames, bool is_socket) {
  std::vector<Frame> batch;
  batch.swap(frames);
  const bool has_link_frame = std::any_of(batch.begin(), batch.end(),
                                          [](const Frame& f) { return is_of_link(f.header.kind); });
  if (!has_link_frame) return events_.received(id_, std::move(batch));
  for (Frame& frame : batch) {
    if (!is_of_link(frame.header.kind)) {
      frames.push_back(std::move(frame));
      continue;
    }
    events_.received(id_, std::move(frames));
    frames.clear();
    if (is_over()) return;
    if (is_of_ring(frame.header.kind) == is_socket || !connection_->is_unix() ||
        !is_trusted_.load(std::memory_order_acquire)) {
      return lose(
          data_loss("an unexpected frame of kind {} arrived", static_cast<int>(frame.header.kind)));
    }
    if (frame.header.kind == FrameKind::kBell) {
      events_.on_doorbell(id_);
      continue;
    }
    const bool brings_memory =
        frame.header.kind == FrameKind::kShare || frame.header.kind == FrameKind::kArena;
    const int descriptor = brings_memory ? connection_->take_descriptor() : -1;
    const Status status = events_.shared(id_, frame, descriptor);
    if (descriptor >= 0) ::close(descriptor);
    if (!status.ok()) return lose(status);
    if (frame.header.kind == FrameKind::kSwitch) {
      is_in_ring_.store(true, std::memory_order_release);
      events_.on_doorbell(id_);
    }
  }
  if (!frames.empty()) events_.received(id_, std::move(frames));
}

// Detects that only the other side encrypts: TLS records where frames should begin. It is sent a
// TLS alert, which also ends its wait.
Status WireLink::check_cleartext(std::span<const std::byte> first) {
  constexpr std::byte kAlertRecord{21};
  constexpr std::byte kHandshakeRecord{22};
  constexpr std::byte kMajorVersion{3};
  if (first.size() < 3 || first[1] != kMajorVersion) return {};
  if (first[0] == kHandshakeRecord) {
    // Fatal: protocol version (RFC 8446, 6.2).
    constexpr std::array<unsigned char, 7> kRefusal = {21, 3, 3, 0, 2, 2, 70};
    const std::span<const std::byte> piece = std::as_bytes(std::span(kRefusal));
    (void)connection_->write({&piece, 1});
  } else if (first[0] != kAlertRecord) {
    return {};
  }
  return failed_precondition("{} encrypts and this peer does not; give both tls, or none",
                             connection_->peer());
}

void WireLink::start(std::string_view received) {
  const auto self = shared_from_this();
  std::vector<Frame> frames;
  const Status status = reader_.feed(std::as_bytes(std::span(received)), frames);
  has_read_ = true;
  deliver(std::move(frames), /*is_socket=*/true);
  if (is_over()) return;
  if (!status.ok()) return lose(status);
  connection_->want_read();
}

bool WireLink::read_frames(std::span<std::byte> scratch) {
  std::vector<Frame> frames;
  Status status;
  bool has_arrived = false;
  bool is_end = false;
  for (int i = 0; i < kReadsAtOnce && !is_over(); ++i) {
    if (!has_trusted_limits_ && is_trusted_.load(std::memory_order_acquire)) {
      has_trusted_limits_ = true;
      reader_.set_limits(limits_);
    }
    const std::span<std::byte> direct = reader_.direct();
    const std::span<std::byte> into = direct.empty() ? scratch : direct;
    const IoResult got = connection_->read(into);
    status = got.status;
    is_end = got.is_end;
    if (got.size_bytes > 0) {
      has_arrived = true;
      if (!std::exchange(has_read_, true)) status = check_cleartext(into.first(got.size_bytes));
      if (!status.ok()) break;
      if (direct.empty()) {
        status = reader_.feed(into.first(got.size_bytes), frames);
      } else {
        reader_.advance(got.size_bytes, frames);
      }
    }
    if (!status.ok() || is_end || got.size_bytes == 0) break;
    // A handshake continues only after the received bytes are processed; and a read that does not
    // fill the buffer has read everything.
    if (!has_trusted_limits_ || (direct.empty() && got.size_bytes < into.size())) break;
  }
  if (is_over()) return has_arrived;
  if (has_arrived) deliver(std::move(frames), /*is_socket=*/true);
  if (is_over()) return has_arrived;
  if (is_end) status = unavailable("{} has hung up", connection_->peer());
  if (!status.ok() && !is_ending_.load()) {
    end_ = std::move(status);
    is_ending_.store(true);
    end_once_read();
  }
  return has_arrived;
}

void WireLink::on_readable() {
  const auto self = shared_from_this();
  (void)read_into(connection_->loop().scratch());
  if (is_over() || is_ending()) return;
  const bool is_adopted = has_trusted_limits_ && connection_->can_read_on_any_thread() &&
                          events_.adopts && events_.adopts(id_);
  if (!is_adopted) connection_->want_read();
}

bool WireLink::read_socket() {
  static thread_local const auto memory =
      std::make_unique_for_overwrite<std::byte[]>(kSocketScratchBytes);
  return read_into({memory.get(), kSocketScratchBytes});
}

bool WireLink::read_into(std::span<std::byte> scratch) {
  is_reading_socket_.store(true);
  const bool has_arrived = read_frames(scratch);
  is_reading_socket_.store(false);
  if (has_arrived && !is_over() && waits_for_room_.load())
    events_.writable(id_);  // ring_doorbell()
  return has_arrived;
}

void WireLink::on_writable() {
  const auto self = shared_from_this();
  if (!is_over()) events_.writable(id_);
}

}  // namespace reverie
