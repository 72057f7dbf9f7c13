// A stream of bytes through shared memory, from one process to another.
//
//     page 0    [ tail ][ head ][ reader sleeps ][ writer sleeps ][ nonce ][ has ended ]
//               a cache line each
//     page 1    [ . . . . read . . . . | head: not read yet | tail: free . . . . ]      the ring
//
// One writer, one reader; each keeps its position in its own memory and publishes it. What the
// other side publishes is copied, and checked before it is used: garbage in shared memory gives
// DATA_LOSS and nothing else. Nothing here sleeps or wakes: each side announces that it is about to
// sleep, and needs_doorbell() tells the other side that it has to wake it.
//
//     reader                                       writer
//     if (ring.request_doorbell()) wait for a bell            write(pieces)
//                                                  if (ring.needs_doorbell()) ring the bell
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "reverie/base/status.h"

namespace reverie {

// The first page. The sides map it at different addresses; it contains no address.
struct RingPage {
  alignas(64) std::atomic<std::uint64_t> tail;  // bytes written so far; the writer stores it
  alignas(64) std::atomic<std::uint64_t> head;  // bytes read so far; the reader stores it
  alignas(64) std::atomic<std::uint32_t> reader_sleeps;
  alignas(64) std::atomic<std::uint32_t> writer_sleeps;
  alignas(64) std::uint64_t nonce[2];                // written before the memory is shared
  alignas(64) std::atomic<std::uint32_t> has_ended;  // the writer does not use the link any more
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "other processes see the words");

inline constexpr std::size_t kRingPageBytes = 4096;
static_assert(sizeof(RingPage) <= kRingPageBytes);

// The protocol's stores, in order: tests stop or kill a process at each.
enum class RingStep { kCopied, kTail, kReaderWoken, kRead, kHead, kWriterWoken, kSleeps, kAwake };
using RingHook = void (*)(RingStep);
// Called after each store; null outside tests.
extern std::atomic<RingHook> ring_hook;

// Not thread-safe. `memory` is the page and a ring whose size is a power of two; it outlives this.
class RingWriter {
 public:
  explicit RingWriter(std::span<std::byte> memory);

  // Appends as much as there is room for; returns the number of bytes. DATA_LOSS when the reader's
  // position is impossible.
  Result<std::size_t> write(std::span<const std::span<const std::byte>> pieces);
  // Whether at least a quarter is free. On any thread.
  bool has_room() const;
  // Whether the reader was about to sleep: then the caller, and no other thread, must wake it.
  bool needs_doorbell();
  // Asks to be woken when there is room. False: there is room already.
  bool request_doorbell();
  void clear_doorbell_request();

 private:
  RingPage& page_;
  std::byte* const ring_;
  const std::size_t size_bytes_;
  std::atomic<std::uint64_t> tail_{0};  // has_room() reads it
  std::uint64_t head_seen_ = 0;
};

// The other side. Not thread-safe.
class RingReader {
 public:
  explicit RingReader(std::span<std::byte> memory);

  // Copies out as much as there is and `into` has room for. DATA_LOSS when the writer's position is
  // impossible.
  Result<std::size_t> read(std::span<std::byte> into);
  // On any thread; also true for a position that is impossible.
  bool has_input() const;
  // As for the writer, but only once half of the ring is free.
  bool needs_doorbell();
  // Asks to be woken when something comes. False: something is there.
  bool request_doorbell();
  void clear_doorbell_request();

 private:
  RingPage& page_;
  const std::byte* const ring_;
  const std::size_t size_bytes_;
  std::atomic<std::uint64_t> head_{0};  // has_input() reads it
  std::uint64_t tail_seen_ = 0;
};

}  // namespace reverie
