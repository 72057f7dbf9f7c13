// Frames: the layout of messages in a stream of bytes.
//
//     0        4      5       6           8           12     16          24         32         40
//     "RvR2" | kind | where | name size | head size | zero | bulk size | sequence | received | call
//     48: then the name, the head and the bulk. Numbers are little-endian.
//
// `where` has bit 0 if the bulk is in an arena: then its range is sent instead, and only between
// links that share one (os/arena_link.h). It has bit 1 if a call or an answer names memory that its
// sender has lent (tensor/payload.h).
//
// `sequence` numbers the frames that must arrive, `received` acknowledges the other direction,
// `call` identifies a call. The last byte of the magic is the version.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/os/arena_link.h"
#include "reverie/tensor/buffer.h"
#include "reverie/tensor/payload.h"

namespace reverie {

enum class FrameKind : std::uint8_t {
  // The handshake, in this order.
  kHello = 1,
  kWelcome = 2,
  kResume = 3,
  kResumed = 4,
  kRefused = 5,
  // Frames without a sequence.
  kAck = 6,  // also says that the sender is alive
  kBye = 7,
  // Between two links of one host: shared memory instead of the socket (os/link_share.h).
  kShare = 8,
  kShared = 9,
  kSwitch = 10,
  kBell = 11,
  kReturn = 12,  // ranges of an arena whose bytes are no longer read
  kArena = 13,   // an arena instead of the ring, for large bulk (os/arena_link.h)
  kArenaTaken = 14,
  // Frames with a sequence.
  kCall = 16,
  kAnswer = 17,
  kError = 18,
  kCancel = 19,
  kFind = 20,
  kFound = 21,
  // The memory that was lent with a call, or with an answer, is not read any more.
  kArgumentsCopied = 22,
  kAnswerCopied = 23,
};

inline constexpr std::size_t kFrameHeaderBytes = 48;

struct FrameHeader {
  FrameKind kind = FrameKind::kAck;
  std::uint64_t sequence = 0;
  std::uint64_t received = 0;
  std::uint64_t call = 0;
  bool lends = false;  // memory that the receiver reads by itself
};

struct Frame {
  FrameHeader header;
  Message message;
};

struct FrameLimits {
  std::size_t name_bytes_max = 1024;
  std::size_t head_bytes_max = std::size_t{64} << 20;
  std::size_t bulk_bytes_max = std::size_t{4} << 30;
  bool allow(std::size_t head_bytes, std::size_t bulk_bytes) const {
    return head_bytes <= head_bytes_max && bulk_bytes <= bulk_bytes_max;
  }
  // The limits until a peer has proved its identity.
  static FrameLimits stranger() { return {0, 8192, 0}; }
};

std::array<std::byte, kFrameHeaderBytes> encode_frame_header(const FrameHeader& header,
                                                             const Message& message,
                                                             bool is_in_arena = false);

// Cuts a stream of bytes into frames. Allocates nothing for a length that is not checked yet, and
// touches pages only for bytes that arrived. Not thread-safe.
class FrameReader {
 public:
  // `bulk_memory` allocates the memory that large bulk is received into; null uses the C heap. It
  // outlives the frames.
  explicit FrameReader(FrameLimits limits, Allocator* bulk_memory = nullptr)
      : limits_(limits), bulk_memory_(bulk_memory) {}

  // Applies from the next header on.
  void set_limits(FrameLimits limits) { limits_ = limits; }
  // Returns bulk that is in an arena. Without a source, such frames are malformed.
  using BulkSource = std::function<Result<ArenaBytes>(const ArenaRange&)>;
  void set_bulk_source(BulkSource source) { bulk_source_ = std::move(source); }

  // Appends the frames that are complete to `frames`. INVALID_ARGUMENT for a malformed frame,
  // RESOURCE_EXHAUSTED for one beyond the limits; the reader cannot be used after that.
  Status feed(std::span<const std::byte> bytes, std::vector<Frame>& frames);

  // The memory that the next bytes of the stream may be read into directly; empty if feed() must be
  // used.
  std::span<std::byte> direct();
  // Call it after `size_bytes` bytes were read into direct().
  void advance(std::size_t size_bytes, std::vector<Frame>& frames);

 private:
  enum class Part { kHeader, kName, kHead, kRange, kBulk };
  // The memory of the part that is being read.
  std::span<std::byte> part_bytes();
  Status go_on(std::vector<Frame>& frames);
  Status begin_frame();
  Status find_bulk();

  FrameLimits limits_;
  Allocator* bulk_memory_;
  Part part_ = Part::kHeader;
  std::size_t filled_ = 0;  // of the part
  std::array<std::byte, kFrameHeaderBytes> header_{};
  Frame frame_;
  std::size_t head_size_ = 0;
  std::size_t bulk_size_ = 0;
  std::shared_ptr<Buffer> bulk_;
  BulkSource bulk_source_;
  bool is_in_arena_ = false;
  std::array<std::byte, kRangeBytes> range_{};
};

}  // namespace reverie
