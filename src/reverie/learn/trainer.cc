// Threads, evaluations and queries. Checkpoints are in trainer_checkpoint.cc.
//
// Tested in tests/integration/training_test.cc.
#include "reverie/learn/trainer.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/check.h"
#include "reverie/base/start_thread.h"

namespace reverie {
namespace {

// If one thread acts and learns, not every version is needed. Nor do actors on other cores need
// every one: a step changes little, while each copy evicts lines from their caches.
constexpr std::uint64_t kPublishInTurn = 64;
constexpr std::uint64_t kPublishToActors = 4;

}  // namespace

std::string_view train_end_name(TrainEnd end) {
  switch (end) {
    case TrainEnd::kRunning:
      return "running";
    case TrainEnd::kAllSteps:
      return "all steps";
    case TrainEnd::kReturnReached:
      return "return reached";
    case TrainEnd::kStopped:
      return "stopped";
    case TrainEnd::kFailed:
      return "failed";
  }
  return "";
}

Result<std::unique_ptr<Trainer>> Trainer::open(TrainerParts parts) {
  REVERIE_CHECK(parts.agent != nullptr && parts.service != nullptr && parts.make_envs);
  REVERIE_CHECK(parts.settings.seed.has_value());
  REVERIE_RETURN_IF_ERROR(check_settings(parts.settings));
  const TrainSettings& given = parts.settings;
  if (given.actors == 0 && given.learners > 1 && parts.outside_actors_max == 0) {
    return invalid_argument(
        "learners is {} but actors is 0, which is one thread that does both; give actors too, or "
        "let actors join from other processes (listen)",
        given.learners);
  }
  checkpoint::LoadedCheckpoint* const resume = parts.resume;
  if (resume != nullptr) {
    REVERIE_CHECK(parts.store != nullptr);
    // Before the parameter server, which starts with the agent's weights at that time.
    REVERIE_RETURN_IF_ERROR(restore_agent(parts));
  }
  std::unique_ptr<Trainer> trainer(new Trainer(std::move(parts)));
  REVERIE_ASSIGN_OR_RETURN(
      trainer->loops_, open_loops(trainer->settings_, *trainer->agent_, trainer->make_envs_,
                                  trainer->service_, trainer->log_, trainer->outside_actors_max_));
  if (resume != nullptr) REVERIE_RETURN_IF_ERROR(trainer->restore(*resume));
  if (trainer->loops_.replays.size() > trainer->loops_.outside_begin()) trainer->hold_batches();
  return trainer;
}

// The warm-up ensures an item only for the actors of this process.
void Trainer::hold_batches() {
  std::vector<const std::atomic<double>*> masses;
  const ReplayShards& shards = loops_.replays.front()->shards();
  for (std::size_t i = 0; i < shards.count(); ++i) {
    masses.push_back(service_->mass(shards.table(i)));  // null if not in this process
  }
  gate_->hold_batches_until([masses = std::move(masses)] {
    return std::ranges::any_of(masses, [](const auto* mass) { return !mass || *mass > 0; });
  });
}

Trainer::Trainer(TrainerParts parts)
    : settings_(std::move(parts.settings)),
      outside_actors_max_(parts.outside_actors_max),
      clock_(*parts.clock),
      agent_(std::move(parts.agent)),
      make_envs_(std::move(parts.make_envs)),
      service_(std::move(parts.service)),
      store_(std::move(parts.store)),
      identity_(std::move(parts.identity)),
      log_(settings_.return_window),
      gate_(std::make_unique<RatioGate>(ratio_options(), clock_)) {
  ParameterServerOptions options;
  options.learner_count = settings_.learners;
  options.reader_count = settings_.actors + 2;  // the last are for policy(), newest_policy()
  options.asynchronous = settings_.asynchronous;
  options.staleness_max = settings_.staleness_max;
  options.shrink_stale_steps = settings_.shrink_stale_steps;
  if (!settings_.asynchronous) {
    options.publish_interval = is_in_turn() ? kPublishInTurn : kPublishToActors;
  }
  server_ = std::make_unique<ParameterServer>(*agent_, options);
}

UpdateRatioOptions Trainer::ratio_options() const {
  UpdateRatioOptions options;
  options.steps = settings_.steps;
  options.warmup = settings_.warmup_steps;
  options.update_interval = settings_.update_interval;
  options.lead = settings_.lead_steps;
  options.actor_stride = settings_.envs_per_actor;
  options.batches_per_round = settings_.asynchronous ? 1 : settings_.learners;
  return options;
}

Trainer::~Trainer() {
  if (!check_usable().ok()) {
    // In a forked child the threads belong to the parent, and what they held or waited for at the
    // fork stays so. Nothing that contains a lock is destroyed.
    leave_to_parent(std::move(threads_));
    leave_to_parent(std::move(loops_));
    leave_to_parent(std::move(service_));
    leave_to_parent(std::move(server_));
    leave_to_parent(std::move(gate_));
    leave_to_parent(std::move(changed_));
    return;
  }
  stop();
  for (std::thread& thread : threads_) thread.join();
}

// --- Threads -----------------------------------------------------------------------------------

template <typename Body>
Status Trainer::add_thread(Body body) {
  auto started = start_thread("the training", [this, body = std::move(body)] {
    Status status;
    try {
      status = body();
    } catch (const std::exception& error) {
      status = internal_error("a thread of the training raised: {}", error.what());
    }
    if (!status.ok() && status.code() != StatusCode::kCancelled) end(TrainEnd::kFailed, status);
    leave();
  });
  REVERIE_RETURN_IF_ERROR(started.status());
  threads_.push_back(std::move(*started));
  return {};
}

void Trainer::leave() {
  gate_->detach();
  MutexLock lock(mutex_);
  if (--running_ > 0) return;
  if (end_ == TrainEnd::kRunning) end_ = TrainEnd::kAllSteps;
  ended_at_ = clock_.now();
  changed_->notify_all();
}

Status Trainer::start() {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("trainer"));
  const std::size_t thread_count = is_in_turn() ? 1 : settings_.actors + settings_.learners;
  {
    MutexLock lock(mutex_);
    if (is_started_) return failed_precondition("the training was started before");
    if (end_ != TrainEnd::kRunning) {
      return failed_precondition("the training was stopped before; make another one");
    }
    is_started_ = true;
    started_at_ = clock_.now();
    running_ = thread_count;
    gate_->attach(running_);
  }
  threads_.reserve(thread_count);
  Status status = add_threads();
  if (status.ok()) return {};
  // Those that were started end within a step; the others are over already.
  end(TrainEnd::kFailed, status);
  for (std::size_t i = threads_.size(); i < thread_count; ++i) leave();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return status;
}

