// ByteAccount: how many bytes of chunks the items of one owner keep alive.
//
// A chunk may shrink while it is counted, when its rows are compressed. So a chunk remembers what
// it was charged (Chunk::charge) and corrects the accounts that count it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "reverie/base/ref.h"

namespace reverie {

class Chunk;

// Thread-safe.
class ByteAccount final : public RefCounted<ByteAccount> {
 public:
  std::int64_t bytes() const { return bytes_.load(std::memory_order_seq_cst); }
  void add(std::int64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_seq_cst); }

  // Called, under no lock, by the thread that shrank a chunk, after the chunk's bytes have moved.
  // Set it before the first chunk.
  void set_on_shrunk(std::function<void(const Chunk&)> on_shrunk) {
    on_shrunk_ = std::move(on_shrunk);
  }
  void note_shrunk(const Chunk& chunk) const {
    if (on_shrunk_) on_shrunk_(chunk);
  }

 private:
  friend class RefCounted<ByteAccount>;
  ~ByteAccount() = default;

  std::atomic<std::int64_t> bytes_{0};
  std::function<void(const Chunk&)> on_shrunk_;
};

}  // namespace reverie
