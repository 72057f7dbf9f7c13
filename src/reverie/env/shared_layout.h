// The layout of the memory that the processes of a pool of environments share.
//
//     header | worker blocks | batch blocks | batch 0's arrays | batch 1's arrays | ...
//
//     one batch of B environments:
//       actions [B, ...]   rewards [B]   terminated [B]   truncated [B]   states [B]
//       completed [B]   info columns [B, ...]
//       observation columns [B, ...]   final observation columns [B, ...]
//
// It depends only on the shape: the owner and each worker compute it separately, and compare its
// size. An array begins at a cache line, one of 4 KiB or more at a page. The size of an observation
// is limited only by memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

// What a pool steps: `batch_count` batches of `env_count` environments, divided among
// `worker_count` workers. All columns have fixed size.
struct PoolShape {
  std::vector<TensorSpec> observation;
  TensorSpec action;
  std::vector<TensorSpec> info;
  std::size_t env_count = 1;  // of one batch
  std::size_t batch_count = 1;
  std::size_t worker_count = 1;
};

// The environments of a worker, in every batch: [begin, end).
struct EnvRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t count() const { return end - begin; }
};

// Immutable.
class SharedLayout {
 public:
  // One column of a batch, row after row.
  struct Column {
    std::size_t offset = 0;
    std::size_t row_bytes = 0;
  };
  // The arrays of one batch.
  struct Batch {
    std::size_t block = 0;
    Column actions;
    Column rewards;
    Column terminated;
    Column truncated;
    Column states;
    Column completed;  // the last step or reset of the batch whose row is written
    std::vector<Column> info;
    std::vector<Column> observation;
    std::vector<Column> final_observation;
  };

  // INVALID_ARGUMENT for a shape without an environment or a worker, with more workers than
  // environments, with a column of unknown extents or of text, or with too many bytes.
  static Result<SharedLayout> make(PoolShape shape);

  const PoolShape& shape() const { return shape_; }
  std::size_t size_bytes() const { return size_bytes_; }
  std::size_t worker_block(std::size_t worker) const { return worker_blocks_[worker]; }
  const Batch& batch(std::size_t batch) const { return batches_[batch]; }
  EnvRange range_of(std::size_t worker) const;
  std::size_t worker_of(std::size_t env) const;
  // The capacity of a worker's queue of commands, a power of two: a step and a reset of each batch,
  // or of each environment, and the command to stop.
  std::size_t queue_length() const { return queue_length_; }

 private:
  SharedLayout() = default;

  PoolShape shape_;
  std::size_t size_bytes_ = 0;
  std::size_t queue_length_ = 0;
  std::vector<std::size_t> worker_blocks_;
  std::vector<Batch> batches_;
};

}  // namespace reverie
