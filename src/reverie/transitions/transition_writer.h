// TransitionWriter: steps of several environments, side by side, into items.
//
//     append({obs [E, ...], action [E, ...], reward [E], next_obs [E, ...], ...})
//         --> a row for each environment, in the chunk of its stream      (copied once)
//         --> the items that are complete now                             (nothing copied)
//
// An item is complete when its last step is there, so a transition over n steps comes n - 1 steps
// late; at an episode's end come those that the end cuts short.
//
// What is given as the next observation is expected again as the following observation. Where
// something else comes the stream is cut there, as a truncation would: each transition is as it was
// given, and none spans the cut. Numbers that are equal do not cut it, whatever their bits: 0.0 and
// -0.0, or any two NaN.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
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
  std::span<const std::uint8_t> mask;  // empty, or 0 for environments that made no step
  // Whether the leaves have an axis of environments. Without, there is one environment.
  bool has_env_axis = true;
};

// What was written so far.
struct StepCounts {
  std::int64_t steps = 0;
  std::int64_t episodes = 0;  // that terminated or were truncated
  std::int64_t cuts = 0;      // streams that went on with another observation than was announced
};

// Not thread-safe. Items may be read by others meanwhile. The row after an item's steps is there
// for its observation: what is done about that is written later, to bytes that no reader of the
// item looks at, and the row is published with it.
class TransitionWriter {
 public:
  // `plan` outlives it, and so does `hindsight`, which gets all rows unless it is null.
  TransitionWriter(TransitionPlan& plan, Allocator& allocator, std::uint64_t seed,
                   HindsightIndex* hindsight = nullptr);

  // Adds the items that the step completes to `items`, which the writer keeps until its next call.
  // Nothing is written unless all of it can be. INVALID_ARGUMENT, naming the column or the array,
  // for another shape or type than the plan's, or another number of environments.
  Status append(const StepArrays& step, std::vector<TrajectoryView>& items);

  const StepCounts& counts() const { return counts_; }

  // Forgets the steps so far, except their counts: all streams begin anew.
  void clear();

 private:
  friend class ReplayState;  // replay_state.cc

  // Rows are numbered over a stream's life; row r lies in chunk r / chunk_rows, which is a shift.
  struct Stream {
    std::uint64_t row = 0;            // of the next step
    bool is_open = false;             // that row has its observation, the last step's next one
    std::uint64_t episode_begin = 0;  // row
    std::uint64_t item_begin = 0;     // row of the first step (that counts) of the next item
    std::uint64_t first_chunk = 0;    // number of chunks[0]
    std::vector<Ref<Chunk>> chunks;   // those that items to come may refer to
    std::uint64_t packed_end = 0;     // number; chunks before it are as they will stay
    // The chunk that was written last, at hand.
    std::uint64_t room_end = 0;  // row; steps whose rows lie before it need no reserve()
    std::uint64_t at_chunk = ~std::uint64_t{0};
    Chunk* at = nullptr;
    std::byte* at_begin = nullptr;
  };
  // A leaf in a chunk: where its row 0 lies, and how far apart its rows are.
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
  // Makes room for the two rows that a step may add, and one more; lets go what is done with.
  Status reserve(Stream& stream, std::uint32_t env);
  void append_one(Stream& stream, const StepArrays& step, std::size_t env,
                  std::vector<TrajectoryView>& items);
  // The same where that is shortest: a single step that an episode goes on with, is an item of its
  // own and does not leave its chunk. False, with nothing done, elsewhere.
  bool append_within(Stream& stream, const StepArrays& step, std::size_t env,
                     std::vector<TrajectoryView>& items) const;
  // Has the lines of memory fetched that the stream's next step will write to.
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

  // Items of the steps before row `end`, where the next one may belong to the same episode.
  void add_whole_items(Stream& stream, std::uint64_t end, std::vector<TrajectoryView>& items);
  // The items that are left when the episode's steps end before row `end`.
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
  const Layout* step_layout_ = nullptr;  // of each step in one chunk, if that is an item
  std::vector<Leaf> obs_;
  std::vector<Leaf> action_;
  Leaf reward_;
  Leaf flags_;
  std::uint64_t next_key_;  // of chunks
  StepCounts counts_;
  std::vector<Stream> streams_;
  std::deque<std::array<Piece, 2>> split_;  // the pieces of items that the last append() made
};

}  // namespace reverie
