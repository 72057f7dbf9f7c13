#include "reverie/transitions/replay_batch_layout.h"

#include <string>
#include <utility>

namespace reverie {
namespace {

std::size_t array_bytes(const TensorSpec& spec) {
  return static_cast<std::size_t>(element_count(spec.shape)) * dtype_size_bytes(spec.dtype);
}

}  // namespace

ReplayBatchLayout::ReplayBatchLayout(const TransitionPlan& plan, std::size_t count)
    : count_(count),
      obs_count_(plan.obs().size()),
      action_count_(plan.action().size()),
      has_mask_(plan.options().has_sequences()),
      has_hindsight_(plan.options().hindsight.has_value()) {
  const TransitionOptions& options = plan.options();
  const auto item_count = static_cast<std::int64_t>(count);
  const Shape items{item_count};
  const Shape steps =
      options.has_sequences() ? Shape{item_count, std::int64_t{options.steps_max()}} : items;
  const auto add = [&](std::string name, DType dtype, Shape shape) {
    specs_.push_back({std::move(name), dtype, std::move(shape)});
    size_bytes_ += array_bytes(specs_.back());
  };
  const auto add_leaves = [&](const std::string& name, std::span<const TensorSpec> leaves,
                              bool has_stack) {
    for (const TensorSpec& leaf : leaves) {
      Shape shape = steps;
      if (has_stack && options.frame_stack > 1) shape.push_back(options.frame_stack);
      shape.insert(shape.end(), leaf.shape.begin(), leaf.shape.end());
      add(leaf.name.empty() ? name : name + "/" + leaf.name, leaf.dtype, std::move(shape));
    }
  };
  add_leaves("obs", plan.obs(), true);
  add_leaves("action", plan.action(), false);
  add("reward", DType::kFloat32, steps);
  add_leaves("next_obs", plan.obs(), true);
  add("terminated", DType::kBool, steps);
  add("discount", DType::kFloat32, steps);
  if (has_mask_) add("mask", DType::kBool, steps);
  add("weights", DType::kFloat32, items);
  add("tickets", DType::kUInt64, items);
  if (has_hindsight_) add("hindsight", DType::kBool, items);
}

Result<std::vector<Buffer>> ReplayBatchLayout::allocate(Allocator& allocator) const {
  std::vector<Buffer> buffers;
  buffers.reserve(specs_.size());
  for (const TensorSpec& spec : specs_) {
    REVERIE_ASSIGN_OR_RETURN(Buffer made, allocator.allocate(array_bytes(spec)));
    buffers.push_back(std::move(made));
  }
  return buffers;
}

ReplayBufferTargets ReplayBatchLayout::targets(std::span<std::byte* const> places) const {
  REVERIE_CHECK(places.size() == specs_.size());
  ReplayBufferTargets targets;
  TransitionTargets& to = targets.transitions;
  const auto take = [&](std::size_t count) {
    const auto taken = places.first(count);
    places = places.subspan(count);
    return taken;
  };
  to.obs = take(obs_count_);
  to.action = take(action_count_);
  to.reward = reinterpret_cast<float*>(take(1)[0]);
  to.next_obs = take(obs_count_);
  to.terminated = reinterpret_cast<std::uint8_t*>(take(1)[0]);
  to.discount = reinterpret_cast<float*>(take(1)[0]);
  if (has_mask_) to.mask = reinterpret_cast<std::uint8_t*>(take(1)[0]);
  targets.weights = reinterpret_cast<float*>(take(1)[0]);
  targets.tickets = reinterpret_cast<std::uint64_t*>(take(1)[0]);
  if (has_hindsight_) to.hindsight = reinterpret_cast<std::uint8_t*>(take(1)[0]);
  return targets;
}

}  // namespace reverie
