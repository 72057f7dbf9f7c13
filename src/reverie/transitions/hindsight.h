// Hindsight: goals that an episode reached, in the place of the one that it was given.
//
//     rows of an episode     s0  s1  s2  s3  s4          each holds the goal it was given and what
//     a drawn item               [s1 s2]                 it achieved
//     future                         s2  s3  s4          one of these says what the goal of the
//     final                                  s4          item is now: obs and next_obs both get
//     episode                    s1  s2  s3  s4          what that row achieved
//
// Nothing is stored a second time: the index knows which chunk holds which row of a stream, for the
// rows that items of the table refer to, and a batch is changed after it was gathered.
//
// Source: Andrychowicz et al. 2017, "Hindsight Experience Replay", section 3.3.
// Differs: an episode that is not over yet ends at its last step so far. Of an episode whose oldest
// steps have left the buffer, "episode" takes what is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/base/ref.h"
#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/record/chunk.h"
#include "reverie/record/trajectory.h"
#include "reverie/transitions/transition_gather.h"
#include "reverie/transitions/transition_plan.h"

namespace reverie {

// Thread-safe. `plan` outlives it, and has hindsight: then each step is one item, and items leave
// in the order in which they came.
class HindsightIndex {
 public:
  HindsightIndex(const TransitionPlan& plan, std::uint64_t seed);

  // --- For the writer of the streams.
  // The chunk holds the rows of a stream from number * chunk_rows on.
  void add_chunk(std::size_t env, std::uint64_t number, Ref<const Chunk> chunk);
  // A step was written to row `row`, and its next observation to the one behind.
  void add_step(std::size_t env, std::uint64_t episode_begin, std::uint64_t row);
  // All streams begin anew.
  void clear();

  // Gives some items of a gathered batch another goal, and says in targets.hindsight which. An item
  // whose rows have left the index meanwhile keeps its own.
  void relabel(std::span<const TrajectoryView> items, const TransitionTargets& targets);

  // --- For checkpoints: replay_state.h. No step is added meanwhile.
  // A stream of the writer.
  struct Written {
    std::uint64_t first_chunk = 0;
    std::uint64_t chunk_end = 0;  // number behind the last chunk
    std::uint64_t row_end = 0;    // behind the last observation
  };
  // Appends all of the index but the rows; forgets chunks that no item refers to any more.
  void write(ByteWriter& out);
  // Takes the place of this index, which is new. `chunks` are those of the restored items and
  // streams. DATA_LOSS for what the index of such a writer cannot be.
  Status restore(ByteReader& in, std::span<const Written> written,
                 const std::unordered_map<ChunkKey, Ref<const Chunk>>& chunks);

 private:
  struct Episode {
    std::uint64_t begin = 0;  // row
    std::uint64_t end = 0;    // one beyond the row of the last observation
  };
  struct KnownChunk {
    Ref<const Chunk> chunk;
    std::uint64_t last_step = 0;  // the count of steps when one was written to it last
  };
  struct Stream {
    std::uint64_t first_chunk = 0;  // number of chunks[0]
    std::deque<KnownChunk> chunks;
    std::deque<Episode> episodes;
  };
  struct Place {
    std::size_t env = 0;
    std::uint64_t number = 0;
  };

  void drop_old(std::size_t env) REVERIE_REQUIRES(mutex_);
  Status read_stream(std::size_t env, ByteReader& in,
                     const std::unordered_map<ChunkKey, Ref<const Chunk>>& chunks)
      REVERIE_REQUIRES(mutex_);
  // Whether each row of each episode is there, as far back as the chunks go.
  bool is_sound(const Stream& stream, const Written& written) const;
  // What was achieved by the row whose achievement becomes the goal of the step in `row`, in both
  // places. False where no such row is known.
  bool copy_goal(const Stream& stream, std::uint64_t row, std::byte* goal, std::byte* next_goal)
      REVERIE_REQUIRES(mutex_);

  const TransitionPlan& plan_;
  const HindsightOptions options_;
  const LeafPlace achieved_;
  const std::size_t row_bytes_;  // how far apart its rows are
  const std::size_t goal_bytes_;

  Mutex mutex_;
  Random random_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t step_count_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::size_t next_swept_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::vector<Stream> streams_ REVERIE_GUARDED_BY(mutex_);
  std::unordered_map<ChunkKey, Place> places_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
