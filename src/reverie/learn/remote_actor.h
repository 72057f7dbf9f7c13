// RemoteActor: an actor of a training that runs in another process (served_actors.h).
//
//     auto actor = RemoteActor::open(std::move(parts)).value();
//     while (!actor->run(clock.now() + seconds(1)).value()) {}     // true: the training is over
//
// It pulls the policy when there is a newer one, steps its environments, and reports the steps,
// which the training puts into its table. It has no thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/calls/notice.h"
#include "reverie/calls/pending_call.h"
#include "reverie/learn/actor_envs.h"
#include "reverie/learn/actor_loop.h"
#include "reverie/learn/actor_messages.h"
#include "reverie/learn/agent.h"
#include "reverie/learn/policy_channel.h"
#include "reverie/learn/return_log.h"
#include "reverie/learn/step_report.h"
#include "reverie/learn/train_settings.h"

namespace reverie {

struct RemoteActorParts {
  std::shared_ptr<Peer> peer;  // connected, so that it finds the learner
  std::string learner;         // the name of its peer
  std::uint64_t number = 0;    // of this actor; equal numbers would act alike
  std::uint64_t run = 0;       // ServedActors::run(); 0: any
  // kTrainingEndFunction of that peer. Without a value open() makes it: then an end that was told
  // before is missed.
  std::shared_ptr<Notice> end = nullptr;
  TrainSettings settings;  // the training's, all of them
  std::unique_ptr<Agent> agent;
  EnvMaker make_envs;
};

// Only one thread at a time may use it, except for stop().
class RemoteActor {
 public:
  struct Counts {
    std::uint64_t steps = 0;  // of this actor
    std::uint64_t episodes = 0;
    std::uint64_t policies = 0;  // versions that it has taken
    std::uint64_t reports = 0;
  };

  // Errors of the environments or the peer; UNAVAILABLE if the training is over.
  static Result<std::unique_ptr<RemoteActor>> open(RemoteActorParts parts);
  ~RemoteActor();

  // Acts until `until`: false; or until the training is over: true. UNAVAILABLE if the learner
  // cannot be reached, or was started again: join again. RESOURCE_EXHAUSTED if it has no place for
  // this actor, CANCELLED after stop(); else the environments' error.
  Result<bool> run(TimePoint until);
  // Ends current and future run() calls soon. Any thread.
  void stop() { is_stopped_ = true; }
  Counts counts() const { return counts_; }

 private:
  explicit RemoteActor(RemoteActorParts parts);
  Status begin_report();
  // Whether the answer has arrived by then.
  Result<bool> finish_report(TimePoint until);
  bool is_learner_connected();
  Status gone();

  const RemoteActorParts parts_;
  std::shared_ptr<Notice> end_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<WeightsSource> policies_;
  nn::PublishedParameters::Version policy_;
  ReturnLog log_;
  std::unique_ptr<ActorLoop> loop_;
  StepReport* steps_ = nullptr;          // the loop's
  std::shared_ptr<PendingCall> report_;  // not answered yet
  ActorOrder order_;
  std::size_t reported_episodes_ = 0;
  TimePoint reported_at_;
  TimePoint last_seen_;  // when there was a connection to the learner
  Counts counts_;
  std::atomic<bool> is_stopped_ = false;
};

}  // namespace reverie
