// TransitionPlan: how a replay buffer's steps are laid out in memory, and which rows form an item.
//
//     row        [ obs | action | reward | flags ]       small columns side by side, and
//                [ frame ]                               each large one for itself
//
//     stream     row  4   5   6   7   8   9              one for each environment
//     item           [h   h | s   s | n]                 2 rows of history, 2 steps, the row after
//
// A row contains an observation and the action taken on it. The observation after a step is in the
// next row, so it is stored once; an episode that ends has one more row, for its last observation.
// An item is a run of rows: those that only stacks of frames reach back to (its history), its
// steps, and the row after them. Everything else in a batch is computed from these when it is
// gathered. With sequences, some first steps may be burn-in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "reverie/base/ref.h"
#include "reverie/base/status.h"
#include "reverie/client/chunk_packer.h"
#include "reverie/codec/codec.h"
#include "reverie/record/chunk.h"
#include "reverie/record/trajectory.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

// Where replacement goals come from: hindsight.h.
enum class HindsightStrategy : std::uint8_t { kFuture, kFinal, kEpisode };

struct HindsightOptions {
  HindsightStrategy strategy = HindsightStrategy::kFuture;
  double share = 0.8;  // of drawn items that get another goal, in [0, 1]
  // Columns of the observation, with the same type and shape.
  std::string achieved = "achieved_goal";
  std::string goal = "desired_goal";

  friend bool operator==(const HindsightOptions&, const HindsightOptions&) = default;
};

struct TransitionOptions {
  std::size_t capacity = 0;     // items
  std::uint32_t env_count = 1;  // streams written in parallel
  std::uint32_t frame_stack = 1;
  std::uint32_t n_step = 1;  // at most this many rewards per transition
  double gamma = 0.99;
  // Steps of an item that count; 0: items are transitions.
  std::uint32_t sequence_length = 0;
  std::uint32_t period = 0;   // steps from the start of a sequence to that of the next
  std::uint32_t burn_in = 0;  // steps before those that count, if the episode has them
  // If true, remaining steps at an episode's end form a shorter sequence; else they are dropped.
  bool pad_sequences = true;
  // Only for single steps: n_step 1, frame_stack 1, no sequences.
  std::optional<HindsightOptions> hindsight = {};
  // How full chunks are encoded: only large columns, the small ones stay raw.
  CodecChoice codec = CodecChoice::kRaw;

  bool has_sequences() const { return sequence_length > 0; }
  // The most steps of an item.
  std::uint32_t steps_max() const { return has_sequences() ? burn_in + sequence_length : n_step; }

  friend bool operator==(const TransitionOptions&, const TransitionOptions&) = default;
};

// The rows of an item: history + steps + 1; the first `burn_in` steps do not count.
struct ItemShape {
  std::uint16_t history = 0;
  std::uint16_t burn_in = 0;
  std::uint32_t steps = 0;

  std::uint32_t rows() const { return history + steps + 1; }
  std::uint64_t packed() const {
    return (std::uint64_t{history} << 48) | (std::uint64_t{burn_in} << 32) | steps;
  }
  static ItemShape unpack(std::uint64_t packed) {
    return {static_cast<std::uint16_t>(packed >> 48), static_cast<std::uint16_t>(packed >> 32),
            static_cast<std::uint32_t>(packed)};
  }
};

// The place of a leaf in a row.
struct LeafPlace {
  std::uint16_t chunk_column = 0;
  std::uint32_t offset = 0;  // within that column's row
  std::uint32_t size_bytes = 0;
};

// Immutable once made, except layouts, which only its writer uses.
class TransitionPlan {
 public:
  // Bounds, so that the values fit an ItemShape.
  static constexpr std::uint32_t kStackMax = 1024;
  static constexpr std::uint32_t kStepsMax = 65'535;

  // Bits of a row's flags.
  static constexpr std::uint8_t kTerminated = 1;
  static constexpr std::uint8_t kTruncated = 2;

  // INVALID_ARGUMENT names the option or the column, its value and the bound. Shapes are those of
  // one environment's leaf.
  static Status check(const TransitionOptions& options);
  static Result<TransitionPlan> make(const TransitionOptions& options, std::vector<TensorSpec> obs,
                                     std::vector<TensorSpec> action);

  const TransitionOptions& options() const { return options_; }
  std::span<const TensorSpec> obs() const { return obs_; }
  std::span<const TensorSpec> action() const { return action_; }

  const Ref<const ChunkSchema>& schema() const { return schema_; }
  // A power of 2, at least the rows of the longest item.
  std::uint32_t chunk_rows() const { return std::uint32_t{1} << chunk_shift_; }
  std::uint32_t chunk_shift() const { return chunk_shift_; }
  std::span<const LeafPlace> obs_places() const { return obs_places_; }
  std::span<const LeafPlace> action_places() const { return action_places_; }
  const LeafPlace& reward_place() const { return reward_place_; }
  const LeafPlace& flags_place() const { return flags_place_; }
  // Only with hindsight: where an observation has the achieved goal, and which leaf is the
  // goal.
  const LeafPlace& achieved_place() const { return obs_places_[achieved_leaf_]; }
  std::size_t goal_leaf() const { return goal_leaf_; }
  // Bytes before row 0 of a column in a chunk, and bytes of one of its rows.
  std::size_t column_begin(std::size_t column) const {
    return chunk_rows() * schema_->bytes_before(column);
  }
  std::size_t row_bytes(std::size_t column) const { return schema_->row_bytes(column); }
  // Whether full chunks may be encoded, and the packer that decides it; small columns, and those
  // that hindsight reads, never are.
  bool is_packed() const { return make_packer().wants(*schema_); }
  ChunkPacker make_packer() const;

  // The layout of items of that shape whose rows are in `piece_count` chunks.
  const Ref<const Layout>& layout(ItemShape shape, std::uint32_t piece_count) {
    const std::uint64_t packed = shape.packed();
    const bool is_last = last_.layout && last_.shape == packed && last_.piece_count == piece_count;
    return is_last ? last_.layout : other_layout(packed, piece_count);
  }

 private:
  TransitionPlan() = default;
  Status find_goals();
  const Ref<const Layout>& other_layout(std::uint64_t packed_shape, std::uint32_t piece_count);

  TransitionOptions options_;
  std::vector<TensorSpec> obs_;
  std::vector<TensorSpec> action_;
  Ref<const ChunkSchema> schema_;
  std::uint32_t chunk_shift_ = 0;
  std::vector<LeafPlace> obs_places_;
  std::vector<LeafPlace> action_places_;
  LeafPlace reward_place_;
  LeafPlace flags_place_;
  std::size_t achieved_leaf_ = 0;
  std::size_t goal_leaf_ = 0;

  struct Kind {
    std::uint64_t shape = 0;
    std::uint32_t piece_count = 0;
    Ref<const Layout> layout;
  };
  Kind last_;
  std::unordered_map<std::uint64_t, std::vector<Ref<const Layout>>> layouts_;  // by piece count
};

}  // namespace reverie
