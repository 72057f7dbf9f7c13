// ReplayBatchLayout: the arrays of a batch of a replay buffer, and their order.
//
//     obs..., action..., reward, next_obs..., terminated, discount, (mask,) weights, tickets,
//     (hindsight)
//
// Each leaf of observations and of actions is one array, `[B, ...]`, or `[B, T, ...]` if items are
// sequences.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/tensor.h"
#include "reverie/transitions/replay_buffer.h"

namespace reverie {

// How the columns of a buffer form nests: texts that the library passes on unchanged.
struct ReplayStructures {
  std::string obs;
  std::string action;
  // Columns that the user has added. They are stored with the action, whose nest is then a dict of
  // the action itself, by its name, and of these.
  std::vector<std::string> extra = {};

  friend bool operator==(const ReplayStructures&, const ReplayStructures&) = default;
};

class ReplayBatchLayout {
 public:
  // For `count` items of a buffer of that plan.
  ReplayBatchLayout(const TransitionPlan& plan, std::size_t count);

  std::size_t count() const { return count_; }
  std::size_t obs_count() const { return obs_count_; }  // leaves
  std::size_t action_count() const { return action_count_; }
  bool has_mask() const { return has_mask_; }
  bool has_hindsight() const { return has_hindsight_; }
  // The bytes of all arrays together.
  std::size_t size_bytes() const { return size_bytes_; }
  // One per array. The names are for messages: "obs", or "obs/position".
  std::span<const TensorSpec> specs() const { return specs_; }

  // New memory for each array.
  Result<std::vector<Buffer>> allocate(Allocator& allocator) const;
  // The targets for sampling into the arrays at `places`, which must outlive them.
  ReplayBufferTargets targets(std::span<std::byte* const> places) const;

 private:
  std::size_t count_;
  std::size_t obs_count_;
  std::size_t action_count_;
  bool has_mask_;
  bool has_hindsight_;
  std::size_t size_bytes_ = 0;
  std::vector<TensorSpec> specs_;
};

}  // namespace reverie
