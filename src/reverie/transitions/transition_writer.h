// TransitionWriter: turns steps of several environments, in parallel, into items.
//
//     append({obs [E, ...], action [E, ...], reward [E], next_obs [E, ...], ...})
//         --> a row for each environment, in the chunk of its stream      (copied once)
//         --> the items that are complete now                             (nothing copied)
//
// An item is complete once its last step is there, so a transition over n steps comes n - 1 steps
// late; at an episode's end the remaining, shorter ones follow.
//
// The next observation of a step is expected to equal the observation of the following step. If it
// does not, the stream is cut there, like by a truncation: each transition is as it was given, and
// none spans the cut. Numbers that are equal do not cut it, whatever their bits: 0.0 and -0.0, or
// any two NaN.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "reverie/base/ref.h"
#include "reverie/base/status.h"
#include "reverie/record/chunk.h"
#include "reverie/record/trajectory.h"
#include "reverie/tensor/tensor.h"
#include "reverie/transitions/transition_plan.h"

namespace reverie {

class HindsightIndex;

// One step of each environment. Leaves are those of the plan, in its order.
struct StepArrays {
  std::span<const TensorView> obs;
  std::span<const TensorView> action;
  std::span<const TensorView> next_obs;
  std::span<const float> reward;
  std::span<const std::uint8_t> terminated;  // 0 or 1
  std::span<const std::uint8_t> truncated;
  std::optional<std::span<const std::uint8_t>> mask;  // none, or 0 where no step was made
  // Whether the leaves have an axis of environments. If not, there is one environment.
  bool has_env_axis = true;
};

// Counts of what was written so far.
struct StepCounts {
  std::int64_t steps = 0;
  std::int64_t episodes = 0;  // terminated or truncated
  std::int64_t cuts = 0;      // streams that continued with an unexpected observation
};

// Not thread-safe. Other threads may read items meanwhile. The row after an item's steps is used
// for its observation: its action is written later, to bytes that no reader of the item reads, and
// the row is published with it.
class TransitionWriter {
 public:
  // `plan` outlives it, and so does `hindsight`, which gets all rows unless it is null.
  TransitionWriter(TransitionPlan& plan, Allocator& allocator, std::uint64_t seed,
                   HindsightIndex* hindsight = nullptr);

  // Adds the items that the step completes to `items`, which the writer keeps until its next call.
  // Either everything is written or nothing. INVALID_ARGUMENT, naming the column or array, if its
  // shape, type or number of environments differs from the plan.
  Status append(const StepArrays& step, std::vector<TrajectoryView>& items);

  const StepCounts& counts() const { return counts_; }

  // Forgets the steps so far, except their counts: all streams start again.
  void clear();

 private:
  friend class ReplayState;  // replay_state.cc

  // Rows are numbered over a stream's life; row r is in chunk r / chunk_rows, which is a shift.
  struct Stream {
    std::uint64_t row = 0;            // of the next step
    bool is_open = false;             // that row has its observation already
    std::uint64_t episode_begin = 0;  // row
    std::uint64_t item_begin = 0;     // row of the first step (that counts) of the next item
    std::uint64_t first_chunk = 0;    // number of chunks[0]
    std::vector<Ref<Chunk>> chunks;   // those that later items may refer to
    std::uint64_t packed_end = 0;     // earlier chunks (by number) are final
    // A cache of the current chunk.
    std::uint64_t room_end = 0;  // steps with rows before it need no reserve()
    std::uint64_t at_chunk = ~std::uint64_t{0};
    Chunk* at = nullptr;
    std::byte* at_begin = nullptr;
  };
  // A leaf in a chunk: its row 0, and the distance between rows.
  struct Leaf {
    std::size_t begin = 0;
    std::size_t row_bytes = 0;
    std::size_t size = 0;
  };
  // A row that is being written.
  struct Row {
    std::byte* begin;  // of its chunk
    std::uint32_t number;

    std::byte* at(const Leaf& leaf) const { return begin + leaf.begin + number * leaf.row_bytes; }
  };

  Status check(const StepArrays& step) const;
  Status check_leaves(const char* what, std::span<const TensorView> leaves,
                      std::span<const TensorSpec> specs, bool has_env_axis) const;
  // Makes room for the two rows that a step may add, and one more; releases unneeded chunks.
  Status reserve(Stream& stream, std::uint32_t env);
  void append_one(Stream& stream, const StepArrays& step, std::size_t env,
                  std::vector<TrajectoryView>& items);
  // A fast append for the simplest case: one step within an episode, which is an item by itself and
  // stays in its chunk. False, without effect, in all other cases.
  bool append_within(Stream& stream, const StepArrays& step, std::size_t env,
                     std::vector<TrajectoryView>& items) const;
  // Prefetches the cache lines that the stream's next step will write.
  void prefetch(Stream& stream) const;

  std::uint64_t chunk_number(std::uint64_t row) const { return row >> chunk_shift_; }
  std::uint32_t row_in_chunk(std::uint64_t row) const {
    return static_cast<std::uint32_t>(row) & (chunk_rows_ - 1);
  }
  Chunk& chunk_of(const Stream& stream, std::uint64_t row) const {
    return *stream.chunks[chunk_number(row) - stream.first_chunk];
  }
  Leaf leaf_at(const LeafPlace& place) const {
    return {plan_.column_begin(place.chunk_column) + place.offset,
            plan_.row_bytes(place.chunk_column), place.size_bytes};
  }
  Row row_at(Stream& stream, std::uint64_t row) const;
  void set_obs(Row row, std::span<const TensorView> obs, std::size_t env) const;
  void set_action(Row row, const StepArrays& step, std::size_t env, std::uint8_t flags) const;
  bool has_obs(Row row, std::span<const TensorView> obs, std::size_t env) const;
  void publish(Stream& stream, std::uint64_t row_end);

  // Adds items of the steps before row `end`, if the episode may continue.
  void add_whole_items(Stream& stream, std::uint64_t end, std::vector<TrajectoryView>& items);
  // Adds the remaining items when the episode's steps end before row `end`.
  void add_cut_items(Stream& stream, std::uint64_t end, std::vector<TrajectoryView>& items);
  void add_item(Stream& stream, std::uint64_t begin, std::uint64_t end,
                std::vector<TrajectoryView>& items);
  void begin_episode(Stream& stream, std::uint64_t row);
  void drop_old_chunks(Stream& stream);
  // Encodes the chunks whose rows are all written.
  void pack_full_chunks(Stream& stream);

  TransitionPlan& plan_;
  Allocator& allocator_;
  HindsightIndex* const hindsight_;
  ChunkPacker packer_;
  const bool is_packed_;
  const std::uint32_t chunk_shift_;
  const std::uint32_t chunk_rows_;
  const Layout* step_layout_ = nullptr;  // of a single step in one chunk, if that is an item
  std::vector<Leaf> obs_;
  std::vector<Leaf> action_;
  Leaf reward_;
  Leaf flags_;
  std::uint64_t next_key_;  // of chunks
  StepCounts counts_;
  std::vector<Stream> streams_;
  std::deque<std::array<Piece, 2>> split_;  // pieces of the last append()'s items
};

}  // namespace reverie
