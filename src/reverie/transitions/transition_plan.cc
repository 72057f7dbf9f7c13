// Tested in tests/integration/replay_buffer_test.cc and python/reverie/replay_buffer_test.py.
#include "reverie/transitions/transition_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

namespace reverie {
namespace {

// A leaf of at least this size has its own column, so that the frames of a stack are contiguous.
constexpr std::size_t kLargeBytes = 512;
// Small rows share pages: an item's cost one miss of the address cache, not one for each column.
constexpr std::size_t kChunkBytes = 4096 - 64;  // including the heap's overhead
// An item over two chunks costs 48 bytes more, so few items should be.
constexpr std::uint64_t kItemsPerChunk = 16;
// For encoded chunks: a draw decodes all rows before the one that it wants, and the first row of a
// chunk has no earlier row to refer to.
constexpr std::uint64_t kPackedRows = 32;
constexpr std::uint64_t kPackedItemsPerChunk = 4;
// A chunk is freed with its last item, so at most this fraction of the table's rows is wasted.
constexpr std::uint64_t kChunksPerStream = 16;

std::size_t size_of(const TensorSpec& spec) {
  return static_cast<std::size_t>(element_count(spec.shape)) * dtype_size_bytes(spec.dtype);
}

Status check_leaves(std::span<const TensorSpec> leaves) {
  for (const TensorSpec& spec : leaves) {
    if (has_variable_size(spec.dtype)) {
      return invalid_argument("column '{}' holds {}; a replay buffer stores only arrays of numbers",
                              spec.name, dtype_name(spec.dtype));
    }
    if (size_of(spec) > std::numeric_limits<std::uint32_t>::max()) {
      return invalid_argument("a row of column '{}' has {} bytes; the bound is 4 GiB", spec.name,
                              size_of(spec));
    }
  }
  return {};
}

Status check_range(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return invalid_argument("{} is {}; it must be between {} and {}", name, value, least, most);
}

Status check_hindsight(const TransitionOptions& options) {
  if (options.n_step != 1 || options.frame_stack != 1 || options.has_sequences()) {
    return invalid_argument(
        "hindsight is for single steps, but n_step is {}, frame_stack {} and sequence_length {}; "
        "leave n_step and frame_stack at 1, and sequence_length out",
        options.n_step, options.frame_stack, options.sequence_length);
  }
  if (!(options.hindsight->share >= 0 && options.hindsight->share <= 1)) {
    return invalid_argument("hindsight's share is {}; it must be between 0 and 1",
                            options.hindsight->share);
  }
  return {};
}

}  // namespace

Status TransitionPlan::check(const TransitionOptions& options) {
  REVERIE_RETURN_IF_ERROR(
      check_range("capacity", options.capacity, 1, std::numeric_limits<std::uint32_t>::max() - 1));
  REVERIE_RETURN_IF_ERROR(check_range("num_envs", options.env_count, 1, 1 << 20));
  REVERIE_RETURN_IF_ERROR(check_range("frame_stack", options.frame_stack, 1, kStackMax));
  REVERIE_RETURN_IF_ERROR(check_range("n_step", options.n_step, 1, kStepsMax));
  if (!(options.gamma >= 0 && options.gamma <= 1)) {
    return invalid_argument("gamma is {}; it must be between 0 and 1", options.gamma);
  }
  if (options.hindsight) REVERIE_RETURN_IF_ERROR(check_hindsight(options));
  if (!options.has_sequences()) return {};
  if (options.n_step != 1) {
    return invalid_argument(
        "n_step is {} with sequences; leave it at 1, and sum the rewards of a "
        "sequence where they are used",
        options.n_step);
  }
  REVERIE_RETURN_IF_ERROR(
      check_range("sequence_length", options.sequence_length, 1, kStepsMax / 2));
  REVERIE_RETURN_IF_ERROR(check_range("burn_in", options.burn_in, 0, kStepsMax / 2));
  return check_range("period", options.period, 1, options.sequence_length);
}

Result<TransitionPlan> TransitionPlan::make(const TransitionOptions& options,
                                            std::vector<TensorSpec> obs,
                                            std::vector<TensorSpec> action) {
  REVERIE_RETURN_IF_ERROR(check(options));
  REVERIE_RETURN_IF_ERROR(check_leaves(obs));
  REVERIE_RETURN_IF_ERROR(check_leaves(action));
  TransitionPlan plan;
  plan.options_ = options;
  plan.obs_ = std::move(obs);
  plan.action_ = std::move(action);
  if (options.hindsight) REVERIE_RETURN_IF_ERROR(plan.find_goals());

  // Column 0 has the small leaves, an observation's first, so that the next row's observation
  // follows this row's action and reward.
  std::uint32_t small_bytes = 0;
  std::vector<TensorSpec> columns(1);
  const auto place = [&](std::size_t size, const TensorSpec* spec) -> LeafPlace {
    const auto bytes = static_cast<std::uint32_t>(size);
    if (spec != nullptr && size >= kLargeBytes) {
      columns.push_back(*spec);
      return {static_cast<std::uint16_t>(columns.size() - 1), 0, bytes};
    }
    const LeafPlace small{0, small_bytes, bytes};
    small_bytes += bytes;
    return small;
  };
  for (const TensorSpec& spec : plan.obs_) {
    plan.obs_places_.push_back(place(size_of(spec), &spec));
  }
  for (const TensorSpec& spec : plan.action_) {
    plan.action_places_.push_back(place(size_of(spec), &spec));
  }
  plan.reward_place_ = place(sizeof(float), nullptr);
  plan.flags_place_ = place(sizeof(std::uint8_t), nullptr);
  columns[0] = {"small", DType::kUInt8, {small_bytes}};
  plan.schema_ = make_ref<ChunkSchema>(std::move(columns));

  const std::uint64_t item_rows = std::uint64_t{options.frame_stack} + options.steps_max();
  const std::uint64_t step_bytes = std::max<std::uint64_t>(1, plan.schema_->step_bytes());
  const std::uint64_t wanted = plan.is_packed()
                                   ? std::max(kPackedRows, kPackedItemsPerChunk * item_rows)
                                   : std::max(kChunkBytes / step_bytes, kItemsPerChunk * item_rows);
  const std::uint64_t stream_rows =
      options.capacity * (options.has_sequences() ? options.period : 1) / options.env_count;
  const std::uint64_t most = std::max(stream_rows / kChunksPerStream, item_rows);
  const std::uint64_t chunk_rows =
      std::max(std::bit_ceil(item_rows), std::bit_floor(std::min(wanted, most)));
  plan.chunk_shift_ = static_cast<std::uint32_t>(std::countr_zero(chunk_rows));
  return plan;
}

ChunkPacker TransitionPlan::make_packer() const {
  std::vector<std::size_t> raw{0};
  if (options_.hindsight) raw.push_back(achieved_place().chunk_column);
  return ChunkPacker(options_.codec, std::move(raw));
}

Status TransitionPlan::find_goals() {
  const auto find = [&](const char* what, const std::string& name) -> Result<std::size_t> {
    std::string names;
    for (std::size_t i = 0; i < obs_.size(); ++i) {
      if (obs_[i].name == name) return i;
      names += (i == 0 ? "" : ", ") + (obs_[i].name.empty() ? "one array" : obs_[i].name);
    }
    return invalid_argument(
        "hindsight's {} is '{}', but an observation has {}; give add() dicts with that entry, or "
        "name another",
        what, name, names);
  };
  REVERIE_ASSIGN_OR_RETURN(achieved_leaf_, find("achieved", options_.hindsight->achieved));
  REVERIE_ASSIGN_OR_RETURN(goal_leaf_, find("desired", options_.hindsight->goal));
  const TensorSpec& achieved = obs_[achieved_leaf_];
  const TensorSpec& goal = obs_[goal_leaf_];
  if (achieved.dtype == goal.dtype && achieved.shape == goal.shape) return {};
  return invalid_argument(
      "'{}' is {} {} and '{}' {} {}; what was achieved takes the goal's place, so give both one "
      "type "
      "and shape",
      achieved.name, dtype_name(achieved.dtype), shape_text(achieved.shape), goal.name,
      dtype_name(goal.dtype), shape_text(goal.shape));
}

const Ref<const Layout>& TransitionPlan::other_layout(std::uint64_t packed,
                                                      std::uint32_t piece_count) {
  std::vector<Ref<const Layout>>& known = layouts_[packed];
  if (known.size() <= piece_count) known.resize(piece_count + 1);
  if (!known[piece_count]) {
    std::vector<LayoutColumn> columns;
    for (std::size_t i = 0; i < schema_->column_count(); ++i) {
      columns.push_back({schema_->column(i), static_cast<std::uint16_t>(i), 0,
                         static_cast<std::uint16_t>(piece_count), false});
    }
    known[piece_count] = make_ref<Layout>(std::move(columns), std::string(), packed);
  }
  last_ = {packed, piece_count, known[piece_count]};
  return last_.layout;
}

}  // namespace reverie
