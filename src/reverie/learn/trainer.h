// Trainer: one training from its first step to its last, on its own threads.
//
//     actors 0      one thread: act, learn, act, learn, ...            a seed repeats the run
//
//     actors >= 1   actor threads --> replay --> learner threads       RatioGate holds their ratio
//                        ^--- weights --- ParameterServer <--'
//
//     REVERIE_ASSIGN_OR_RETURN(auto trainer, Trainer::open(std::move(parts)));
//     trainer->start();
//     while (!trainer->wait(clock.now() + seconds(1))) print(trainer->progress());
//     REVERIE_RETURN_IF_ERROR(trainer->status());
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/learn/actor_loop.h"
#include "reverie/learn/evaluate.h"
#include "reverie/learn/learner_loop.h"
#include "reverie/learn/loops.h"
#include "reverie/learn/parameter_server.h"
#include "reverie/learn/return_log.h"
#include "reverie/learn/train_settings.h"
#include "reverie/learn/update_ratio.h"

namespace reverie {

// The parts of a training.
struct TrainerParts {
  TrainSettings settings;  // with a seed
  std::unique_ptr<Agent> agent;
  EnvMaker make_envs;
  // A store with the tables of training_tables() (loops.h).
  std::shared_ptr<ReplayService> service;
  Clock* clock = &Clock::system();
  // The most actors in other processes at a time (served_actors.h): with `actors` 0 the training
  // then has only learner threads.
  std::size_t outside_actors_max = 0;

  // For checkpoints: the same store, which only the training uses. Null: no checkpoints.
  std::shared_ptr<LocalService> store;
  // Names algorithm and environment in checkpoints: those of another training are refused.
  std::string identity;
  // A checkpoint to continue, whose items go into the store, which must be empty. Null: starts at
  // the first step.
  checkpoint::LoadedCheckpoint* resume = nullptr;
};

enum class TrainEnd : std::uint8_t { kRunning, kAllSteps, kReturnReached, kStopped, kFailed };
// "running", "all steps", "return reached", "stopped", "failed".
std::string_view train_end_name(TrainEnd end);

struct TrainProgress {
  TrainEnd end = TrainEnd::kRunning;
  std::uint64_t steps = 0;        // of the environments
  std::uint64_t batches = 0;      // learned from
  std::uint64_t updates = 0;      // steps of the optimiser
  std::uint64_t batch_count = 0;  // of the whole run
  std::uint64_t episodes = 0;
  std::optional<double> mean_return;        // of the last return_window episodes, or of fewer
  std::optional<double> measured_interval;  // environment steps per batch since the warm-up
  double elapsed_s = 0;
  double loss = 0;  // of the last batch
  RatioGate::Waits waits;
  ParameterServer::Counts server;
};

// An evaluation of the policy at one moment, apart from the training.
struct Evaluation {
  std::uint64_t step = 0;  // of all actors when it began
  double mean_return = 0;
};

// Thread-safe, except start(). Not usable in a forked child, which does not have the threads.
class Trainer {
 public:
  // INVALID_ARGUMENT for settings that check_settings() refuses, several learners without an actor
  // anywhere, or environments that the agent cannot act in; else the environments' error.
  static Result<std::unique_ptr<Trainer>> open(TrainerParts parts);
  // Stops the training.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  const TrainSettings& settings() const { return settings_; }
  const Agent& agent() const { return *agent_; }

  // FAILED_PRECONDITION in a forked child. Call it before any other method there.
  Status check_usable() const { return fork_guard_.check("trainer"); }

  // Starts the threads. FAILED_PRECONDITION the second time, and after stop(). RESOURCE_EXHAUSTED
  // if the system has not as many threads: then the training has failed, and no thread runs.
  Status start();
  // Waits until the training is over and its threads have ended, or until `deadline`: returns
  // whether it is over. A training that was stopped before its start counts as over.
  bool wait(TimePoint deadline);
  // Ends the training soon, within a step; wait() tells when. No effect if it is not running.
  void stop();

  // What ended the training early; ok otherwise.
  Status status() const;
  TrainProgress progress() const;
  // Episodes from number `first` on.
  std::vector<EpisodeRecord> episodes(std::size_t first) const { return log_.since(first); }

  // --- For actors in other processes.
  std::size_t outside_actors_max() const { return outside_actors_max_; }
  // The replay buffer of one of them. Requires place < outside_actors_max().
  const std::shared_ptr<ReplayBuffer>& outside_replay(std::size_t place) const {
    return loops_.replays[loops_.outside_begin() + place];
  }
  struct OutsideSteps {
    std::uint64_t steps = 0;
    std::vector<EpisodeRecord> episodes;  // that ended in them; `step` is not set
  };
  // Calls `insert`, which puts steps that one has taken into its replay buffer, and counts them. No
  // checkpoint has the steps without their count, or the count without the steps.
  void collect(const std::function<OutsideSteps()>& insert);
  // may_collect(): whether they need not wait. has_all_steps(): whether nothing is left to do.
  bool may_collect() const { return gate_->may_collect(); }
  bool wait_to_collect(TimePoint deadline) { return gate_->wait_to_collect(deadline); }
  bool has_all_steps() const { return gate_->is_all_collected(); }
  // The latest policy; its version only grows. For one thread; valid until its next call.
  nn::PublishedParameters::Version newest_policy() { return server_->policy(settings_.actors + 1); }

