// PayloadBuilder: a message under construction, made of its own bytes and bytes of chunks.
//
//     own      head . . . numbers . . . numbers
//     pieces       rows of a chunk    a column of another
//
// Large data is referenced, with a share in its chunk until the message is sent.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reverie/grpc/grpc_message.h"
#include "reverie/record/chunk.h"
#include "reverie/reverb_wire/requests.h"

namespace reverie {

// Not thread-safe.
class PayloadBuilder {
 public:
  // The string to append own bytes to.
  std::string& own() { return message_.own; }
  wire::PiecedMessage& message() { return message_; }

  // Adds bytes of a chunk; raw rows that may be released need keep_rows() too.
  void put(wire::Bytes bytes, const Chunk& chunk) {
    message_.put(bytes);
    keep_chunk(bytes, chunk);
  }
  // Adds bytes whose owner is passed to keep() before build().
  void put(wire::Bytes bytes) { message_.put(bytes); }

  // Keeps the chunk whose bytes are put into message().
  void keep_chunk(wire::Bytes bytes, const Chunk& chunk) {
    if (wire::PiecedMessage::refers_to(bytes)) {
      keeper_->chunks.push_back(Ref<const Chunk>::share(&chunk));
    }
  }
  // Keeps rows of a chunk that its writer may encode meanwhile.
  void keep_rows(const Chunk& chunk, RawRows rows) {
    keeper_->rows.emplace_back(Ref<const Chunk>::share(&chunk), std::move(rows));
  }
  void keep(std::shared_ptr<const void> owner) { keeper_->owners.push_back(std::move(owner)); }

  // The message, preceded by `head`. The builder must not be used any more.
  GrpcPayload build(std::string head = {}) {
    GrpcPayload payload;
    payload.append(std::move(head));
    const auto own = std::make_shared<const std::string>(std::move(message_.own));
    const wire::Bytes all = wire::bytes_of(*own);
    std::size_t at = 0;
    for (const wire::PiecedMessage::Piece& piece : message_.pieces) {
      if (piece.at > at) payload.append_borrowed(all.subspan(at, piece.at - at));
      at = piece.at;
      payload.append_borrowed(piece.bytes);
    }
    if (all.size() > at) payload.append_borrowed(all.subspan(at));
    payload.keep(own);
    payload.keep(std::move(keeper_));
    return payload;
  }

 private:
  struct Keeper {
    std::vector<Ref<const Chunk>> chunks;
    // The order matters: rows are released first.
    std::vector<std::pair<Ref<const Chunk>, RawRows>> rows;
    std::vector<std::shared_ptr<const void>> owners;
  };

  wire::PiecedMessage message_;
  std::shared_ptr<Keeper> keeper_ = std::make_shared<Keeper>();
};

}  // namespace reverie
