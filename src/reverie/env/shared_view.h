// The words and rows of a pool's shared memory, by name.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "reverie/env/shared_blocks.h"
#include "reverie/env/shared_layout.h"

namespace reverie {

// A layout and the memory that it describes, which must outlive it. Copies view the same memory.
class SharedView {
 public:
  // REQUIRES: memory.size() >= layout.size_bytes(), aligned to a page, and zero when first viewed.
  SharedView(SharedLayout layout, std::span<std::byte> memory)
      : layout_(std::move(layout)), base_(memory.data()) {
    REVERIE_CHECK(memory.size() >= layout_.size_bytes());
  }

  const SharedLayout& layout() const { return layout_; }
  const PoolShape& shape() const { return layout_.shape(); }

  WorkerBlock& worker(std::size_t worker) const {
    return *reinterpret_cast<WorkerBlock*>(base_ + layout_.worker_block(worker));
  }
  PoolCommand& command(std::size_t worker, std::uint32_t position) const {
    auto* const queue =
        reinterpret_cast<PoolCommand*>(base_ + layout_.worker_block(worker) + sizeof(WorkerBlock));
    return queue[position & (layout_.queue_length() - 1)];
  }
  // An environment that a worker has made ready.
  std::uint32_t& ready(std::size_t worker, std::uint32_t position) const {
    auto* const list = reinterpret_cast<std::uint32_t*>(
        base_ + layout_.worker_block(worker) + sizeof(WorkerBlock) +
        layout_.queue_length() * sizeof(PoolCommand));
    return list[position & (layout_.queue_length() - 1)];
  }
  BatchBlock& batch(std::size_t batch) const {
    return *reinterpret_cast<BatchBlock*>(base_ + layout_.batch(batch).block);
  }
  // The latest command of the batch that a worker has finished.
  std::atomic<std::uint32_t>& done(std::size_t batch, std::size_t worker) const {
    auto* const words = reinterpret_cast<std::atomic<std::uint32_t>*>(
        base_ + layout_.batch(batch).block + sizeof(BatchBlock));
    return words[worker];
  }

  std::byte* row(const SharedLayout::Column& column, std::size_t env) const {
    return base_ + column.offset + env * column.row_bytes;
  }
  float& reward(std::size_t batch, std::size_t env) const {
    return *reinterpret_cast<float*>(row(layout_.batch(batch).rewards, env));
  }
  bool& terminated(std::size_t batch, std::size_t env) const {
    return *reinterpret_cast<bool*>(row(layout_.batch(batch).terminated, env));
  }
  bool& truncated(std::size_t batch, std::size_t env) const {
    return *reinterpret_cast<bool*>(row(layout_.batch(batch).truncated, env));
  }
  // The sequence number of the last command for the whole batch whose row is complete.
  std::atomic<std::uint32_t>& completed(std::size_t batch, std::size_t env) const {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(row(layout_.batch(batch).completed, env));
  }
  EnvState state(std::size_t batch, std::size_t env) const {
    return static_cast<EnvState>(std::atomic_ref(state_byte(batch, env)).load());
  }
  void set_state(std::size_t batch, std::size_t env, EnvState state) const {
    std::atomic_ref(state_byte(batch, env)).store(static_cast<std::uint8_t>(state));
  }

 private:
  std::uint8_t& state_byte(std::size_t batch, std::size_t env) const {
    return *reinterpret_cast<std::uint8_t*>(row(layout_.batch(batch).states, env));
  }

  SharedLayout layout_;
  std::byte* base_;
};

}  // namespace reverie
