// Tested in tests/integration/replay_buffer_test.cc and python/reverie/replay_buffer_test.py.
#include "reverie/transitions/replay_buffer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "reverie/base/check.h"
#include "reverie/base/random.h"
#include "reverie/rl/importance_weights.h"

namespace reverie {
namespace {

Status no_items(bool has_waited) {
  return failed_precondition(
      "the replay buffer has no items to sample; add steps first, or {}",
      has_waited ? "wait longer: timeout_s has passed" : "give timeout_s to wait");
}

}  // namespace

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
  TableOptions only;
  only.name = std::move(table);
  return open(std::move(service), std::vector{std::move(only)}, options, std::move(obs),
              std::move(action), seed);
}

Result<std::unique_ptr<ReplayBuffer>> ReplayBuffer::open(std::shared_ptr<ReplayService> service,
                                                         const std::vector<TableOptions>& tables,
                                                         const TransitionOptions& options,
                                                         std::vector<TensorSpec> obs,
                                                         std::vector<TensorSpec> action,
                                                         std::uint64_t seed) {
  REVERIE_CHECK(service != nullptr);
  REVERIE_ASSIGN_OR_RETURN(TransitionPlan plan,
                           TransitionPlan::make(options, std::move(obs), std::move(action)));
  std::vector<std::string> names;
  names.reserve(tables.size());
  for (const TableOptions& table : tables) names.push_back(table.name);
  REVERIE_ASSIGN_OR_RETURN(auto shards, ReplayShards::open(*service, std::move(names)));
  return std::unique_ptr<ReplayBuffer>(
      new ReplayBuffer(std::move(service), std::move(shards), std::move(plan), seed));
}

ReplayBuffer::ReplayBuffer(std::shared_ptr<ReplayService> service,
                           std::shared_ptr<const ReplayShards> shards, TransitionPlan plan,
                           std::uint64_t seed)
    : service_(std::move(service)),
      shards_(std::move(shards)),
      plan_(std::move(plan)),
      slabs_(SlabAllocator::make(plan_.chunk_rows() * plan_.schema()->step_bytes())),
      hindsight_(plan_.options().hindsight ? std::make_unique<HindsightIndex>(plan_, mix64(seed))
                                           : nullptr),
      writer_(plan_, *slabs_, seed, hindsight_.get()) {}

std::unique_ptr<ReplayBuffer> ReplayBuffer::beside(std::uint64_t seed) const {
  REVERIE_CHECK(hindsight_ == nullptr);
  // The copy shares the schema, which identifies items as this buffer's.
  return std::unique_ptr<ReplayBuffer>(new ReplayBuffer(service_, shards_, plan_, seed));
}

Status ReplayBuffer::add(const StepArrays& step) {
  MutexLock lock(add_mutex_);
  items_.clear();
  REVERIE_RETURN_IF_ERROR(writer_.append(step, items_));
  return insert();
}

Status ReplayBuffer::insert() {
  const std::size_t count = shards_->count();
  if (count == 1) return insert_into(shards_->table(0), items_);
  if (items_.size() == 1) return insert_into(shards_->table(shards_->of(items_[0])), items_);
  // A counting sort, so that each table is locked once.
  begins_.assign(count + 1, 0);
  for (const TrajectoryView& item : items_) ++begins_[shards_->of(item) + 1];
  for (std::size_t shard = 0; shard < count; ++shard) begins_[shard + 1] += begins_[shard];
  sorted_.resize(items_.size());
  // Afterwards begins_[i] is where shard i ends.
  for (const TrajectoryView& item : items_) sorted_[begins_[shards_->of(item)]++] = item;
  std::size_t begin = 0;
  for (std::size_t shard = 0; shard < count; ++shard) {
    const std::size_t end = begins_[shard];
    if (begin == end) continue;
    REVERIE_RETURN_IF_ERROR(
        insert_into(shards_->table(shard), std::span(sorted_).subspan(begin, end - begin)));
    begin = end;
  }
  return {};
}

Status ReplayBuffer::insert_into(const std::string& table, std::span<const TrajectoryView> items) {
  const std::size_t done = service_->insert_views(table, items);
  return done == items.size() ? Status() : insert_remaining(table, items.subspan(done));
}

Status ReplayBuffer::insert_remaining(const std::string& table,
                                      std::span<const TrajectoryView> items) {
  std::vector<Item> owned;
  owned.reserve(items.size());
  for (const TrajectoryView& item : items) {
    owned.push_back({0, {}, Trajectory(Ref<const Layout>::share(item.layout), item.pieces()), 0});
  }
  return insert_and_wait(*service_, {table, owned, TimePoint::max()}).status;
}

Status ReplayBuffer::draw_into(Scratch& scratch, std::size_t shard, const ReplayBufferDraw& draw,
                               const WaitOptions& wait) {
  SampleRequest request;
  request.table = shards_->table(shard);
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
    return no_items(draw.deadline != TimePoint{});
  }
  REVERIE_RETURN_IF_ERROR(result.status);
  if (scratch.batch.size() < draw.count) {
    return invalid_argument(
        "{} distinct items were asked for but the replay buffer has {}{}; ask for fewer, or sample "
        "with replacement",
        draw.count, scratch.batch.size(), shards_->count() > 1 ? " in the drawn shard" : "");
  }
  return {};
}

