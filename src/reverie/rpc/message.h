// What a call or an answer carries: a head of encoded values, and the bytes of its tensors beside
// it.
//
//     head   ( tuple 2 | text "policy" | tensor float32 (4, 84) at bulk 0 )
//     bulk   [ 1344 bytes ]..[ next tensor ]..   each from a multiple of 64 on; formats/values.md
//
// Bulk is never copied into the head: it is sent from where it lies and received into memory of its
// own, in which the arrays then lie.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace reverie {

inline constexpr std::size_t kBulkAlignment = 64;

// Bytes and what keeps them.
struct BulkPiece {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep;
  bool may_change = false;  // by others, once the call to which it is given has returned
};

class ArenaBlock;

struct Payload {
  std::vector<std::byte> head;
  // One behind the other, each from a multiple of kBulkAlignment on. What was received is one
  // piece.
  std::vector<BulkPiece> bulk;
  // Where all of the bulk lies, if it lies in an arena of this process (os/arena_link.h).
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

// A frame without its numbers. Immutable once it is queued: it may be sent again.
struct Message {
  std::string name;  // of a call's function, of the peer that is looked for; empty elsewhere
  Payload payload;

  std::size_t size_bytes() const {
    return name.size() + payload.head.size() + payload.bulk_bytes();
  }
};

}  // namespace reverie
