// Tested in tests/integration/replay_buffer_test.cc and python/reverie/replay_buffer_test.py.
#include "reverie/transitions/transition_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reverie/gather/copy_row.h"
#include "reverie/tensor/shape.h"
#include "reverie/transitions/hindsight.h"

namespace reverie {
namespace {

const std::byte* row_of(const TensorView& leaf, std::size_t env, std::size_t size) {
  return leaf.bytes.data() + env * size;
}

// A memcmp that is inlined for the sizes of most rows.
bool is_same_row(const std::byte* a, const std::byte* b, std::size_t size) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (size < kWord || size > 64) return size == 0 || std::memcmp(a, b, size) == 0;
  const auto difference = [&](std::size_t at) {
    std::uint64_t words[2];
    std::memcpy(&words[0], a + at, kWord);
    std::memcpy(&words[1], b + at, kWord);
    return words[0] ^ words[1];
  };
  std::uint64_t all = difference(size - kWord);
  for (std::size_t at = 0; at + kWord < size; at += kWord) all |= difference(at);
  return all == 0;
}

// Floating-point numbers by their bits: the largest with no sign is infinity's, beyond is NaN.
template <typename Bits>
bool are_equal_floats(const std::byte* a, const std::byte* b, std::size_t size, Bits infinity) {
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  for (std::size_t at = 0; at + sizeof(Bits) <= size; at += sizeof(Bits)) {
    Bits x = 0;
    Bits y = 0;
    std::memcpy(&x, a + at, sizeof(Bits));
    std::memcpy(&y, b + at, sizeof(Bits));
    if (x == y) continue;
    x = static_cast<Bits>(x & ~kSign);
    y = static_cast<Bits>(y & ~kSign);
    const bool are_zeros = x == 0 && y == 0;
    const bool are_nans = x > infinity && y > infinity;
    if (!are_zeros && !are_nans) return false;
  }
  return true;
}

// Whether rows of different bits still have the same values.
bool have_equal_values(DType dtype, const std::byte* a, const std::byte* b, std::size_t size) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      return are_equal_floats<std::uint32_t>(a, b, size, 0x7f800000u);
    case DType::kFloat64:
    case DType::kComplex128:
      return are_equal_floats<std::uint64_t>(a, b, size, 0x7ff0000000000000u);
    case DType::kFloat16:
      return are_equal_floats<std::uint16_t>(a, b, size, 0x7c00u);
    case DType::kBFloat16:
      return are_equal_floats<std::uint16_t>(a, b, size, 0x7f80u);
    default:
      return false;
  }
}

}  // namespace

TransitionWriter::TransitionWriter(TransitionPlan& plan, Allocator& allocator, std::uint64_t seed,
                                   HindsightIndex* hindsight)
    : plan_(plan),
      allocator_(allocator),
      hindsight_(hindsight),
      packer_(plan.make_packer()),
      is_packed_(plan.is_packed()),
      chunk_shift_(plan.chunk_shift()),
      chunk_rows_(plan.chunk_rows()),
      reward_(leaf_at(plan.reward_place())),
      flags_(leaf_at(plan.flags_place())),
      next_key_(seed),
      streams_(plan.options().env_count) {
  for (const LeafPlace& place : plan.obs_places()) obs_.push_back(leaf_at(place));
  for (const LeafPlace& place : plan.action_places()) action_.push_back(leaf_at(place));
  const TransitionOptions& options = plan.options();
  if (options.n_step == 1 && options.frame_stack == 1 && !options.has_sequences() &&
      hindsight_ == nullptr) {
    step_layout_ = plan.layout({0, 0, 1}, 1).get();
  }
}

void TransitionWriter::clear() {
  for (Stream& stream : streams_) stream = Stream();
  if (hindsight_ != nullptr) hindsight_->clear();
}

// --- Checks ------------------------------------------------------------------------------------

