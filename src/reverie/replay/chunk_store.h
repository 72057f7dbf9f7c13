// ChunkStore: accounts for a store's memory: how many bytes its items and their chunks take, and
// the bound.
//
// Chunks are held by reference counts and never looked up by key. What is shared is the account: a
// chunk is charged when the first item of the store refers to it and discharged with the last,
// whatever tables they are in. So data in several tables counts once. A chunk that is compressed
// meanwhile counts with its new size. An item counts in each table that has it. A table that is not
// keyed accounts for its items itself (TableCore::memory_bytes).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "reverie/record/byte_account.h"
#include "reverie/record/trajectory.h"
#include "reverie/replay/chunk_holders.h"

namespace reverie {

// Thread-safe.
class ChunkStore {
 public:
  explicit ChunkStore(std::optional<std::int64_t> max_bytes)
      : max_bytes_(max_bytes), account_(make_ref<ByteAccount>()) {}

  std::optional<std::int64_t> max_bytes() const { return max_bytes_; }
  std::int64_t used_bytes() const { return account_->bytes(); }
  // Called, under no lock, by the thread that shrank a counted chunk, after its bytes have moved.
  // Set it before the first chunk.
  void set_on_shrunk(std::function<void(const Chunk&)> on_shrunk) {
    account_->set_on_shrunk(std::move(on_shrunk));
  }

  // Whether an item that brings `bytes` more fits now.
  bool has_room(std::int64_t bytes) const {
    return !max_bytes_ || used_bytes() + bytes <= *max_bytes_;
  }
  // Memory of an item in a keyed table: its slot, its entry in the key map, its entries in two
  // selectors, and its pieces if there are several.
  static std::int64_t item_bytes(const TrajectoryView& trajectory);
  // The item's bytes, and those of its chunks that no item refers to yet, or of `all` its chunks.
  static std::int64_t new_bytes(const TrajectoryView& trajectory, bool all = false);

  // `is_keyed`: whether the item's own bytes count.
  void add(const TrajectoryView& trajectory, bool is_keyed);
  void remove(const TrajectoryView& trajectory, bool is_keyed);

  // The same for one chunk of a table that is not keyed and holds one share in the chunk for all of
  // its items: taken with the first item, returned to the caller with the last. add_shared() is
  // false, without effect, if another table holds the chunk in this way, or the chunk may be
  // compressed. Not thread-safe for one owner.
  bool add_shared(const Chunk& chunk, std::uint32_t owner) {
    if (chunk.is_compressible() || !chunk.claim(owner)) [[unlikely]] {
      return false;
    }
    if (chunk.add_owners_item()) [[unlikely]] {
      chunk.add_ref();
      if (chunk.add_item()) chunk.charge(*account_);
    }
    return true;
  }
  [[nodiscard]] Ref<const Chunk> remove_shared(const Chunk& chunk) {
    if (!chunk.remove_owners_item()) [[likely]] {
      return {};
    }
    if (chunk.remove_item()) chunk.discharge(*account_);
    return Ref<const Chunk>::adopt(&chunk);
  }

  // Set it before the first table; null if no table has a bound on memory.
  void set_holders(std::unique_ptr<ChunkHolders> holders) { holders_ = std::move(holders); }
  ChunkHolders* holders() const { return holders_.get(); }

  // Counts inserts that wait for room. A thread that frees bytes checks this afterwards.
  void add_waiter() { waiters_.fetch_add(1, std::memory_order_seq_cst); }
  void remove_waiter() { waiters_.fetch_sub(1, std::memory_order_seq_cst); }
  bool has_waiters() const { return waiters_.load(std::memory_order_seq_cst) > 0; }

 private:
  const std::optional<std::int64_t> max_bytes_;
  const Ref<ByteAccount> account_;
  std::unique_ptr<ChunkHolders> holders_;
  std::atomic<std::int64_t> waiters_{0};
};

}  // namespace reverie
