// Where everything of a pool of environments lies in the memory that its processes share.
//
//     header | worker blocks | batch blocks | batch 0's arrays | batch 1's arrays | ...
//
//     one batch of B environments:
//       actions [B, ...]   rewards [B]   terminated [B]   truncated [B]   states [B]
//       info columns [B, ...]   observation columns [B, ...]   final observation columns [B, ...]
//
// A function of the shape alone: the owner and each worker work it out for themselves, and compare
// its size. An array begins at a cache line, one of 4 KiB or more at a page. There is no bound on
// the size of an observation but the memory there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

// What a pool steps: `batch_count` batches of `env_count` environments, dealt out to `worker_count`
// workers. All columns are of fixed size.
struct PoolShape {
  std::vector<TensorSpec> observation;
  TensorSpec action;
  std::vector<TensorSpec> info;
  std::size_t env_count = 1;  // of one batch
  std::size_t batch_count = 1;
  std::size_t worker_count = 1;
};

// The environments that a worker has, of every batch: [begin, end).
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
    std::vector<Column> info;
    std::vector<Column> observation;
    std::vector<Column> final_observation;
  };

  // INVALID_ARGUMENT for a shape without an environment or a worker, with more workers than
  // environments, with a column of unknown extents or of text, or of more bytes than there can be.
  static Result<SharedLayout> make(PoolShape shape);

  const PoolShape& shape() const { return shape_; }
  std::size_t size_bytes() const { return size_bytes_; }
  std::size_t worker_block(std::size_t worker) const { return worker_blocks_[worker]; }
  const Batch& batch(std::size_t batch) const { return batches_[batch]; }
  EnvRange range_of(std::size_t worker) const;
  std::size_t worker_of(std::size_t env) const;
  // Entries of a worker's queue of commands, a power of two: a step and a reset of each batch, or
  // of each environment, and the order to stop.
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