Status TransitionWriter::check_leaves(const char* what, std::span<const TensorView> leaves,
                                      std::span<const TensorSpec> specs, bool has_env_axis) const {
  REVERIE_CHECK(leaves.size() == specs.size());
  const std::size_t outer = has_env_axis ? 1 : 0;
  const auto env_count = static_cast<std::int64_t>(streams_.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const TensorView& leaf = leaves[i];
    const TensorSpec& spec = specs[i];
    const bool has_envs = outer == 0 || (!leaf.shape.empty() && leaf.shape[0] == env_count);
    if (leaf.dtype == spec.dtype && has_envs &&
        std::ranges::equal(leaf.shape.subspan(std::min(outer, leaf.shape.size())), spec.shape))
        [[likely]] {
      continue;
    }
    Shape expected = spec.shape;
    if (outer == 1) expected.insert(expected.begin(), env_count);
    return invalid_argument(
        "{} is {} {}, but the first step had {} {}; convert it, or use a separate buffer",
        spec.name.empty() ? std::string(what) : format("{} column '{}'", what, spec.name),
        dtype_name(leaf.dtype), shape_text(leaf.shape), dtype_name(spec.dtype),
        shape_text(expected));
  }
  return {};
}

Status TransitionWriter::check(const StepArrays& step) const {
  const std::size_t env_count = streams_.size();
  const auto check_size = [&](const char* what, std::size_t size) -> Status {
    if (size == env_count) [[likely]] {
      return {};
    }
    return invalid_argument("{} has {} elements, but the buffer was made for num_envs={}", what,
                            size, env_count);
  };
  REVERIE_RETURN_IF_ERROR(check_size("reward", step.reward.size()));
  REVERIE_RETURN_IF_ERROR(check_size("terminated", step.terminated.size()));
  REVERIE_RETURN_IF_ERROR(check_size("truncated", step.truncated.size()));
  if (step.mask) REVERIE_RETURN_IF_ERROR(check_size("mask", step.mask->size()));
  REVERIE_RETURN_IF_ERROR(check_leaves("obs", step.obs, plan_.obs(), step.has_env_axis));
  REVERIE_RETURN_IF_ERROR(check_leaves("action", step.action, plan_.action(), step.has_env_axis));
  return check_leaves("next_obs", step.next_obs, plan_.obs(), step.has_env_axis);
}

// --- Rows --------------------------------------------------------------------------------------

Status TransitionWriter::reserve(Stream& stream, std::uint32_t env) {
  if (is_packed_) pack_full_chunks(stream);
  drop_old_chunks(stream);
  // A cut ends the last step's row and begins another; the observation after it needs one more.
  const std::uint64_t last = stream.row + 2;
  while (chunk_number(last) >= stream.first_chunk + stream.chunks.size()) {
    // Streams do not count episodes in the table: a chunk may contain many.
    const ChunkOrigin origin{next_key_++, env, 0};
    const bool is_compressible = is_packed_ && packer_.wants(*plan_.schema());
    REVERIE_ASSIGN_OR_RETURN(
        Ref<Chunk> chunk,
        Chunk::open(plan_.schema(), origin, chunk_rows_, 0, allocator_,
                    is_compressible ? Chunk::Kind::kCompressible : Chunk::Kind::kRaw));
    const std::uint64_t number = stream.first_chunk + stream.chunks.size();
    if (hindsight_ != nullptr) hindsight_->add_chunk(env, number, chunk);
    stream.chunks.push_back(std::move(chunk));
  }
  // Older chunks will have to be dropped later.
  stream.room_end = stream.chunks.size() == 1 ? (stream.first_chunk + 1) << chunk_shift_ : 0;
  return {};
}

[[gnu::always_inline]] inline TransitionWriter::Row TransitionWriter::row_at(
    Stream& stream, std::uint64_t row) const {
  if (chunk_number(row) != stream.at_chunk) {
    stream.at_chunk = chunk_number(row);
    stream.at = &chunk_of(stream, row);
    // The chunk is open and this is its writer.
    stream.at_begin = const_cast<std::byte*>(stream.at->begin());
  }
  return {stream.at_begin, row_in_chunk(row)};
}

[[gnu::always_inline]] inline void TransitionWriter::set_obs(Row row,
                                                             std::span<const TensorView> obs,
                                                             std::size_t env) const {
  for (std::size_t i = 0; i < obs.size(); ++i) {
    copy_row(row.at(obs_[i]), row_of(obs[i], env, obs_[i].size), obs_[i].size);
  }
}

[[gnu::always_inline]] inline void TransitionWriter::set_action(Row row, const StepArrays& step,
                                                                std::size_t env,
                                                                std::uint8_t flags) const {
  for (std::size_t i = 0; i < step.action.size(); ++i) {
    copy_row(row.at(action_[i]), row_of(step.action[i], env, action_[i].size), action_[i].size);
  }
  std::memcpy(row.at(reward_), &step.reward[env], sizeof(float));
  std::memcpy(row.at(flags_), &flags, sizeof(flags));
}

