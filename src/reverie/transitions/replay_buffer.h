// ReplayBuffer: transitions or sequences of several environments in a table, ready for a learner.
//
//     add(step) --> TransitionWriter --> [ table ] --> sample --> TransitionGather --> arrays
//                                           ^--- update(tickets, priorities) ---'
//
// A thin layer: it stores the rows of a stream, each once, and items over them; the table samples,
// removes and keeps the priorities. For many threads there may be several tables: replay_shards.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/spares.h"
#include "reverie/base/status.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"
#include "reverie/tensor/slab_allocator.h"
#include "reverie/transitions/hindsight.h"
#include "reverie/transitions/replay_shards.h"
#include "reverie/transitions/transition_gather.h"
#include "reverie/transitions/transition_plan.h"
#include "reverie/transitions/transition_writer.h"

namespace reverie {

// The arrays that a sample fills, each `count` long.
struct ReplayBufferTargets {
  TransitionTargets transitions;
  std::uint64_t* tickets = nullptr;
  float* weights = nullptr;
};

struct ReplayBufferDraw {
  std::size_t count = 1;
  bool distinct = false;  // no item twice in the batch
  // Weights are (p_min / p)^beta, so at most 1; without a value they are all 1.
  std::optional<double> beta = {};
  // Whether p_min is the smallest probability in the buffer, not only in the batch. Requires one
  // shard.
  bool over_buffer = false;
  // A uniform number in [0, 1), which decides the shard: the caller's, so that a seed reproduces
  // it.
  double shard_choice = 0;
  // FAILED_PRECONDITION if the buffer is still empty at this time, or, with several shards, now.
  TimePoint deadline = TimePoint{};
};

// Thread-safe. Threads that step different environments may share a buffer: each thread masks out
// the others' environments.
class ReplayBuffer {
 public:
  // The table that the buffer needs: sampling needs only one item, and there are no keys.
  static TableOptions table_options(const TransitionOptions& options, std::string name);

  // `table` was made with table_options(). The specs are those of one environment's leaves.
  static Result<std::unique_ptr<ReplayBuffer>> open(
      std::shared_ptr<ReplayService> service, std::string table, const TransitionOptions& options,
      std::vector<TensorSpec> obs, std::vector<TensorSpec> action, std::uint64_t seed);
  // The same with tables that were made with ReplayShards::split(table_options()).
  static Result<std::unique_ptr<ReplayBuffer>> open(std::shared_ptr<ReplayService> service,
                                                    const std::vector<TableOptions>& tables,
                                                    const TransitionOptions& options,
                                                    std::vector<TensorSpec> obs,
                                                    std::vector<TensorSpec> action,
                                                    std::uint64_t seed);
  // Another buffer for the same table, with its own streams: with one per thread, adds do not wait
  // for each other. Each samples what all have added. Requires another seed, that no add() runs
  // meanwhile, and no hindsight.
  std::unique_ptr<ReplayBuffer> beside(std::uint64_t seed) const;
  ReplayBuffer(const ReplayBuffer&) = delete;
  ReplayBuffer& operator=(const ReplayBuffer&) = delete;

  const TransitionPlan& plan() const { return plan_; }

  // Adds one step of each environment. Items that it completes can be sampled on return, with the
  // largest priority so far. Errors as TransitionWriter::append; CANCELLED if the store is closed.
  Status add(const StepArrays& step);

  // Draws, and gathers into arrays that the caller has made according to the plan. INVALID_ARGUMENT
  // if more distinct items are requested than there are.
  Status sample(const ReplayBufferDraw& draw, const ReplayBufferTargets& targets,
                const WaitOptions& wait);

  // Gathers items of this buffer that are pinned, however they were chosen. Does not fill tickets
  // and weights.
  Status gather(std::span<const TrajectoryView> items, const TransitionTargets& targets);

  // Returns how many items got their priority; missing items are ignored. INVALID_ARGUMENT, and
  // nothing is changed, if a ticket is not one that a batch can have given, or a priority is
  // invalid.
  Result<std::size_t> update(std::span<const std::uint64_t> tickets,
                             std::span<const double> priorities, const WaitOptions& wait);

  const ReplayShards& shards() const { return *shards_; }
  // Those of its store; null if that is not in this process.
  AheadReaders* ahead_readers() const { return service_->ahead_readers(); }

  // The counts of all steps so far, including those that were dropped since.
  StepCounts counts();

  // Drops all items; the streams start again. The largest priority so far does not change.
  Status clear(const WaitOptions& wait);

 private:
  friend class ReplayState;  // replay_state.cc

  // Inserts the items of the current add().
  Status insert() REVERIE_REQUIRES(add_mutex_);
  Status insert_into(const std::string& table, std::span<const TrajectoryView> items);
  // Inserts items that the table does not accept at once: because it never does, or is closed.
  Status insert_remaining(const std::string& table, std::span<const TrajectoryView> items);

  // Working memory of a sample or an update, reused.
  struct Scratch {
    SampleBatch batch;
    TransitionGather gather;
    std::vector<std::uint64_t> tickets;
  };

  ReplayBuffer(std::shared_ptr<ReplayService> service, std::shared_ptr<const ReplayShards> shards,
               TransitionPlan plan, std::uint64_t seed);
  Status draw_into(Scratch& scratch, std::size_t shard, const ReplayBufferDraw& draw,
                   const WaitOptions& wait);
  // The same from the table that the draw's choice decides, whose number it returns.
  Status draw_from_any(Scratch& scratch, const ReplayBufferDraw& draw, const WaitOptions& wait,
                       std::size_t& shard);
  // Calls use(request) with the update of each run of tickets of one shard, until one is refused.
  template <typename Use>
  Status for_each_shard(Scratch& scratch, std::span<const std::uint64_t> tickets,
                        std::span<const double> priorities, Use use) const;

  const std::shared_ptr<ReplayService> service_;
  const std::shared_ptr<const ReplayShards> shards_;
  TransitionPlan plan_;
  const std::shared_ptr<SlabAllocator> slabs_;  // for chunks, which have one size

  const std::unique_ptr<HindsightIndex> hindsight_;  // null: no hindsight

  Mutex add_mutex_;  // taken before any lock of the service
  TransitionWriter writer_ REVERIE_GUARDED_BY(add_mutex_);
  std::vector<TrajectoryView> items_ REVERIE_GUARDED_BY(add_mutex_);  // of the current add()
  // Only with several shards: these items by shard, and the numbers of the first ones.
  std::vector<TrajectoryView> sorted_ REVERIE_GUARDED_BY(add_mutex_);
  std::vector<std::size_t> begins_ REVERIE_GUARDED_BY(add_mutex_);

  Spares<Scratch> scratch_;
};

}  // namespace reverie
