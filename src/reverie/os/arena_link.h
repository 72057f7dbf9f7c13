// An arena between two processes that a connection joins: the sender writes bytes once, and the
// receiver reads them in place.
//
//     sender (ArenaSender)                                receiver (ArenaReceiver)
//     a descriptor, over a Unix socket                 -->  maps it, copy on write
//                                                    <--  taken
//     writes a block; then sends its range           -->  the bytes, its own to change
//                                                    <--  ranges that were released
//
// How these travel is up to the connection (rpc/wire_link.h). When it ends the arena is retired:
// nothing else is ever written there, so the bytes that a receiver keeps stay as they are, and the
// memory is freed when both sides have released it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/os/shared_arena.h"

namespace reverie {

// Size of a range on the connection, three numbers; which arena it means, the connection knows.
inline constexpr std::size_t kRangeBytes = 24;
std::array<std::byte, kRangeBytes> encode_range(const ArenaRange& range);
ArenaRange decode_range(std::span<const std::byte, kRangeBytes> bytes);

// Bytes that a receiver may use as long as it holds `keep`.
struct ArenaBytes {
  std::span<std::byte> bytes;
  std::shared_ptr<const void> keep;
};

// The sender's side. Not thread-safe: its connection's lock guards it.
class ArenaSender {
 public:
  explicit ArenaSender(std::shared_ptr<SharedArena> arena)
      : arena_(std::move(arena)), leases_(arena_->size_bytes()) {}
  ~ArenaSender() { end(); }
  ArenaSender(const ArenaSender&) = delete;
  ArenaSender& operator=(const ArenaSender&) = delete;

  std::uint64_t id() const { return arena_->id(); }
  void set_taken() { is_taken_ = true; }
  // The arena, if so many bytes may be written to it and lent; else null.
  std::shared_ptr<SharedArena> room_for(std::size_t size_bytes, TimePoint now);
  // The receiver may read the block from here on. False for a block of another arena, or beyond the
  // bound on what is lent.
  bool lend(const std::shared_ptr<const ArenaBlock>& block);
  // DATA_LOSS for a range that was not lent.
  Status give_back(std::span<const std::byte> ranges);
  // Called now and then: gives memory back to the system once nothing has been sent for a while.
  void rest(TimePoint now);
  void end();

 private:
  static constexpr Duration kTrimAfter = std::chrono::seconds(5);

  const std::shared_ptr<SharedArena> arena_;
  ArenaLeases leases_;
  bool is_taken_ = false;
  TimePoint last_use_{};
};

// The receiver's side. Thread-safe. Lives until its last bytes are released.
class ArenaReceiver : public std::enable_shared_from_this<ArenaReceiver> {
 public:
  // `is_due` is called when ranges should be sent back soon, on any thread, also under locks.
  explicit ArenaReceiver(std::function<void()> is_due) : is_due_(std::move(is_due)) {}

  // Maps the arena. INVALID_ARGUMENT if `fd` is not an arena, or this receiver has one already.
  Status open(int fd, std::uint64_t id);
  // The bytes of a range, which goes back when they are released, unless a forked child releases
  // them. DATA_LOSS or UNAVAILABLE if it is not a range of the arena.
  Result<ArenaBytes> at(ArenaRange range);
  bool has_returns() const { return has_returns_.load(std::memory_order_relaxed); }
  // The ranges whose bytes were released, encoded.
  std::vector<std::byte> take_returns();
  // The connection has ended: ranges need not go back.
  void end();

 private:
  static constexpr std::size_t kReturnBytesMax = std::size_t{8} << 20;
  static constexpr std::size_t kReturnCountMax = 64;
  void release(const ArenaRange& range, std::span<std::byte> bytes);

  const ForkGuard fork_guard_;
  Mutex mutex_;
  std::function<void()> is_due_ REVERIE_GUARDED_BY(mutex_);
  std::shared_ptr<const ArenaView> view_ REVERIE_GUARDED_BY(mutex_);
  std::vector<ArenaRange> returns_ REVERIE_GUARDED_BY(mutex_);
  std::size_t return_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_over_ REVERIE_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_returns_{false};
};

}  // namespace reverie
