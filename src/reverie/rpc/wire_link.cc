#include "reverie/rpc/wire_link.h"

#include <algorithm>
#include <utility>

namespace reverie {
namespace {

constexpr int kReadsAtOnce = 16;  // then other connections have their turn
constexpr std::size_t kPiecesMax = 128;
constexpr std::array<std::byte, kBulkAlignment> kPadding{};

// The pieces of a frame from byte `from` on, as many as there is room for. True if all were added.
bool add_pieces(const std::array<std::byte, kFrameHeaderBytes>& header, const Message& message,
                std::size_t from, std::vector<std::span<const std::byte>>& pieces) {
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
  std::size_t end = 0;
  for (const BulkPiece& piece : message.payload.bulk) {
    const std::size_t begin = Payload::padded(end);
    if (!add(std::span(kPadding).first(begin - end)) || !add(piece.bytes)) return false;
    end = begin + piece.bytes.size();
  }
  return true;
}

}  // namespace

WireLink::WireLink(LinkId id, std::unique_ptr<Connection> connection, Allocator* bulk_memory,
                   const Events& events)
    : id_(id),
      connection_(std::move(connection)),
      events_(events),
      reader_(FrameLimits::stranger(), bulk_memory) {
  connection_->set_events(this);
}

void WireLink::queue(const FrameHeader& header, std::shared_ptr<const Message> message) {
  Out& out = out_.emplace_back();
  out.header = encode_frame_header(header, *message);
  out.size_bytes = kFrameHeaderBytes + message->size_bytes();
  out.message = std::move(message);
}

bool WireLink::flush() {
  std::vector<std::span<const std::byte>> pieces;
  while (!out_.empty() && !is_over()) {
    pieces.clear();
    std::size_t from = written_;
    for (const Out& out : out_) {
      if (!add_pieces(out.header, *out.message, from, pieces)) break;
      from = 0;
    }
    const IoResult result = connection_->write(pieces);
    // What is lost shows to the reader too, on the loop's thread.
    if (!result.status.ok()) return true;
    if (result.size_bytes == 0) return false;
    written_ += result.size_bytes;
    while (!out_.empty() && written_ >= out_.front().size_bytes) {
      written_ -= out_.front().size_bytes;
      out_.pop_front();
    }
  }
  return true;
}

void WireLink::lose(const Status& why) {
  events_.lost(id_, why);
}

void WireLink::on_readable() {
  const auto self = shared_from_this();
  std::vector<Frame> frames;
  Status status;
  bool has_come = false;
  bool is_end = false;
  for (int i = 0; i < kReadsAtOnce && !is_over(); ++i) {
    if (!has_trusted_limits_ && is_trusted_.load(std::memory_order_acquire)) {
      has_trusted_limits_ = true;
      reader_.set_limits(FrameLimits());
    }
    const std::span<std::byte> direct = reader_.direct();
    const std::span<std::byte> into = direct.empty() ? connection_->loop().scratch() : direct;
    const IoResult got = connection_->read(into);
    status = got.status;
    is_end = got.is_end;
    if (got.size_bytes > 0) {
      has_come = true;
      if (direct.empty()) {
        status = reader_.feed(into.first(got.size_bytes), frames);
      } else {
        reader_.advance(got.size_bytes, frames);
      }
    }
    if (!status.ok() || is_end || got.size_bytes == 0) break;
    // A handshake goes on only when what came was looked at; and less than the buffer takes is all
    // that there is.
    if (!has_trusted_limits_ || (direct.empty() && got.size_bytes < into.size())) break;
  }
  if (is_over()) return;
  if (has_come) events_.received(id_, std::move(frames));
  if (is_over()) return;
  if (is_end) status = unavailable("{} has hung up", connection_->peer());
  if (!status.ok()) return lose(status);
  connection_->want_read();
}

void WireLink::on_writable() {
  const auto self = shared_from_this();
  if (!is_over()) events_.writable(id_);
}

}  // namespace reverie
