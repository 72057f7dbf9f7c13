// The content of a call or an answer: a head of encoded values, and separately the bytes of its
// tensors.
//
//     head   ( tuple 2 | text "policy" | tensor float32 (4, 84) at bulk 0 )
//     bulk   [ 1344 bytes ]..[ next tensor ]..   each from a multiple of 64 on; formats/values.md
//
// Bulk is never copied into the head: it is sent from its own memory and received into a buffer
// that the arrays then use.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace reverie {

inline constexpr std::size_t kBulkAlignment = 64;

// Bytes, and an owner that keeps them alive.
struct BulkPiece {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep;
  bool may_change = false;  // after the call that takes it has returned
};

class ArenaBlock;

struct Payload {
  std::vector<std::byte> head;
  // Consecutive pieces, each aligned to kBulkAlignment. Received bulk is a single piece.
  std::vector<BulkPiece> bulk;
  // The block that holds all of the bulk, if it is in an arena of this process (os/arena_link.h).
  std::shared_ptr<const ArenaBlock> block = nullptr;

  std::size_t bulk_bytes() const {
    std::size_t size = 0;
    for (const BulkPiece& piece : bulk) size = padded(size) + piece.bytes.size();
    return size;
  }
  static constexpr std::size_t padded(std::size_t size) {
    return (size + kBulkAlignment - 1) / kBulkAlignment * kBulkAlignment;
  }
};

// A frame without its header. Immutable once it is queued, since it may be sent again.
struct Message {
  std::string name;  // of the function that is called or the peer that is sought; else empty
  Payload payload;

  std::size_t size_bytes() const {
    return name.size() + payload.head.size() + payload.bulk_bytes();
  }
};

}  // namespace reverie
