// The content of a call or an answer: a head of encoded values, and separately the bytes of its
// tensors.
//
//     head   ( tuple 2 | text "policy" | tensor float32 (4, 84) at bulk 0 )
//     bulk   [ 1344 bytes ]..[ next tensor ]..   each from a multiple of 64 on; formats/values.md
//
// Bulk is never copied into the head: it is sent from its own memory and received into a buffer
// that the arrays then use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace reverie {

inline constexpr std::size_t kBulkAlignment = 64;

// Bytes, and an owner that keeps them alive.
struct BulkPiece {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep;
  bool may_change = false;  // after the call that takes it has returned or, of a peer, has ended
};

// The same bytes in memory of their own, which they keep alive.
inline BulkPiece kept_copy(std::span<const std::byte> bytes) {
  auto keep = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  const std::span<const std::byte> kept(*keep);
  return {kept, std::move(keep)};
}

// Copies of all, in their place. False if there is no memory for one; the rest is unchanged then.
inline bool keep_copies(std::vector<BulkPiece>& pieces) {
  try {
    for (BulkPiece& piece : pieces) piece = kept_copy(piece.bytes);
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

class ArenaBlock;

// Memory that a sent message names and that its receiver reads by itself, such as a GPU's. The lock
// of the peer that sends it guards it.
struct Lent {
  std::uint64_t session = 0;           // the message goes to no other
  std::shared_ptr<const void> memory;  // until the receiver has copied it, or its run has ended
};

// Tells the sender of a message, once, that its receiver does not read the lent memory any more.
// Thread-safe.
class Receipt {
 public:
  // `life` lives as long as the session with the sender's run.
  Receipt(std::function<void()> give, std::uint64_t session, std::weak_ptr<const void> life)
      : give_(std::move(give)), session_(session), life_(std::move(life)) {}
  ~Receipt() { give(); }
  Receipt(const Receipt&) = delete;
  Receipt& operator=(const Receipt&) = delete;

  void give() {
    if (!is_given_.exchange(true) && give_) give_();
  }
  std::uint64_t session() const { return session_; }
  const std::weak_ptr<const void>& life() const { return life_; }

 private:
  const std::function<void()> give_;
  const std::uint64_t session_;
  const std::weak_ptr<const void> life_;
  std::atomic<bool> is_given_{false};
};

struct Payload {
  std::vector<std::byte> head;
  // Consecutive pieces, each aligned to kBulkAlignment. Received bulk is a single piece.
  std::vector<BulkPiece> bulk;
  // The block that holds all of the bulk, if it is in an arena of this process (os/arena_link.h).
  std::shared_ptr<const ArenaBlock> block = nullptr;
  // Memory that the head names: of a sent message, and the receipt for it of a received one.
  std::shared_ptr<Lent> lent = nullptr;
  std::shared_ptr<Receipt> receipt = nullptr;
  bool is_from_host = false;  // received from a process that has proved that it runs on this host

  std::size_t bulk_bytes() const {
    std::size_t size = 0;
    for (const BulkPiece& piece : bulk) size = padded(size) + piece.bytes.size();
    return size;
  }
  static constexpr std::size_t padded(std::size_t size) {
    return (size + kBulkAlignment - 1) / kBulkAlignment * kBulkAlignment;
  }
};

// A frame without its header. Its bytes stay the same once it is queued, since it may be sent
// again.
struct Message {
  std::string name;  // of the function that is called or the peer that is sought; else empty
  Payload payload;

  std::size_t size_bytes() const {
    return name.size() + payload.head.size() + payload.bulk_bytes();
  }
};

}  // namespace reverie