  // Writes the whole state of the training as a checkpoint: weights, optimisers, replay, every
  // generator, the environments as their episodes' seeds and actions. Threads pause meanwhile, each
  // between two steps or batches. With one thread, a training that continues from it equals, bit
  // for bit, the uninterrupted one. UNIMPLEMENTED if environments or the store cannot be saved;
  // else the error of Checkpointer::write(). The training continues either way. Returns the path.
  // A thread may be within an evaluation: `interrupted` is called while that is waited for, and
  // ends the wait with CANCELLED if it returns true.
  Result<std::string> save(checkpoint::Checkpointer& to,
                           const std::function<bool()>& interrupted = {});

  // Weights and evaluations of the training that a checkpoint with this payload is of, for
  // evaluate(). Its environment and networks must be the same, its other settings need not.
  // Requires that this one is never started.
  Status load_policy(std::span<const std::byte> state);

  // A copy of the latest policy; if one thread acts and learns, it may be up to 64 steps old.
  nn::Parameters policy();
  // The evaluations so far, one every evaluation_interval steps.
  std::vector<Evaluation> evaluations() const;
  // The policy with the best evaluation, the latest among equals; none before the first.
  std::optional<nn::Parameters> best_policy() const;
  // Runs episodes with `weights`, on the caller's thread.
  Result<std::vector<double>> evaluate(const nn::Parameters& weights, std::uint64_t seed,
                                       const EvaluateOptions& options) const;

 private:
  explicit Trainer(TrainerParts parts);
  UpdateRatioOptions ratio_options() const;
  // Until the replay has an item.
  void hold_batches();
  double share_of(std::uint64_t steps) const;

  // Bodies of the threads. Each returns when the run is over, for whatever reason.
  Status run_in_turn();
  Status run_actor(std::size_t actor);
  Status run_learner(std::size_t learner);
  Status add_threads();
  template <typename Body>
  Status add_thread(Body body);
  // A thread has ended, or could not be started.
  void leave();
  Status learn_once(std::size_t learner, std::uint64_t steps);
  // Requires that no thread is running.
  Result<std::string> write(checkpoint::Checkpointer& to);
  Status write_state(ByteWriter& out);
  // The agent of `parts`, from the checkpoint that they resume.
  static Status restore_agent(TrainerParts& parts);
  Status restore(checkpoint::LoadedCheckpoint& from);
  Status read_run(ByteReader in);
  void check_return();
  // Whether one thread acts and learns.
  bool is_in_turn() const { return settings_.actors == 0 && outside_actors_max_ == 0; }
  bool is_evaluation_due(std::uint64_t steps) REVERIE_EXCLUDES(evaluation_mutex_);
  // Evaluates the weights if a new evaluation_interval has begun.
  Status evaluate_when_due(std::uint64_t steps, const nn::Parameters& weights);
  bool is_over() const REVERIE_REQUIRES(mutex_) {
    return is_started_ ? running_ == 0 : end_ != TrainEnd::kRunning;
  }
  // Only the first end counts.
  void end(TrainEnd how, Status status);

  const TrainSettings settings_;
  const std::size_t outside_actors_max_;
  Clock& clock_;
  std::unique_ptr<Agent> agent_;
  EnvMaker make_envs_;
  std::shared_ptr<ReplayService> service_;
  std::shared_ptr<LocalService> store_;
  const std::string identity_;
  ReturnLog log_;
  std::unique_ptr<RatioGate> gate_;
  std::unique_ptr<ParameterServer> server_;
  Loops loops_;
  std::atomic<double> loss_{0};
  ForkGuard fork_guard_;
  double elapsed_before_s_ = 0;  // of the runs that this one continues
  Mutex save_mutex_;             // one save at a time
  Mutex outside_mutex_;          // steps of other processes are inserted and counted, or saved

  mutable Mutex evaluation_mutex_;
  // The last interval whose evaluation has begun, and the last whose has ended (in checkpoints).
  std::uint64_t evaluation_begun_ REVERIE_GUARDED_BY(evaluation_mutex_) = 0;
  std::uint64_t evaluated_ REVERIE_GUARDED_BY(evaluation_mutex_) = 0;
  std::vector<Evaluation> evaluations_ REVERIE_GUARDED_BY(evaluation_mutex_);
  nn::Parameters best_ REVERIE_GUARDED_BY(evaluation_mutex_);
  double best_mean_ REVERIE_GUARDED_BY(evaluation_mutex_) = 0;

  Mutex policy_mutex_;  // one thread at a time uses the caller's reader

  mutable Mutex mutex_;
  std::unique_ptr<CondVar> changed_ = std::make_unique<CondVar>();
  TrainEnd end_ REVERIE_GUARDED_BY(mutex_) = TrainEnd::kRunning;
  Status status_ REVERIE_GUARDED_BY(mutex_);
  bool is_started_ REVERIE_GUARDED_BY(mutex_) = false;
  std::size_t running_ REVERIE_GUARDED_BY(mutex_) = 0;  // threads
  TimePoint started_at_ REVERIE_GUARDED_BY(mutex_);
  TimePoint ended_at_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;  // started by start(), joined by the destructor
};

}  // namespace reverie
