// Tested in shared_pool_test.cc.
#include "reverie/env/shared_layout.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>

#include "reverie/env/shared_blocks.h"

namespace reverie {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSizeMax = std::size_t{1} << 46;  // 64 TiB: beyond any machine
constexpr std::size_t kCountMax = std::size_t{1} << 20;

// Allocates offsets. After a request that does not fit, every later one fails too.
class Space {
 public:
  std::size_t take(std::size_t size_bytes) {
    const std::size_t unit = size_bytes >= kPage ? kPage : kLine;
    if (size_bytes > kSizeMax || end_ > kSizeMax) {
      end_ = kSizeMax + 1;
      return 0;
    }
    const std::size_t begin = (end_ + unit - 1) / unit * unit;
    end_ = begin + size_bytes;
    return begin;
  }
  SharedLayout::Column column(std::size_t rows, std::size_t row_bytes) {
    std::size_t size_bytes = 0;
    if (__builtin_mul_overflow(rows, row_bytes, &size_bytes)) size_bytes = kSizeMax + 1;
    return {take(size_bytes), row_bytes};
  }
  std::size_t end() const { return end_; }
  bool is_full() const { return end_ > kSizeMax; }

 private:
  std::size_t end_ = 0;
};

Result<std::size_t> row_bytes(const TensorSpec& spec) {
  const std::optional<std::size_t> elements = checked_element_count(spec.shape);
  if (has_variable_size(spec.dtype) || !elements) {
    return invalid_argument(
        "column {} cannot be in shared memory: give it a number type and extents >= 0",
        spec_text(spec));
  }
  return *elements * dtype_size_bytes(spec.dtype);
}

Result<std::vector<std::size_t>> row_bytes(const std::vector<TensorSpec>& specs) {
  std::vector<std::size_t> sizes;
  for (const TensorSpec& spec : specs) {
    REVERIE_ASSIGN_OR_RETURN(const std::size_t size, row_bytes(spec));
    sizes.push_back(size);
  }
  return sizes;
}

Status check(const PoolShape& shape) {
  if (shape.env_count < 1 || shape.env_count > kCountMax) {
    return invalid_argument("num_envs is {}; it must be between 1 and {}", shape.env_count,
                            kCountMax);
  }
  if (shape.batch_count < 1 || shape.batch_count > kCountMax) {
    return invalid_argument("num_batches is {}; it must be between 1 and {}", shape.batch_count,
                            kCountMax);
  }
  if (shape.worker_count < 1 || shape.worker_count > shape.env_count) {
    return invalid_argument("num_workers is {}; it must be between 1 and num_envs, which is {}",
                            shape.worker_count, shape.env_count);
  }
  return {};
}

}  // namespace

Result<SharedLayout> SharedLayout::make(PoolShape shape) {
  REVERIE_RETURN_IF_ERROR(check(shape));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t action_bytes, row_bytes(shape.action));
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::size_t> observation_bytes,
                           row_bytes(shape.observation));
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::size_t> info_bytes, row_bytes(shape.info));

  SharedLayout layout;
  layout.shape_ = std::move(shape);
  const PoolShape& made = layout.shape_;
  const std::size_t rows = made.env_count;
  layout.queue_length_ =
      std::bit_ceil(2 * std::max(made.batch_count, layout.range_of(0).count()) + 2);
  Space space;
  for (std::size_t worker = 0; worker < made.worker_count; ++worker) {
    layout.worker_blocks_.push_back(space.take(worker_block_bytes(layout.queue_length_)));
  }
  for (std::size_t i = 0; i < made.batch_count; ++i) {
    Batch& batch = layout.batches_.emplace_back();
    batch.block = space.take(batch_block_bytes(made.worker_count));
    batch.actions = space.column(rows, action_bytes);
    batch.rewards = space.column(rows, sizeof(float));
    batch.terminated = space.column(rows, 1);
    batch.truncated = space.column(rows, 1);
    batch.states = space.column(rows, 1);
    batch.completed = space.column(rows, sizeof(std::atomic<std::uint32_t>));
    for (const std::size_t size : info_bytes) batch.info.push_back(space.column(rows, size));
    for (const std::size_t size : observation_bytes) {
      batch.observation.push_back(space.column(rows, size));
      batch.final_observation.push_back(space.column(rows, size));
    }
  }
  if (space.is_full()) {
    return invalid_argument(
        "{} batches of {} environments take more than {} TiB of shared memory; take fewer",
        made.batch_count, made.env_count, kSizeMax >> 40);
  }
  layout.size_bytes_ = space.end();
  return layout;
}

EnvRange SharedLayout::range_of(std::size_t worker) const {
  // If the environments cannot be divided evenly, the first workers have one more.
  const std::size_t each = shape_.env_count / shape_.worker_count;
  const std::size_t more = shape_.env_count % shape_.worker_count;
  const std::size_t begin = worker * each + std::min(worker, more);
  return {begin, begin + each + (worker < more ? 1 : 0)};
}

std::size_t SharedLayout::worker_of(std::size_t env) const {
  const std::size_t each = shape_.env_count / shape_.worker_count;
  const std::size_t more = shape_.env_count % shape_.worker_count;
  const std::size_t in_larger = more * (each + 1);
  return env < in_larger ? env / (each + 1) : more + (env - in_larger) / each;
}

}  // namespace reverie