Status Trainer::add_threads() {
  if (is_in_turn()) return add_thread([this] { return run_in_turn(); });
  for (std::size_t learner = 0; learner < settings_.learners; ++learner) {
    REVERIE_RETURN_IF_ERROR(add_thread([this, learner] { return run_learner(learner); }));
  }
  for (std::size_t actor = 0; actor < settings_.actors; ++actor) {
    REVERIE_RETURN_IF_ERROR(add_thread([this, actor] { return run_actor(actor); }));
  }
  return {};
}

bool Trainer::wait(TimePoint deadline) {
  MutexLock lock(mutex_);
  while (!is_over()) {
    if (!clock_.wait_until(*changed_, mutex_, deadline)) break;
  }
  return is_over();
}

void Trainer::stop() {
  end(TrainEnd::kStopped, {});
}

void Trainer::end(TrainEnd how, Status status) {
  {
    MutexLock lock(mutex_);
    if (end_ == TrainEnd::kRunning) {
      end_ = how;
      status_ = std::move(status);
    }
    changed_->notify_all();
  }
  gate_->stop();
  // A gradient that waits for no other one is still used, so that a step that was begun is
  // completed and saved.
  if (!settings_.asynchronous && settings_.learners > 1) server_->stop();
}

double Trainer::share_of(std::uint64_t steps) const {
  return std::min(1.0, static_cast<double>(steps) / static_cast<double>(settings_.steps));
}

