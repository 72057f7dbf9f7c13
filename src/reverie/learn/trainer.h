// Trainer: one training from its first step to its last, on threads of its own.
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

// What a training is put together from.
struct TrainerParts {
  TrainSettings settings;  // with a seed
  std::unique_ptr<Agent> agent;
  EnvMaker make_envs;
  // A store with the table of training_table() (loops.h).
  std::shared_ptr<ReplayService> service;
  Clock* clock = &Clock::system();
  // Actors in other processes that may act too, at a time (served_actors.h): with no actors of its
  // own the training then has threads for its learners alone.
  std::size_t outside_actors_max = 0;

  // For checkpoints: the same store, which belongs to the training alone. Null: none are written.
  std::shared_ptr<LocalService> store;
  // What is trained in what, as a checkpoint tells: another's is refused.
  std::string identity;
  // A checkpoint to go on from, whose items the store gets: it is empty before. Null: from the
  // first step.
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
  std::optional<double> measured_interval;  // environment steps a batch since the warm-up
  double elapsed_s = 0;
  double loss = 0;  // of the last batch
  RatioGate::Waits waits;
  ParameterServer::Counts server;
};

// The policy of one moment, judged apart from the training.
struct Evaluation {
  std::uint64_t step = 0;  // of all actors when it began
  double mean_return = 0;
};

// Thread-safe, except start(). Not for a forked child, which has none of the threads.
class Trainer {
 public:
  // INVALID_ARGUMENT for settings that check_settings() refuses, or environments that the agent
  // cannot act in; else what the environments say.
  static Result<std::unique_ptr<Trainer>> open(TrainerParts parts);
  // Stops it.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  const TrainSettings& settings() const { return settings_; }
  const Agent& agent() const { return *agent_; }

  // FAILED_PRECONDITION in a forked child. To be asked before any other call there.
  Status check_usable() const { return fork_guard_.check("trainer"); }

  // Starts the threads. FAILED_PRECONDITION the second time, and after stop().
  Status start();
  // Waits until the training is over and its threads have ended, or until `deadline`: returns
  // whether it is over. So is one that was stopped before it was started.
  bool wait(TimePoint deadline);
  // Ends the training soon, within a step; wait() says when. Harmless before and after.
  void stop();

  // What ended the training early; ok otherwise.
  Status status() const;
  TrainProgress progress() const;
  // Episodes from number `first` on.
  std::vector<EpisodeRecord> episodes(std::size_t first) const { return log_.since(first); }

  // --- For actors in other processes.
  std::size_t outside_actors_max() const { return outside_actors_max_; }
  // The way into the table of one of them. Requires place < outside_actors_max().
  const std::shared_ptr<ReplayBuffer>& outside_replay(std::size_t place) const {
    return loops_.replays[loops_.outside_begin() + place];
  }
  // Steps that one has taken, which are in the table, and the episodes that ended in them.
  void collect(std::uint64_t steps, std::span<const EpisodeRecord> episodes);
  // Whether its actors have nothing to wait for, and nothing more to do.
  bool may_collect() const { return gate_->may_collect(); }
  bool wait_to_collect(TimePoint deadline) { return gate_->wait_to_collect(deadline); }
  bool has_all_steps() const { return gate_->is_all_collected(); }
  // The latest policy by its number, which rises. For one thread; valid until its next call.
  nn::PublishedParameters::Version newest_policy() { return server_->policy(settings_.actors + 1); }

  // Writes all that the training is as a checkpoint: weights, optimisers, replay, every generator,
  // the environments as their episodes' seeds and actions. Threads rest meanwhile, each between two
  // steps or batches. With one thread, a training that goes on from there is, bit for bit, the one
  // that was not interrupted. UNIMPLEMENTED where environments or the store cannot be saved; else
  // what Checkpointer::write() says. The training goes on either way. Returns the path.
  Result<std::string> save(checkpoint::Checkpointer& to);

  // A copy of the latest policy; while one thread acts and learns, of up to 64 steps before.
  nn::Parameters policy();
  // The evaluations so far, one every evaluation_interval steps.
  std::vector<Evaluation> evaluations() const;
  // The policy with the largest of them, the latest of equals; none before the first.
  std::optional<nn::Parameters> best_policy() const;
  // Episodes of `weights`, on the caller's thread.
  Result<std::vector<double>> evaluate(const nn::Parameters& weights, std::uint64_t seed,
                                       const EvaluateOptions& options) const;

 private:
  explicit Trainer(TrainerParts parts);
  UpdateRatioOptions ratio_options() const;
  double share_of(std::uint64_t steps) const;

  // Bodies of the threads. Each returns when the run is over, for whatever reason.
  Status run_in_turn();
  Status run_actor(std::size_t actor);
  Status run_learner(std::size_t learner);
  template <typename Body>
  void start_thread(Body body);
  Status learn_once(std::size_t learner, std::uint64_t steps);
  // While no thread is at work.
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
  // Judges the weights if another evaluation_interval has begun that no evaluation was of.
  Status evaluate_when_due(std::uint64_t steps, const nn::Parameters& weights);
  bool is_over() const REVERIE_REQUIRES(mutex_) {
    return is_started_ ? running_ == 0 : end_ != TrainEnd::kRunning;
  }
  // The first end counts.
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
  double elapsed_before_s_ = 0;  // of the runs that this one goes on from
  Mutex save_mutex_;             // one save at a time

  mutable Mutex evaluation_mutex_;
  std::uint64_t evaluated_ REVERIE_GUARDED_BY(evaluation_mutex_) = 0;  // intervals, begun
  std::vector<Evaluation> evaluations_ REVERIE_GUARDED_BY(evaluation_mutex_);
  nn::Parameters best_ REVERIE_GUARDED_BY(evaluation_mutex_);
  double best_mean_ REVERIE_GUARDED_BY(evaluation_mutex_) = 0;

  Mutex policy_mutex_;  // the caller's reader of the policy is one thread's at a time

  mutable Mutex mutex_;
  std::unique_ptr<CondVar> changed_ = std::make_unique<CondVar>();
  TrainEnd end_ REVERIE_GUARDED_BY(mutex_) = TrainEnd::kRunning;
  Status status_ REVERIE_GUARDED_BY(mutex_);
  bool is_started_ REVERIE_GUARDED_BY(mutex_) = false;
  std::size_t running_ REVERIE_GUARDED_BY(mutex_) = 0;  // threads
  TimePoint started_at_ REVERIE_GUARDED_BY(mutex_);
  TimePoint ended_at_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;  // of start(), joined by the destructor
};

}  // namespace reverie
