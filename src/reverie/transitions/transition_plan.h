// TransitionPlan: how the steps of a replay buffer lie in memory, and which rows make an item.
//
//     row        [ obs | action | reward | flags ]       small columns side by side, and
//                [ frame ]                               each large one for itself
//
//     stream     row  4   5   6   7   8   9              one for each environment
//     item           [h   h | s   s | n]                 2 rows of history, 2 steps, the row after
//
// A row holds an observation and what was done about it. The observation after a step is the next
// row's, so it is stored once; an episode that ends has one row more, for its last observation.
// An item is a run of rows: those that only stacks of frames reach back to (its history), its
// steps, and the row after them. All else that a batch gives is computed from these when it is
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

// Where the goals of an episode come from that it was not given: hindsight.h.
enum class HindsightStrategy : std::uint8_t { kFuture, kFinal, kEpisode };

struct HindsightOptions {
  HindsightStrategy strategy = HindsightStrategy::kFuture;
  double share = 0.8;  // of the items drawn that get another goal, in [0, 1]
  // Columns of the observation, of one type and shape.
  std::string achieved = "achieved_goal";
  std::string goal = "desired_goal";

  friend bool operator==(const HindsightOptions&, const HindsightOptions&) = default;
};

struct TransitionOptions {
  std::size_t capacity = 0;     // items
  std::uint32_t env_count = 1;  // streams that are written side by side
  std::uint32_t frame_stack = 1;
  std::uint32_t n_step = 1;  // at most this many rewards make a transition
  double gamma = 0.99;
  // Steps of an item that count; 0 for transitions.
  std::uint32_t sequence_length = 0;
  std::uint32_t period = 0;   // steps from the start of a sequence to that of the next
  std::uint32_t burn_in = 0;  // steps before those that count, as far as the episode has them
  // Steps that an episode's end leaves over make a shorter sequence; else they are dropped.
  bool pad_sequences = true;
  // For single steps alone: n_step 1, frame_stack 1, no sequences.
  std::optional<HindsightOptions> hindsight = {};
  // How chunks that are full are kept: columns of their own alone, the small ones stay raw.
  CodecChoice codec = CodecChoice::kRaw;

  bool has_sequences() const { return sequence_length > 0; }
  // Steps of an item at most.
  std::uint32_t steps_max() const { return has_sequences() ? burn_in + sequence_length : n_step; }

  friend bool operator==(const TransitionOptions&, const TransitionOptions&) = default;
};

// Which rows an item has: history + steps + 1, the first `burn_in` of the steps not counting.
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

// Where a leaf lies in a row.
struct LeafPlace {
  std::uint16_t chunk_column = 0;
  std::uint32_t offset = 0;  // within that column's row
  std::uint32_t size_bytes = 0;
};

// Immutable once made; layouts are for its one writer.
class TransitionPlan {
 public:
  // Each bounded so that an ItemShape holds it.
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
  // A power of 2, and enough for the longest item.
  std::uint32_t chunk_rows() const { return std::uint32_t{1} << chunk_shift_; }
  std::uint32_t chunk_shift() const { return chunk_shift_; }
  std::span<const LeafPlace> obs_places() const { return obs_places_; }
  std::span<const LeafPlace> action_places() const { return action_places_; }
  const LeafPlace& reward_place() const { return reward_place_; }
  const LeafPlace& flags_place() const { return flags_place_; }
  // With hindsight alone: where an observation has what it achieved, and which of its leaves is the
  // goal.
  const LeafPlace& achieved_place() const { return obs_places_[achieved_leaf_]; }
  std::size_t goal_leaf() const { return goal_leaf_; }
  // Bytes before row 0 of a column in a chunk, and those of one of its rows.
  std::size_t column_begin(std::size_t column) const {
    return chunk_rows() * schema_->bytes_before(column);
  }
  std::size_t row_bytes(std::size_t column) const { return schema_->row_bytes(column); }
  // Whether full chunks may be encoded, and what decides that; the small columns, and those that
  // hindsight reads, never are.
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
