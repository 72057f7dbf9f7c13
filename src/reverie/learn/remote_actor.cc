// Tested in tests/integration/remote_actors_test.cc.
#include "reverie/learn/remote_actor.h"

#include <algorithm>
#include <utility>

#include "reverie/base/waiting.h"
#include "reverie/learn/loops.h"

namespace reverie {
namespace {

// A report is due after this many steps, or after this time.
constexpr std::uint64_t kReportSteps = 64;
constexpr Duration kReportInterval = std::chrono::milliseconds(20);
// A learner answers within this time, unless its actors are to wait longer.
constexpr Duration kAnswerWithin = std::chrono::seconds(30);
constexpr Duration kGoneAfter = std::chrono::seconds(3);
// The most episodes of a report; further ones are in the next report.
constexpr std::size_t kEpisodesOfReport = 1024;

}  // namespace

RemoteActor::RemoteActor(RemoteActorParts parts)
    : parts_(std::move(parts)), log_(parts_.settings.return_window) {}

RemoteActor::~RemoteActor() {
  if (report_) report_->cancel();
}

Result<std::unique_ptr<RemoteActor>> RemoteActor::open(RemoteActorParts parts) {
  std::unique_ptr<RemoteActor> actor(new RemoteActor(std::move(parts)));
  const RemoteActorParts& own = actor->parts_;
  actor->end_ = own.end;
  if (!actor->end_) {
    REVERIE_ASSIGN_OR_RETURN(actor->end_,
                             Notice::open(own.peer, std::string(kTrainingEndFunction)));
  }
  if (actor->end_->is_given()) return unavailable("the training of '{}' is over", own.learner);
  const std::uint64_t seed = own.settings.seed.value_or(0);
  // Those of the actors in the learner's process come first.
  const std::uint64_t number = own.settings.actors + 1 + own.number;
  REVERIE_ASSIGN_OR_RETURN(actor->weights_,
                           Weights::make(own.peer, {std::string(kPolicyWeights), {own.learner}}));
  actor->policies_ = std::make_unique<PolicyChannel>(
      *actor->weights_, own.agent->weights().networks[0]->float_count(), kAnswerWithin);
  REVERIE_ASSIGN_OR_RETURN(actor->policy_, actor->policies_->newest());
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<ActorEnvs> envs,
                           own.make_envs(own.settings.envs_per_actor,
                                         derived_seed(seed, SeedUse::kEnvironments, number)));
  auto steps = std::make_unique<StepReport>(own.agent->spec(), own.settings.envs_per_actor);
  actor->steps_ = steps.get();
  actor->loop_ = std::make_unique<ActorLoop>(
      std::move(envs), own.agent->make_policy(own.settings.envs_per_actor), std::move(steps),
      actor->log_, derived_seed(seed, SeedUse::kExploration, number));
  // The state of the training.
  actor->last_seen_ = Clock::system().now();
  REVERIE_RETURN_IF_ERROR(actor->begin_report());
  return actor;
}

Status RemoteActor::begin_report() {
  std::vector<EpisodeRecord> episodes = log_.since(reported_episodes_);
  episodes.resize(std::min(episodes.size(), kEpisodesOfReport));
  reported_episodes_ += episodes.size();
  REVERIE_ASSIGN_OR_RETURN(
      report_, PendingCall::begin(parts_.peer, parts_.learner, std::string(kActorReportFunction),
                                  steps_->take({parts_.number, parts_.run}, episodes), {}));
  ++counts_.reports;
  return {};
}

Result<bool> RemoteActor::finish_report(TimePoint until) {
  if (!report_->wait_until(until)) return is_learner_connected() ? Result<bool>(false) : gone();
  const std::shared_ptr<PendingCall> report = std::exchange(report_, nullptr);
  const CallResult& result = report->result();
  if (result.kind != CallResult::Kind::kAnswer) return result.status;
  REVERIE_ASSIGN_OR_RETURN(order_, decode_actor_order(result.payload));
  reported_at_ = Clock::system().now();
  last_seen_ = reported_at_;
  if (order_.policy > policy_.version && !order_.is_over) {
    REVERIE_ASSIGN_OR_RETURN(policy_, policies_->newest());
    ++counts_.policies;
  }
  return true;
}

// Whether the learner was reachable at some time in the last kGoneAfter. A call to an unreachable
// peer waits for it.
bool RemoteActor::is_learner_connected() {
  const TimePoint now = Clock::system().now();
  for (const PeerInfo& other : parts_.peer->peers()) {
    if (other.is_connected && other.name == parts_.learner) last_seen_ = now;
  }
  return last_seen_ + kGoneAfter > now;
}

Status RemoteActor::gone() {
  report_->cancel();
  report_.reset();
  return unavailable("the learner '{}' cannot be reached any more", parts_.learner);
}

Result<bool> RemoteActor::run(TimePoint until) {
  Clock& clock = Clock::system();
  while (true) {
    if (is_stopped_) return cancelled("the actor was stopped");
    if (report_) {
      const TimePoint look = std::min(until, clock.now() + kInterruptInterval);
      const Result<bool> is_answered = finish_report(look);
      if (end_->is_given()) return true;  // and the learner is perhaps gone
      if (!is_answered.ok()) return is_answered.status();
      if (!*is_answered && look < until) continue;
      if (!*is_answered) return false;
    }
    if (order_.is_over || end_->is_given()) return true;
    const std::uint64_t unreported = steps_->count() * loop_->env_count();
    REVERIE_RETURN_IF_ERROR(loop_->step(*policy_.parameters, order_.steps + unreported));
    counts_.steps += loop_->env_count();
    counts_.episodes = log_.count();
    if (end_->is_given()) return true;
    const TimePoint now = clock.now();
    if (unreported + loop_->env_count() >= kReportSteps ||
        steps_->count() == StepReport::kStepsMax || now - reported_at_ >= kReportInterval) {
      REVERIE_RETURN_IF_ERROR(begin_report());
    }
    if (now >= until) return false;
  }
}

}  // namespace reverie