Status Trainer::run_actor(std::size_t actor) {
  ActorLoop& loop = *loops_.actors[actor];
  PublishedPolicy weights(*server_, actor);
  std::uint64_t steps = gate_->collected();
  const auto evaluate_now = [&]() -> Status {
    REVERIE_ASSIGN_OR_RETURN(const nn::PublishedParameters::Version policy, weights.newest());
    return evaluate_when_due(gate_->collected(), *policy.parameters);
  };
  check_return();
  // In a resumed training: one that the stop had ended.
  REVERIE_RETURN_IF_ERROR(evaluate_now());
  while (gate_->begin_collect()) {
    REVERIE_ASSIGN_OR_RETURN(const nn::PublishedParameters::Version policy, weights.newest());
    REVERIE_RETURN_IF_ERROR(loop.step(*policy.parameters, steps));
    steps = gate_->collect(loop.env_count());
    check_return();
    REVERIE_RETURN_IF_ERROR(evaluate_when_due(steps, *policy.parameters));
  }
  // The last steps may have been those of an actor in another process.
  return evaluate_now();
}

Status Trainer::run_learner(std::size_t learner) {
  const bool alone = settings_.asynchronous || settings_.learners == 1;
  // Without actor threads, the learner evaluates.
  const bool evaluates = settings_.actors == 0 && learner == 0;
  const auto evaluate_now = [&]() -> Status {
    if (!evaluates || !is_evaluation_due(gate_->collected())) return {};
    return evaluate_when_due(gate_->collected(), policy());
  };
  REVERIE_RETURN_IF_ERROR(evaluate_now());
  for (std::uint64_t round = gate_->ratio().learned() / settings_.learners;; ++round) {
    const bool goes_on = alone ? gate_->begin_next_batch()
                               : gate_->begin_batch((round + 1) * settings_.learners - 1);
    if (!goes_on) return evaluate_now();
    REVERIE_RETURN_IF_ERROR(learn_once(learner, gate_->collected()));
    gate_->learn(1);
    REVERIE_RETURN_IF_ERROR(evaluate_now());
  }
}

Status Trainer::run_in_turn() {
  ActorLoop& actor = *loops_.actors.front();
  const UpdateRatio begin = gate_->ratio();
  std::uint64_t batch = begin.learned();
  std::uint64_t steps = begin.collected();
  // A batch that a checkpoint was written before comes first.
  for (;;) {
    check_return();
    REVERIE_RETURN_IF_ERROR(evaluate_when_due(steps, *agent_->weights().networks[0]));
    for (; gate_->may_begin_batch(batch); ++batch) {
      if (gate_->is_stopped()) return {};
      REVERIE_RETURN_IF_ERROR(learn_once(0, steps));
      gate_->learn(1);
    }
    if (!gate_->begin_collect()) return {};
    REVERIE_RETURN_IF_ERROR(actor.step(*agent_->weights().networks[0], steps));
    steps = gate_->collect(actor.env_count());
  }
}

Status Trainer::learn_once(std::size_t learner, std::uint64_t steps) {
  LearnerLoop& loop = *loops_.learners[learner];
  const double progress = share_of(steps);
  // A gradient that is too stale is dropped and computed again, from another batch.
  for (;;) {
    REVERIE_RETURN_IF_ERROR(loop.sample(progress));
    const WeightsView weights = server_->weights(learner);
    const std::uint64_t version = weights.version;
    Gradients& gradients = loop.learn(weights);
    loss_.store(gradients.loss, std::memory_order_relaxed);
    REVERIE_RETURN_IF_ERROR(loop.check_errors());
    REVERIE_ASSIGN_OR_RETURN(const bool is_used,
                             server_->submit(learner, gradients, version, progress));
    if (!is_used) continue;
    return loop.update_priorities();
  }
}

void Trainer::check_return() {
  if (!settings_.stop_at_return) return;
  const std::optional<double> mean = log_.window_mean();
  if (mean && *mean >= *settings_.stop_at_return) end(TrainEnd::kReturnReached, {});
}

void Trainer::collect(const std::function<OutsideSteps()>& insert) {
  MutexLock lock(outside_mutex_);
  OutsideSteps inserted = insert();
  const std::uint64_t all = gate_->collect_outside(inserted.steps);
  for (EpisodeRecord& episode : inserted.episodes) {
    episode.step = all;
    log_.add(episode);
  }
  if (!inserted.episodes.empty()) check_return();
}