[[gnu::always_inline]] inline bool TransitionWriter::has_obs(Row row,
                                                             std::span<const TensorView> obs,
                                                             std::size_t env) const {
  bool is_same = true;
  for (std::size_t i = 0; i < obs.size() && is_same; ++i) {
    const std::byte* const announced = row.at(obs_[i]);
    const std::byte* const given = row_of(obs[i], env, obs_[i].size);
    is_same = is_same_row(announced, given, obs_[i].size) ||
              have_equal_values(obs[i].dtype, announced, given, obs_[i].size);
  }
  return is_same;
}

void TransitionWriter::publish(Stream& stream, std::uint64_t row_end) {
  // The rows added by one step lie in two chunks at most.
  const std::uint64_t last = row_end - 1;
  const auto in_last = row_in_chunk(last) + 1;
  chunk_of(stream, last).publish(in_last);
  if (chunk_number(last) > stream.first_chunk) {
    Chunk& before = *stream.chunks[chunk_number(last) - stream.first_chunk - 1];
    if (before.rows() < chunk_rows_) before.publish(chunk_rows_);
  }
}

void TransitionWriter::pack_full_chunks(Stream& stream) {
  stream.packed_end = std::max(stream.packed_end, stream.first_chunk);
  for (; stream.packed_end < chunk_number(stream.row); ++stream.packed_end) {
    if (stream.packed_end >= stream.first_chunk + stream.chunks.size()) return;
    Chunk& chunk = *stream.chunks[stream.packed_end - stream.first_chunk];
    if (chunk.is_compressible() && chunk.is_raw()) {
      packer_.pack(chunk, Allocator::heap());
    } else {
      packer_.note_unpacked();
    }
  }
}

void TransitionWriter::drop_old_chunks(Stream& stream) {
  const TransitionOptions& options = plan_.options();
  const std::uint64_t reach = options.frame_stack - 1 + options.burn_in;
  const std::uint64_t oldest =
      std::max(stream.episode_begin, stream.item_begin - std::min(stream.item_begin, reach));
  while (chunk_number(oldest) > stream.first_chunk) {
    stream.chunks.erase(stream.chunks.begin());
    ++stream.first_chunk;
  }
}

// --- Items -------------------------------------------------------------------------------------

void TransitionWriter::begin_episode(Stream& stream, std::uint64_t row) {
  stream.row = row;
  stream.is_open = false;
  stream.episode_begin = row;
  stream.item_begin = row;
}

// Steps [begin, end) count.
void TransitionWriter::add_item(Stream& stream, std::uint64_t begin, std::uint64_t end,
                                std::vector<TrajectoryView>& items) {
  const TransitionOptions& options = plan_.options();
  const std::uint64_t before = begin - stream.episode_begin;
  const auto burn_in = static_cast<std::uint16_t>(std::min<std::uint64_t>(before, options.burn_in));
  const auto history = static_cast<std::uint16_t>(
      std::min<std::uint64_t>(before - burn_in, options.frame_stack - 1));
  const ItemShape shape{history, burn_in, static_cast<std::uint32_t>(end - begin) + burn_in};
  const std::uint64_t first = begin - burn_in - history;
  const auto offset = row_in_chunk(first);
  const std::uint32_t rows = shape.rows();
  const std::uint32_t in_first = std::min(rows, chunk_rows_ - offset);
  // A chunk has room for the longest item, so there are two pieces at most.
  TrajectoryView& item = items.emplace_back();
  const Piece piece{&chunk_of(stream, first), offset, in_first};
  if (in_first == rows) [[likely]] {
    item.layout = plan_.layout(shape, 1).get();
    item.one = piece;
    return;
  }
  const Piece rest{&chunk_of(stream, first + in_first), 0, rows - in_first};
  item.layout = plan_.layout(shape, 2).get();
  item.many = split_.emplace_back(std::array{piece, rest}).data();
}

void TransitionWriter::add_whole_items(Stream& stream, std::uint64_t end,
                                       std::vector<TrajectoryView>& items) {
  const TransitionOptions& options = plan_.options();
  const std::uint64_t length = options.has_sequences() ? options.sequence_length : options.n_step;
  if (stream.item_begin + length > end) return;
  add_item(stream, stream.item_begin, end, items);
  stream.item_begin += options.has_sequences() ? options.period : 1;
}

