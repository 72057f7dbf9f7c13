// HindsightIndex: replaces the goal that an episode was given by goals that it reached.
//
//     rows of an episode     s0  s1  s2  s3  s4          each holds the goal it was given and what
//     a drawn item               [s1 s2]                 it achieved
//     future                         s2  s3  s4          one of these says what the goal of the
//     final                                  s4          item is now: obs and next_obs both get
//     episode                    s1  s2  s3  s4          what that row achieved
//
// Nothing is stored twice: the index knows which chunk has which row of a stream, for the rows that
// items of the table refer to, and a batch is changed after it was gathered.
//
// Source: Andrychowicz et al. 2017, "Hindsight Experience Replay", section 3.3. Differs: an episode
// that is not over yet ends at its last step so far. If an episode's oldest steps have left the
// buffer, "episode" uses the remaining ones.
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

// Thread-safe. `plan` outlives it, and has hindsight: then each step is one item, and the oldest
// items leave first.
class HindsightIndex {
 public:
  HindsightIndex(const TransitionPlan& plan, std::uint64_t seed);

  // --- For the writer of the streams.
  // The chunk holds the rows of a stream from number * chunk_rows on.
  void add_chunk(std::size_t env, std::uint64_t number, Ref<const Chunk> chunk);
  // A step was written to row `row`, and its next observation to the row after it.
  void add_step(std::size_t env, std::uint64_t episode_begin, std::uint64_t row);
  // All streams start again.
  void clear();

  // Gives some items of a gathered batch another goal, and marks them in targets.hindsight. An item
  // whose rows have left the index meanwhile keeps its goal.
  void relabel(std::span<const TrajectoryView> items, const TransitionTargets& targets);

  // --- For checkpoints: replay_state.h. No step is added meanwhile.
  // A stream of the writer.
  struct Written {
    std::uint64_t first_chunk = 0;
    std::uint64_t chunk_end = 0;  // one past the number of the last chunk
    std::uint64_t row_end = 0;    // one past the last observation
  };
  // Appends the whole index except the rows; forgets chunks that no item refers to any more.
  void write(ByteWriter& out);
  // Restores this index, which must be new. `chunks` are those of the restored items and streams.
  // DATA_LOSS for an index that such a writer cannot have.
  Status restore(ByteReader& in, std::span<const Written> written,
                 const std::unordered_map<ChunkKey, Ref<const Chunk>>& chunks);

 private:
  struct Episode {
    std::uint64_t begin = 0;  // row
    std::uint64_t end = 0;    // one beyond the row of the last observation
  };
  struct KnownChunk {
    Ref<const Chunk> chunk;
    std::uint64_t last_step = 0;  // the step count at its latest step
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
  // Whether every row of every episode exists, as far back as the chunks go.
  bool is_sound(const Stream& stream, const Written& written) const;
  // Chooses the row whose achievement becomes the goal of the step in `row`, and copies it to both
  // places. False if no such row is known.
  bool copy_goal(const Stream& stream, std::uint64_t row, std::byte* goal, std::byte* next_goal)
      REVERIE_REQUIRES(mutex_);

  const TransitionPlan& plan_;
  const HindsightOptions options_;
  const LeafPlace achieved_;
  const std::size_t row_bytes_;  // distance between its rows
  const std::size_t goal_bytes_;

  Mutex mutex_;
  Random random_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t step_count_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::size_t next_swept_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::vector<Stream> streams_ REVERIE_GUARDED_BY(mutex_);
  std::unordered_map<ChunkKey, Place> places_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