bool Trainer::is_evaluation_due(std::uint64_t steps) {
  const std::uint64_t interval = settings_.evaluation_interval;
  MutexLock lock(evaluation_mutex_);
  return interval > 0 && steps / interval > evaluation_begun_;
}

Status Trainer::evaluate_when_due(std::uint64_t steps, const nn::Parameters& weights) {
  const std::uint64_t interval = settings_.evaluation_interval;
  if (interval == 0 || gate_->is_stopped()) return {};
  const std::uint64_t number = steps / interval;
  {
    MutexLock lock(evaluation_mutex_);
    if (number <= evaluation_begun_) return {};
    evaluation_begun_ = number;
  }
  EvaluateOptions options;
  options.episode_count = settings_.evaluation_episodes;
  options.interrupted = [this] { return gate_->is_stopped(); };
  const std::uint64_t seed = derived_seed(*settings_.seed, SeedUse::kEvaluation, number);
  REVERIE_ASSIGN_OR_RETURN(const std::vector<double> returns,
                           reverie::evaluate(make_envs_, *agent_, weights, seed, options));
  double sum = 0;
  for (const double value : returns) sum += value;
  const double mean = sum / static_cast<double>(returns.size());
  MutexLock lock(evaluation_mutex_);
  evaluated_ = std::max(evaluated_, number);
  // Those of several actors overlap, and do not always end in the order of their steps.
  const auto later = std::ranges::upper_bound(evaluations_, steps, {}, &Evaluation::step);
  const auto is_best = [best = best_mean_](const Evaluation& one) {
    return one.mean_return == best;
  };
  const bool has_later_best = std::any_of(later, evaluations_.end(), is_best);
  if (evaluations_.empty() || mean > best_mean_ || (mean == best_mean_ && !has_later_best)) {
    best_ = weights.copy();
    best_mean_ = mean;
  }
  evaluations_.insert(later, {steps, mean});
  return {};
}

// --- What callers ask --------------------------------------------------------------------------

Status Trainer::status() const {
  MutexLock lock(mutex_);
  return status_;
}

TrainProgress Trainer::progress() const {
  TrainProgress progress;
  const UpdateRatio ratio = gate_->ratio();
  progress.steps = ratio.collected();
  progress.batches = ratio.learned();
  progress.batch_count = ratio.batch_count();
  progress.measured_interval = ratio.measured_interval();
  progress.server = server_->counts();
  progress.updates = progress.server.steps;
  progress.episodes = log_.count();
  progress.mean_return = log_.mean();
  progress.loss = loss_.load(std::memory_order_relaxed);
  progress.waits = gate_->waits();
  progress.elapsed_s = elapsed_before_s_;
  MutexLock lock(mutex_);
  progress.end = is_over() ? end_ : TrainEnd::kRunning;
  if (is_started_) {
    progress.elapsed_s += to_seconds((is_over() ? ended_at_ : clock_.now()) - started_at_);
  }
  return progress;
}

nn::Parameters Trainer::policy() {
  // No learner runs before the first step and after the last one.
  bool is_idle = false;
  {
    MutexLock lock(mutex_);
    is_idle = !is_started_ || running_ == 0;
  }
  if (is_idle) return agent_->weights().networks[0]->copy();
  MutexLock lock(policy_mutex_);
  return server_->policy(settings_.actors).parameters->copy();
}

std::vector<Evaluation> Trainer::evaluations() const {
  MutexLock lock(evaluation_mutex_);
  return evaluations_;
}

std::optional<nn::Parameters> Trainer::best_policy() const {
  MutexLock lock(evaluation_mutex_);
  if (evaluations_.empty()) return std::nullopt;
  return best_.copy();
}

Result<std::vector<double>> Trainer::evaluate(const nn::Parameters& weights, std::uint64_t seed,
                                              const EvaluateOptions& options) const {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("trainer"));
  return reverie::evaluate(make_envs_, *agent_, weights, seed, options);
}

}  // namespace reverie