Status ReplayBuffer::draw_from_any(Scratch& scratch, const ReplayBufferDraw& draw,
                                   const WaitOptions& wait, std::size_t& shard) {
  if (const std::optional<std::size_t> chosen = shards_->choose(draw.shard_choice)) {
    shard = *chosen;
    return draw_into(scratch, shard, draw, wait);
  }
  // No table has any weight: all are empty, or the priorities of all items are 0. Then a table
  // draws its items alike.
  ReplayBufferDraw at_once = draw;
  at_once.deadline = TimePoint{};
  const std::size_t count = shards_->count();
  const auto first = static_cast<std::size_t>(draw.shard_choice * static_cast<double>(count));
  Status status = no_items(/*has_waited=*/false);
  for (std::size_t i = 0; i < count && status.code() == StatusCode::kFailedPrecondition; ++i) {
    shard = (first + i) % count;
    status = draw_into(scratch, shard, at_once, wait);
  }
  return status;
}

Status ReplayBuffer::sample(const ReplayBufferDraw& draw, const ReplayBufferTargets& targets,
                            const WaitOptions& wait) {
  REVERIE_CHECK(shards_->count() == 1 || !draw.over_buffer);
  std::unique_ptr<Scratch> scratch = scratch_.take();
  std::size_t shard = 0;
  Status status = draw_from_any(*scratch, draw, wait, shard);
  SampleBatch& batch = scratch->batch;
  if (status.ok()) {
    status = scratch->gather.gather(plan_, batch.trajectories(), targets.transitions);
  }
  if (status.ok() && hindsight_) hindsight_->relabel(batch.trajectories(), targets.transitions);
  if (status.ok()) {
    for (std::size_t i = 0; i < batch.size(); ++i) {
      targets.tickets[i] = shards_->ticket(shard, batch.tickets()[i]);
    }
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
  scratch_.give_back(std::move(scratch));
  return status;
}

Status ReplayBuffer::gather(std::span<const TrajectoryView> items,
                            const TransitionTargets& targets) {
  std::unique_ptr<Scratch> scratch = scratch_.take();
  Status status = scratch->gather.gather(plan_, items, targets);
  if (hindsight_) std::fill_n(targets.hindsight, items.size(), std::uint8_t{0});
  scratch_.give_back(std::move(scratch));
  return status;
}

StepCounts ReplayBuffer::counts() {
  MutexLock lock(add_mutex_);
  return writer_.counts();
}

// A batch's tickets are all of one shard.
template <typename Use>
Status ReplayBuffer::for_each_shard(Scratch& scratch, std::span<const std::uint64_t> tickets,
                                    std::span<const double> priorities, Use use) const {
  for (std::size_t begin = 0; begin < tickets.size();) {
    const std::size_t shard = shards_->shard_of(tickets[begin]);
    if (shard >= shards_->count()) {
      return invalid_argument(
          "tickets holds {} at place {} of {}, which no batch of this replay buffer has given: it "
          "is of shard {}, and there are {}; give the batch's tickets",
          tickets[begin], begin, tickets.size(), shard, shards_->count());
    }
    scratch.tickets.clear();
    std::size_t end = begin;
    for (; end < tickets.size() && shards_->shard_of(tickets[end]) == shard; ++end) {
      scratch.tickets.push_back(shards_->in_table(tickets[end]));
    }
    MutateRequest request;
    request.table = shards_->table(shard);
    request.tickets = scratch.tickets;
    request.ticket_priorities = priorities.subspan(begin, end - begin);
    REVERIE_RETURN_IF_ERROR(use(request));
    begin = end;
  }
  return {};
}

Result<std::size_t> ReplayBuffer::update(std::span<const std::uint64_t> tickets,
                                         std::span<const double> priorities,
                                         const WaitOptions& wait) {
  std::size_t updated = 0;
  const auto apply = [&](const MutateRequest& request) {
    const MutateResult result = mutate_and_wait(*service_, request, wait);
    updated += result.updated;
    return result.status;
  };
  Status status;
  // The table refuses spans of two sizes.
  if (shards_->count() == 1 || tickets.size() != priorities.size()) {
    MutateRequest request;
    request.table = shards_->table(0);
    request.tickets = tickets;
    request.ticket_priorities = priorities;
    status = apply(request);
  } else {
    std::unique_ptr<Scratch> scratch = scratch_.take();
    // Either all are applied or none, as in one table.
    status = for_each_shard(*scratch, tickets, priorities, [&](const MutateRequest& request) {
      return service_->check_mutation(request);
    });
    if (status.ok()) status = for_each_shard(*scratch, tickets, priorities, apply);
    scratch_.give_back(std::move(scratch));
  }
  REVERIE_RETURN_IF_ERROR(status);
  return updated;
}

Status ReplayBuffer::clear(const WaitOptions& wait) {
  MutexLock lock(add_mutex_);
  for (std::size_t shard = 0; shard < shards_->count(); ++shard) {
    REVERIE_RETURN_IF_ERROR(reset_and_wait(*service_, shards_->table(shard), wait));
  }
  writer_.clear();
  return {};
}

}  // namespace reverie
