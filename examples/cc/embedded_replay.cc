// A replay loop in one process, without Python: an actor writes, a learner samples, and the rate
// limiter keeps them at 8 samples per insert.
//
//     actor thread    append(step), create_item(last 3 steps) --> table "walk"
//     learner         sample, assemble, learn, new priorities <------'
//
// The task is a random walk over 19 states, from the middle one. Its left end pays -1, its right
// end +1, so state s (1 to 19) has the value (s - 10) / 10, and the learner's error is known. The
// program prints the error while it decreases, which takes a second.
//
// Source: Sutton & Barto, 2nd ed., example 7.1.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/client/trajectory_writer.h"
#include "reverie/gather/batch.h"
#include "reverie/replay/local_service.h"
#include "reverie/rl/importance_weights.h"
#include "reverie/rl/n_step_return.h"
#include "reverie/service/blocking.h"

namespace {

using namespace reverie;

constexpr int kLeftEnd = 0;
constexpr int kRightEnd = 20;
constexpr std::uint32_t kWindow = 3;  // steps per item
constexpr std::size_t kBatch = 32;
constexpr int kBatches = 4'000;

// --- The store -----------------------------------------------------------------------------

TableOptions walk_table() {
  TableOptions table;
  table.name = "walk";
  table.sampler = {"Prioritized", {{"priority_exponent", 0.6}, {"seed", std::int64_t{7}}}};
  table.remover = {"Fifo", {}};
  table.max_size = 20'000;
  // 8 samples per insert, and none before 500 items; inserts and samples may be ahead of each other
  // by about 200 inserts.
  table.rate_limiter = {.samples_per_insert = 8,
                        .min_size_to_sample = 500,
                        .min_diff = 8 * 500 - 1'600,
                        .max_diff = 8 * 500 + 1'600};
  return table;
}

// --- The actor -----------------------------------------------------------------------------

template <typename T>
TensorView scalar(DType dtype, const T& value) {
  return {dtype, {}, std::as_bytes(std::span(&value, 1))};
}

class Actor {
 public:
  static Result<Actor> open(std::shared_ptr<ReplayService> service) {
    TrajectoryWriterOptions options;
    options.chunks.num_keep_alive_refs = kWindow;
    options.max_in_flight_items =
        1;  // so that the limiter holds back the actor itself, not only its items
    options.seed = 1;
    REVERIE_ASSIGN_OR_RETURN(auto writer, TrajectoryWriter::open(std::move(service), options));
    return Actor(std::move(writer));
  }

  // Walks until the writer refuses a step; returns its error.
  Status walk() {
    while (true) REVERIE_RETURN_IF_ERROR(walk_once());
  }

 private:
  explicit Actor(std::unique_ptr<TrajectoryWriter> writer)
      : writer_(std::move(writer)),
        state_(writer_->column("state")),
        reward_(writer_->column("reward")),
        discount_(writer_->column("discount")),
        next_state_(writer_->column("next_state")) {}

  Status walk_once() {
    std::int32_t state = 10;
    while (state != kLeftEnd && state != kRightEnd) {
      const std::int32_t next = state + (random_.below(2) == 0 ? -1 : 1);
      const bool terminated = next == kLeftEnd || next == kRightEnd;
      const float reward = next == kLeftEnd ? -1.0f : next == kRightEnd ? 1.0f : 0.0f;
      REVERIE_RETURN_IF_ERROR(step(state, reward, terminated ? 0.0f : 1.0f, next));
      state = next;
    }
    // Windows that begin near the end are filled with steps that do not change the return.
    for (std::uint32_t i = 1; i < kWindow; ++i) {
      REVERIE_RETURN_IF_ERROR(step(state, 0.0f, 1.0f, state));
    }
    return writer_->end_episode(/*clear_buffers=*/true, TimePoint::max(), {});
  }

  Status step(std::int32_t state, float reward, float discount, std::int32_t next_state) {
    const ColumnValue values[] = {{state_, scalar(DType::kInt32, state)},
                                  {reward_, scalar(DType::kFloat32, reward)},
                                  {discount_, scalar(DType::kFloat32, discount)},
                                  {next_state_, scalar(DType::kInt32, next_state)}};
    REVERIE_RETURN_IF_ERROR(writer_->append(values, /*partial_step=*/false));
    return writer_->episode_steps() < kWindow ? Status() : create_item();
  }

  // An item over the last steps: the first state, all rewards and discounts, and the state after
  // them. Nothing is copied.
  Status create_item() {
    const StepIndex end = writer_->next_step();
    const StepRange window{end - kWindow, kWindow};
    const StepRange first{end - kWindow, 1};
    const StepRange last{end - 1, 1};
    const TrajectoryColumn columns[] = {{"state", state_, {&first, 1}, /*squeezed=*/true},
                                        {"rewards", reward_, {&window, 1}},
                                        {"discounts", discount_, {&window, 1}},
                                        {"next_state", next_state_, {&last, 1}, /*squeezed=*/true}};
    // Without a priority, the item gets the largest one so far, so that it is sampled soon.
    NewItem item;
    item.table = "walk";
    item.columns = columns;
    return writer_->create_item(item, TimePoint::max(), {});
  }

  std::unique_ptr<TrajectoryWriter> writer_;
  ColumnId state_, reward_, discount_, next_state_;
  Random random_{std::uint64_t{3}};
};

// --- The learner ---------------------------------------------------------------------------

template <typename T>
std::span<const T> values_of(const BatchColumn& column) {
  return {reinterpret_cast<const T*>(column.bytes.data()), column.bytes.size_bytes() / sizeof(T)};
}

class Learner {
 public:
  explicit Learner(std::shared_ptr<ReplayService> service) : service_(std::move(service)) {}

  // Draws a batch, moves the values towards its returns, and sends the errors as priorities.
  Status learn_once() {
    SampleResult drawn = sample_and_wait(
        *service_,
        {.table = "walk", .count = kBatch, .min_count = kBatch, .batch = std::move(samples_)});
    REVERIE_RETURN_IF_ERROR(drawn.status);
    samples_ = std::move(drawn.batch);  // the next draw reuses its memory
    REVERIE_RETURN_IF_ERROR(assemble_into(samples_, {}, batch_));

    const auto states = values_of<std::int32_t>(batch_.columns[0]);
    const auto rewards = values_of<float>(batch_.columns[1]);  // [32, 3]
    const auto discounts = values_of<float>(batch_.columns[2]);
    const auto next_states = values_of<std::int32_t>(batch_.columns[3]);
    std::vector<float> bootstrap(kBatch), targets(kBatch), weights(kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) bootstrap[i] = value(next_states[i]);
    n_step_returns(rewards, discounts, bootstrap, targets);
    REVERIE_RETURN_IF_ERROR(importance_weights(samples_.probabilities(),
                                               static_cast<std::size_t>(samples_.table_sizes()[0]),
                                               /*beta=*/1.0, WeightScale::kBatchMaximum, weights));
    std::vector<double> priorities(kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) {
      const float error = targets[i] - value(states[i]);
      value(states[i]) += step_size_ * weights[i] * error;
      priorities[i] = std::abs(error) + 0.01;
    }
    MutateRequest update;
    update.table = "walk";
    update.tickets = samples_.tickets();  // tickets find items without a look-up
    update.ticket_priorities = priorities;
    REVERIE_RETURN_IF_ERROR(mutate_and_wait(*service_, update).status);
    step_size_ *= 0.9995f;
    samples_.clear();  // releases the items
    return {};
  }

  // The root mean squared error over all states.
  double error() {
    double sum = 0;
    for (int state = 1; state < kRightEnd; ++state) {
      const double wrong = static_cast<double>(value(state)) - (state - 10) / 10.0;
      sum += wrong * wrong;
    }
    return std::sqrt(sum / (kRightEnd - 1));
  }

 private:
  float& value(int state) { return values_[static_cast<std::size_t>(state)]; }

  std::shared_ptr<ReplayService> service_;
  SampleBatch samples_;
  Batch batch_;
  float step_size_ = 0.1f;
  std::vector<float> values_ = std::vector<float>(kRightEnd + 1, 0.0f);
};

Status run() {
  REVERIE_ASSIGN_OR_RETURN(const auto service, LocalService::open({walk_table()}, {}));
  REVERIE_ASSIGN_OR_RETURN(Actor actor, Actor::open(service));
  Status acted;
  std::thread actor_thread([&] {
    acted = actor.walk();
    service->close();  // so that the learner does not wait for an actor that has ended
  });

  Learner learner(service);
  Status learnt;
  std::printf("%8s  %9s\n", "batches", "rms error");
  for (int batch = 0; batch <= kBatches && learnt.ok(); ++batch) {
    if (batch % (kBatches / 8) == 0) std::printf("%8d  %9.3f\n", batch, learner.error());
    learnt = learner.learn_once();
  }
  const auto info = info_and_wait(*service);
  service->close();  // ends the actor, which waits for the limiter
  actor_thread.join();
  if (acted.code() != StatusCode::kCancelled) return acted;
  REVERIE_RETURN_IF_ERROR(learnt);
  REVERIE_RETURN_IF_ERROR(info.status());

  const TableInfo& table = info->front();
  std::printf("%lld inserts and %lld samples: %.1f samples an insert\n",
              static_cast<long long>(table.inserts), static_cast<long long>(table.samples),
              static_cast<double>(table.samples) / static_cast<double>(table.inserts));
  if (learner.error() > 0.1) return internal_error("the values are off by {:.3f}", learner.error());
  return {};
}

}  // namespace

int main() {
  const Status status = run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}
