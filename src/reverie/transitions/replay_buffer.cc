// Tested in tests/integration/replay_buffer_test.cc and python/reverie/replay_buffer_test.py.
#include "reverie/transitions/replay_buffer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "reverie/base/check.h"
#include "reverie/base/random.h"
#include "reverie/rl/importance_weights.h"

namespace reverie {

TableOptions ReplayBuffer::table_options(const TransitionOptions& options, std::string name) {
  TableOptions table;
  table.name = std::move(name);
  table.remover = {"Fifo", {}};
  table.max_size = static_cast<std::int64_t>(options.capacity);
  table.rate_limiter = {1.0, 1, std::numeric_limits<double>::lowest(),
                        std::numeric_limits<double>::max()};
  table.is_keyed = false;
  return table;
}

Result<std::unique_ptr<ReplayBuffer>> ReplayBuffer::open(
    std::shared_ptr<ReplayService> service, std::string table, const TransitionOptions& options,
    std::vector<TensorSpec> obs, std::vector<TensorSpec> action, std::uint64_t seed) {
  REVERIE_CHECK(service != nullptr);
  REVERIE_ASSIGN_OR_RETURN(TransitionPlan plan,
                           TransitionPlan::make(options, std::move(obs), std::move(action)));
  return std::unique_ptr<ReplayBuffer>(
      new ReplayBuffer(std::move(service), std::move(table), std::move(plan), seed));
}

ReplayBuffer::ReplayBuffer(std::shared_ptr<ReplayService> service, std::string table,
                           TransitionPlan plan, std::uint64_t seed)
    : service_(std::move(service)),
      table_(std::move(table)),
      plan_(std::move(plan)),
      slabs_(SlabAllocator::make(plan_.chunk_rows() * plan_.schema()->step_bytes())),
      hindsight_(plan_.options().hindsight ? std::make_unique<HindsightIndex>(plan_, mix64(seed))
                                           : nullptr),
      writer_(plan_, *slabs_, seed, hindsight_.get()) {}

std::unique_ptr<ReplayBuffer> ReplayBuffer::beside(std::uint64_t seed) const {
  REVERIE_CHECK(hindsight_ == nullptr);
  // The copy shares the schema, which identifies items as this buffer's.
  return std::unique_ptr<ReplayBuffer>(new ReplayBuffer(service_, table_, plan_, seed));
}

Status ReplayBuffer::add(const StepArrays& step) {
  MutexLock lock(add_mutex_);
  items_.clear();
  REVERIE_RETURN_IF_ERROR(writer_.append(step, items_));
  const std::size_t done = service_->insert_views(table_, items_);
  return done == items_.size() ? Status() : insert_remaining(std::span(items_).subspan(done));
}

Status ReplayBuffer::insert_remaining(std::span<const TrajectoryView> items) {
  std::vector<Item> owned;
  owned.reserve(items.size());
  for (const TrajectoryView& item : items) {
    owned.push_back({0, {}, Trajectory(Ref<const Layout>::share(item.layout), item.pieces()), 0});
  }
  return insert_and_wait(*service_, {table_, owned, TimePoint::max()}).status;
}

Status ReplayBuffer::draw_into(Scratch& scratch, const ReplayBufferDraw& draw,
                               const WaitOptions& wait) {
  SampleRequest request;
  request.table = table_;
  request.count = draw.count;
  request.min_count = draw.distinct ? 1 : draw.count;
  request.distinct = draw.distinct;
  request.brief = true;
  request.wants_least = draw.over_buffer && draw.beta.has_value();
  request.deadline = draw.deadline;
  request.batch = std::move(scratch.batch);
  SampleResult result = sample_and_wait(*service_, std::move(request), wait);
  scratch.batch = std::move(result.batch);
  if (result.status.code() == StatusCode::kDeadlineExceeded) {
    return failed_precondition(
        "the replay buffer has no items to sample; add steps first, or give timeout_s to wait");
  }
  REVERIE_RETURN_IF_ERROR(result.status);
  if (scratch.batch.size() < draw.count) {
    return invalid_argument(
        "{} distinct items were asked for but the replay buffer has {}; ask for fewer, or sample "
        "with replacement",
        draw.count, scratch.batch.size());
  }
  return {};
}

Status ReplayBuffer::sample(const ReplayBufferDraw& draw, const ReplayBufferTargets& targets,
                            const WaitOptions& wait) {
  std::unique_ptr<Scratch> scratch = take_scratch();
  Status status = draw_into(*scratch, draw, wait);
  SampleBatch& batch = scratch->batch;
  if (status.ok()) {
    status = scratch->gather.gather(plan_, batch.trajectories(), targets.transitions);
  }
  if (status.ok() && hindsight_) hindsight_->relabel(batch.trajectories(), targets.transitions);
  if (status.ok()) {
    std::ranges::copy(batch.tickets(), targets.tickets);
    const std::span<float> weights(targets.weights, batch.size());
    if (draw.beta && draw.over_buffer) {
      status = importance_weights_over(batch.probabilities(), batch.least_probability(), *draw.beta,
                                       weights);
    } else if (draw.beta) {
      status =
          importance_weights(batch.probabilities(), static_cast<std::size_t>(batch.table_size()),
                             *draw.beta, WeightScale::kBatchMaximum, weights);
    } else {
      std::ranges::fill(weights, 1.0f);
    }
  }
  batch.clear();
  give_back(std::move(scratch));
  return status;
}

Status ReplayBuffer::gather(std::span<const TrajectoryView> items,
                            const TransitionTargets& targets) {
  std::unique_ptr<Scratch> scratch = take_scratch();
  Status status = scratch->gather.gather(plan_, items, targets);
  if (hindsight_) std::fill_n(targets.hindsight, items.size(), std::uint8_t{0});
  give_back(std::move(scratch));
  return status;
}

StepCounts ReplayBuffer::counts() {
  MutexLock lock(add_mutex_);
  return writer_.counts();
}

Result<std::size_t> ReplayBuffer::update(std::span<const std::uint64_t> tickets,
                                         std::span<const double> priorities,
                                         const WaitOptions& wait) {
  MutateRequest request;
  request.table = table_;
  request.tickets = tickets;
  request.ticket_priorities = priorities;
  const MutateResult result = mutate_and_wait(*service_, request, wait);
  REVERIE_RETURN_IF_ERROR(result.status);
  return result.updated;
}

Status ReplayBuffer::clear(const WaitOptions& wait) {
  MutexLock lock(add_mutex_);
  REVERIE_RETURN_IF_ERROR(reset_and_wait(*service_, table_, wait));
  writer_.clear();
  return {};
}

std::unique_ptr<ReplayBuffer::Scratch> ReplayBuffer::take_scratch() {
  MutexLock lock(mutex_);
  if (scratch_.empty()) return std::make_unique<Scratch>();
  std::unique_ptr<Scratch> scratch = std::move(scratch_.back());
  scratch_.pop_back();
  return scratch;
}

void ReplayBuffer::give_back(std::unique_ptr<Scratch> scratch) {
  MutexLock lock(mutex_);
  scratch_.push_back(std::move(scratch));
}

}  // namespace reverie
