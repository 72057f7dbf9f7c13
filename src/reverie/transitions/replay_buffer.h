// ReplayBuffer: transitions or sequences of several environments in a table, ready for a learner.
//
//     add(step) --> TransitionWriter --> [ table ] --> sample --> TransitionGather --> arrays
//                                           ^--- update(tickets, priorities) ---'
//
// A thin layer: what is stored are the rows of a stream, each once, and items over them; the table
// samples, removes and keeps the priorities.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"
#include "reverie/tensor/slab_allocator.h"
#include "reverie/transitions/hindsight.h"
#include "reverie/transitions/transition_gather.h"
#include "reverie/transitions/transition_plan.h"
#include "reverie/transitions/transition_writer.h"

namespace reverie {

// What a sample fills, `count` long each.
struct ReplayBufferTargets {
  TransitionTargets transitions;
  std::uint64_t* tickets = nullptr;
  float* weights = nullptr;
};

struct ReplayBufferDraw {
  std::size_t count = 1;
  bool distinct = false;  // no item twice in the batch
  // Weights are (p_min / p)^beta, so at most 1; all 1 without a value.
  std::optional<double> beta = {};
  // Whether p_min is the smallest probability in the buffer, not only in the batch.
  bool over_buffer = false;
  // FAILED_PRECONDITION while the buffer is empty and this has passed.
  TimePoint deadline = TimePoint{};
};

// Thread-safe. Environments that different threads step share a buffer too: each thread masks the
// others' out.
class ReplayBuffer {
 public:
  // What the buffer needs of its table: no bound on sampling but one item, and no keys.
  static TableOptions table_options(const TransitionOptions& options, std::string name);

  // `table` is one of table_options(). The specs are those of one environment's leaves.
  static Result<std::unique_ptr<ReplayBuffer>> open(
      std::shared_ptr<ReplayService> service, std::string table, const TransitionOptions& options,
      std::vector<TensorSpec> obs, std::vector<TensorSpec> action, std::uint64_t seed);
  // Another way into the same table, with streams of its own: each thread that adds has one, and
  // adds of two do not wait for each other. Either samples what both have added. Requires another
  // seed, and that no add() runs meanwhile, and no hindsight.
  std::unique_ptr<ReplayBuffer> beside(std::uint64_t seed) const;
  ReplayBuffer(const ReplayBuffer&) = delete;
  ReplayBuffer& operator=(const ReplayBuffer&) = delete;

  const TransitionPlan& plan() const { return plan_; }

  // One step of each environment. What it completes can be sampled on return, with the largest
  // priority so far. Errors as TransitionWriter::append; CANCELLED once the store is closed.
  Status add(const StepArrays& step);

  // Draws, and gathers into arrays that the caller has made as the plan says. INVALID_ARGUMENT
  // when more distinct items are asked for than there are.
  Status sample(const ReplayBufferDraw& draw, const ReplayBufferTargets& targets,
                const WaitOptions& wait);

  // Gathers items of this buffer, still pinned, however they were picked. Leaves tickets and
  // weights.
  Status gather(std::span<const TrajectoryView> items, const TransitionTargets& targets);

  // Returns how many items got their priority: those that are gone are ignored.
  Result<std::size_t> update(std::span<const std::uint64_t> tickets,
                             std::span<const double> priorities, const WaitOptions& wait);

  // The counts of all steps so far, including those that were dropped since.
  StepCounts counts();

  // Drops all items; the streams begin anew. The largest priority so far stays what it was.
  Status clear(const WaitOptions& wait);

 private:
  friend class ReplayState;  // replay_state.cc

  // Inserts what the table does not take at once: because it never does, or is closed.
  Status insert_rest(std::span<const TrajectoryView> items);

  // What one sample works with, kept for the next.
  struct Scratch {
    SampleBatch batch;
    TransitionGather gather;
  };

  ReplayBuffer(std::shared_ptr<ReplayService> service, std::string table, TransitionPlan plan,
               std::uint64_t seed);
  std::unique_ptr<Scratch> take_scratch();
  void give_back(std::unique_ptr<Scratch> scratch);
  Status draw_into(Scratch& scratch, const ReplayBufferDraw& draw, const WaitOptions& wait);

  const std::shared_ptr<ReplayService> service_;
  const std::string table_;
  TransitionPlan plan_;
  const std::shared_ptr<SlabAllocator> slabs_;  // of the chunks, which are of one size

  const std::unique_ptr<HindsightIndex> hindsight_;  // null without

  Mutex add_mutex_;  // taken before any lock of the service
  TransitionWriter writer_ REVERIE_GUARDED_BY(add_mutex_);
  std::vector<TrajectoryView> items_ REVERIE_GUARDED_BY(add_mutex_);  // of the add that runs

  Mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> scratch_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