void TransitionWriter::add_cut_items(Stream& stream, std::uint64_t end,
                                     std::vector<TrajectoryView>& items) {
  const TransitionOptions& options = plan_.options();
  if (!options.has_sequences()) {
    for (; stream.item_begin < end; ++stream.item_begin) {
      add_item(stream, stream.item_begin, end, items);
    }
    return;
  }
  // The last complete sequence ended here; a shorter one covers later steps.
  const bool is_first = stream.item_begin == stream.episode_begin;
  const std::uint64_t reached =
      is_first ? stream.item_begin : stream.item_begin - options.period + options.sequence_length;
  if (options.pad_sequences && reached < end) add_item(stream, stream.item_begin, end, items);
}

// --- A step ------------------------------------------------------------------------------------

[[gnu::always_inline]] inline bool TransitionWriter::append_within(
    Stream& stream, const StepArrays& step, std::size_t env,
    std::vector<TrajectoryView>& items) const {
  const std::uint32_t number = row_in_chunk(stream.row);
  const bool is_over = (step.terminated[env] | step.truncated[env]) != 0;
  if (step_layout_ == nullptr || !stream.is_open || is_over || number + 1 >= chunk_rows_) {
    return false;
  }
  const Row here = row_at(stream, stream.row);
  if (!has_obs(here, step.obs, env)) return false;
  set_action(here, step, env, 0);
  set_obs({here.begin, number + 1}, step.next_obs, env);
  stream.at->publish(number + 1);
  TrajectoryView& item = items.emplace_back();
  item.layout = step_layout_;
  item.one = {stream.at, number, 2};
  stream.item_begin = ++stream.row;
  return true;
}

[[gnu::always_inline]] inline void TransitionWriter::prefetch(Stream& stream) const {
  __builtin_prefetch(&chunk_of(stream, stream.row), 1);
  const Row here = row_at(stream, stream.row);
  __builtin_prefetch(here.at(reward_), 1);
  if (here.number + 1 < chunk_rows_) {
    __builtin_prefetch(Row{here.begin, here.number + 1}.at(reward_), 1);
  }
}

Status TransitionWriter::append(const StepArrays& step, std::vector<TrajectoryView>& items) {
  REVERIE_RETURN_IF_ERROR(check(step));
  split_.clear();
  for (std::size_t env = 0; env < streams_.size(); ++env) {
    Stream& stream = streams_[env];
    if (stream.row + 2 >= stream.room_end) [[unlikely]] {
      REVERIE_RETURN_IF_ERROR(reserve(stream, static_cast<std::uint32_t>(env)));
    }
    prefetch(stream);
  }
  for (std::size_t env = 0; env < streams_.size(); ++env) {
    if (step.mask && (*step.mask)[env] == 0) continue;
    if (append_within(streams_[env], step, env, items)) [[likely]] {
      ++counts_.steps;
    } else {
      append_one(streams_[env], step, env, items);
    }
  }
  return {};
}

void TransitionWriter::append_one(Stream& stream, const StepArrays& step, std::size_t env,
                                  std::vector<TrajectoryView>& items) {
  if (stream.is_open && !has_obs(row_at(stream, stream.row), step.obs, env)) {
    add_cut_items(stream, stream.row, items);
    begin_episode(stream, stream.row + 1);
    ++counts_.cuts;
  }
  const std::uint64_t row = stream.row;
  const Row here = row_at(stream, row);
  if (!stream.is_open) set_obs(here, step.obs, env);
  const bool is_terminated = step.terminated[env] != 0;
  const bool is_truncated = step.truncated[env] != 0;
  const auto flags = static_cast<std::uint8_t>((is_terminated ? TransitionPlan::kTerminated : 0) |
                                               (is_truncated ? TransitionPlan::kTruncated : 0));
  set_action(here, step, env, flags);
  // A checkpoint may have stored the chunk with all of its rows before the last one had an action.
  if (here.number + 1 == chunk_rows_) chunk_of(stream, row).set_checkpoint_mark(0);
  set_obs(row_at(stream, row + 1), step.next_obs, env);
  const bool is_over = is_terminated || is_truncated;
  ++counts_.steps;
  counts_.episodes += is_over ? 1 : 0;
  publish(stream, row + (is_over ? 2 : 1));
  if (hindsight_ != nullptr) hindsight_->add_step(env, stream.episode_begin, row);

  add_whole_items(stream, row + 1, items);
  if (is_over) {
    add_cut_items(stream, row + 1, items);
    begin_episode(stream, row + 2);
  } else {
    stream.row = row + 1;
    stream.is_open = true;
  }
}

}  // namespace reverie
