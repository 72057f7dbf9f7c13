// Trainings whose actors are other peers: over real sockets, with the store in this process.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/agents/algorithms.h"
#include "reverie/calls/notice.h"
#include "reverie/calls/pending_call.h"
#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/env/native/classic_control.h"
#include "reverie/learn/actor_messages.h"
#include "reverie/learn/served_actors.h"
#include "reverie/learn/step_report.h"
#include "reverie/tensor/value_writer.h"
#include "tests/support/eventually.h"
#include "tests/support/late_calls.h"
#include "tests/support/no_new_threads.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

const NativeRegistry& registry() {
  static const NativeRegistry* const instance = [] {
    auto* const made = new NativeRegistry;
    EXPECT_TRUE(add_classic_control(*made).ok());
    return made;
  }();
  return *instance;
}

TimePoint in_time(double s) {
  return Clock::system().now() + seconds(s);
}

Options settings(std::int64_t steps) {
  return {{"seed", std::int64_t{7}},           {"steps", steps},
          {"warmup_steps", std::int64_t{200}}, {"hidden", std::string("16")},
          {"batch_size", std::int64_t{16}},    {"lead_steps", std::int64_t{128}}};
}

TrainPlan plan(std::int64_t steps) {
  auto made = plan_training(registry(), "dqn", "CartPole-v1", {}, settings(steps));
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(*made);
}

std::shared_ptr<Peer> peer_named(const std::string& name,
                                 Duration dead_after = Peer::Options().dead_after) {
  Peer::Options options;
  options.name = name;
  options.dead_after = dead_after;
  auto peer = Peer::make(options);
  EXPECT_TRUE(peer.ok());
  return std::move(*peer);
}

class RemoteActorsTest : public ::testing::Test {
 protected:
  void train(std::int64_t steps) {
    steps_ = steps;
    TrainPlan made = plan(steps);
    trainer_ = open_served_training(std::move(made)).value();
    const auto address = learner_->listen("127.0.0.1:0");
    ASSERT_TRUE(address.ok());
    address_ = *address;
    served_ = ServedActors::open(learner_, *trainer_).value();
    ASSERT_TRUE(trainer_->start().ok());
  }

  std::unique_ptr<RemoteActor> actor(std::uint64_t number) {
    auto peer = peer_named("actor-" + std::to_string(number));
    EXPECT_TRUE(peer->connect(address_).ok());
    auto made = open_remote_actor(plan(steps_), std::move(peer), "learner", number, served_->run());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }

  std::int64_t steps_ = 0;
  std::shared_ptr<Peer> learner_ = peer_named("learner");
  std::string address_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<ServedActors> served_;
};

TEST_F(RemoteActorsTest, KeepTrainingWhenOneIsLostAndOneJoinsLate) {
  train(20'000);
  auto first = actor(0);
  auto stays = actor(1);
  // The first actor leaves after about 500 steps, without a report, as if it had died.
  while (first->counts().steps < 500) {
    ASSERT_FALSE(first->run(in_time(0.005)).value()) << trainer_->status().to_string();
  }
  first.reset();
  while (stays->counts().steps < 2'000) ASSERT_FALSE(stays->run(in_time(0.005)).value());
  auto late = actor(2);
  bool is_over = false;
  while (!is_over) {
    for (RemoteActor* one : {stays.get(), late.get()}) {
      const Result<bool> end = one->run(in_time(0.005));
      ASSERT_TRUE(end.ok()) << end.status().to_string();
      is_over = *end;
    }
  }
  EXPECT_TRUE(stays->run(in_time(30)).value());
  EXPECT_GT(stays->counts().policies, 2u);
  EXPECT_GT(late->counts().steps, 1'000u);
  ASSERT_TRUE(trainer_->wait(in_time(30)));
  ASSERT_TRUE(trainer_->status().ok()) << trainer_->status().to_string();
  const TrainProgress progress = trainer_->progress();
  EXPECT_EQ(progress.end, TrainEnd::kAllSteps);
  EXPECT_GE(progress.steps, 20'000u);
  EXPECT_EQ(progress.batches, progress.batch_count);
  EXPECT_GT(progress.episodes, 10u);
  EXPECT_GT(served_->counts().published, 3u);
}

TEST_F(RemoteActorsTest, WaitForTheLearnersAndEndWhenTheTrainingStops) {
  train(1'000'000);
  auto one = actor(0);
  ASSERT_FALSE(one->run(in_time(0.3)).value());
  // The rate is near one step per batch, plus at most lead_steps and a report.
  const TrainProgress progress = trainer_->progress();
  EXPECT_LE(progress.steps, progress.batches + 200 + 128 + 64 + 64);
  EXPECT_EQ(served_->counts().actors, 1u);
  trainer_->stop();
  EXPECT_TRUE(one->run(in_time(30)).value());
}

// A transition is one step's, so a checkpoint has as many of them as it counts steps.
TEST_F(RemoteActorsTest, MayReportWhileACheckpointIsWritten) {
  train(1'000'000);
  auto one = actor(0);
  const std::jthread acting([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_TRUE(one->run(in_time(0.02)).ok());
  });
  std::string folder = ::testing::TempDir() + "remote_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto to = checkpoint::Checkpointer::open(folder, {}).value();
  std::uint64_t before = 0;
  for (int i = 0; i < 30; ++i) {
    while (trainer_->progress().steps < before + 200) {
      ASSERT_FALSE(trainer_->wait(in_time(0.0005))) << trainer_->status().to_string();
    }
    const Result<std::string> saved = trainer_->save(*to);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    const auto loaded = checkpoint::read_checkpoint(FileSystem::system(), *saved);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    const auto resumed = open_served_training(plan(steps_), *saved);
    ASSERT_TRUE(resumed.ok()) << resumed.status().to_string();
    before = (*resumed)->progress().steps;
    ASSERT_EQ(loaded->tables.at(0).trajectories.size(), before);
  }
}

TEST_F(RemoteActorsTest, ReportThatTheLearnerIsGone) {
  train(1'000'000);
  auto one = actor(0);
  ASSERT_FALSE(one->run(in_time(0.05)).value());
  learner_->close();  // first: a training that is closed would still say that it is over
  served_.reset();
  Result<bool> end = false;
  while (end.ok() && !*end) end = one->run(in_time(5));
  EXPECT_FALSE(end.ok());
}

// An actor's report of one step; the environment has two numbers and two actions.
Payload report_of(float obs, std::int64_t action, float reward, bool is_over,
                  const StepReport::Sender& sender = {9, 0}) {
  AgentSpec spec;
  spec.obs_width = 4;
  spec.action_count = 2;
  const std::vector<float> now(4, obs);
  const std::vector<float> next(4, 1.0f);
  const std::int64_t obs_shape[] = {1, 4};
  const std::int64_t action_shape[] = {1};
  const TensorView obs_view{DType::kFloat32, obs_shape, std::as_bytes(std::span(now))};
  const TensorView next_view{DType::kFloat32, obs_shape, std::as_bytes(std::span(next))};
  const TensorView action_view{DType::kInt64, action_shape, std::as_bytes(std::span(&action, 1))};
  const std::uint8_t terminated = is_over ? 1 : 0;
  const std::uint8_t truncated = 0;
  StepArrays step;
  step.obs = {&obs_view, 1};
  step.action = {&action_view, 1};
  step.next_obs = {&next_view, 1};
  step.reward = {&reward, 1};
  step.terminated = {&terminated, 1};
  step.truncated = {&truncated, 1};
  StepReport report(spec, 1);
  EXPECT_TRUE(report.add(step).ok());
  return report.take(sender, {});
}

TEST_F(RemoteActorsTest, AreNotServedWithoutAThread) {
  trainer_ = open_served_training(plan(1'000)).value();
  {
    const test::NoNewThreads none;
    expect_refused(ServedActors::open(learner_, *trainer_).status(), StatusCode::kResourceExhausted,
                   {"served actors", "ulimit -u"});
  }
  EXPECT_TRUE(ServedActors::open(learner_, *trainer_).ok()) << "its functions are undefined again";
}

TEST_F(RemoteActorsTest, OnlyInvalidReportsAreRefused) {
  train(1'000'000);
  auto peer = peer_named("stranger");
  ASSERT_TRUE(peer->connect(address_).ok());
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Payload text;
  ValueWriter(text).text("hello");
  Payload cut = report_of(1, 1, 1, true);
  cut.bulk.front().bytes = cut.bulk.front().bytes.first(cut.bulk.front().bytes.size() - 1);
  for (const Payload& bad : {text, cut, report_of(kNan, 1, 1, false), report_of(1, 2, 1, false),
                             report_of(1, -1, 1, false), report_of(1, 1, kNan, true)}) {
    const CallResult result =
        peer->sync("learner", std::string(kActorReportFunction), bad, {in_time(10), false});
    EXPECT_EQ(result.kind, CallResult::Kind::kRemoteError);
    EXPECT_EQ(result.status.code(), StatusCode::kDataLoss) << result.status.to_string();
  }
  EXPECT_EQ(trainer_->progress().steps, 0u);
  const CallResult good = peer->sync("learner", std::string(kActorReportFunction),
                                     report_of(1, 1, 1, true), {in_time(10), false});
  EXPECT_EQ(good.kind, CallResult::Kind::kAnswer) << good.status.to_string();
  EXPECT_EQ(trainer_->progress().steps, 1u);
}

CallResult reported(Peer& peer, const StepReport::Sender& sender) {
  return peer.sync("learner", std::string(kActorReportFunction), report_of(1, 1, 1, true, sender),
                   {in_time(30), false});
}

// As many actors as there are places, from number `first` on, report at once.
void expect_places(const std::shared_ptr<Peer>& peer, std::uint64_t first, std::uint64_t run) {
  std::vector<std::shared_ptr<PendingCall>> calls;
  for (std::uint64_t i = 0; i < kOutsideActorsMax; ++i) {
    calls.push_back(PendingCall::begin(peer, "learner", std::string(kActorReportFunction),
                                       report_of(1, 1, 1, true, {first + i, run}), {})
                        .value());
  }
  for (const auto& call : calls) {
    ASSERT_TRUE(call->wait_until(in_time(30)));
    EXPECT_EQ(call->result().kind, CallResult::Kind::kAnswer) << call->result().status.to_string();
  }
}

// After a pause of the learner all actors have joined again, by other connections and with other
// numbers, and their old places were heard just now.
TEST_F(RemoteActorsTest, MayTakeThePlacesOfLostPeersAtOnce) {
  train(1'000'000);
  auto before = peer_named("before");
  ASSERT_TRUE(before->connect(address_).ok());
  auto after = peer_named("after");
  ASSERT_TRUE(after->connect(address_).ok());
  // All reports together are fewer steps than warmup_steps, so no actor has to wait.
  expect_places(before, 0, served_->run());
  expect_refused(reported(*after, {100, served_->run()}).status, StatusCode::kResourceExhausted,
                 {"64 remote actors"});
  before.reset();
  ASSERT_TRUE(test::eventually([&] {
    return std::ranges::none_of(learner_->peers(), [](const PeerInfo& other) {
      return other.name == "before" && other.is_connected;
    });
  }));
  expect_places(after, 100, served_->run());
  expect_refused(reported(*after, {99, served_->run()}).status, StatusCode::kResourceExhausted,
                 {"64 remote actors"});
}

// The learner that such an actor joined was killed, and another one has its name and address.
TEST_F(RemoteActorsTest, JoinAgainWhenTheLearnerWasStartedAgain) {
  train(1'000'000);
  auto peer = peer_named("stranger");
  ASSERT_TRUE(peer->connect(address_).ok());
  const std::uint64_t other = served_->run() + 1;
  expect_refused(reported(*peer, {9, other}).status, StatusCode::kUnavailable, {"started"});
  auto one = open_remote_actor(plan(steps_), peer, "learner", 0, other).value();
  const Result<bool> end = one->run(in_time(30));
  ASSERT_FALSE(end.ok());
  expect_refused(end.status(), StatusCode::kUnavailable, {"started"});
  EXPECT_EQ(trainer_->progress().steps, 0u);
  EXPECT_EQ(served_->counts().actors, 0u);
  const CallResult heard = reported(*peer, {9, served_->run()});
  EXPECT_EQ(heard.kind, CallResult::Kind::kAnswer) << heard.status.to_string();
  EXPECT_EQ(trainer_->progress().steps, 1u);
}

// One is within a long step, so its next report comes after the learner has ended; one has joined,
// and makes its environments.
TEST_F(RemoteActorsTest, AreToldThatTheTrainingIsClosedWithoutAReport) {
  train(1'000'000);
  auto stepping = actor(0);
  ASSERT_TRUE(test::eventually([&] { return served_->counts().reports == 1; }));
  auto joined = peer_named("joined");
  auto reporting = peer_named("reporting");
  std::vector<std::shared_ptr<Notice>> ends;
  for (const auto& peer : {joined, reporting}) {
    ends.push_back(Notice::open(peer, std::string(kTrainingEndFunction)).value());
    ASSERT_TRUE(peer->connect(address_).ok());
    const CallResult heard =
        peer->sync("learner", std::string(kPingFunction), Payload(), {in_time(30), false});
    ASSERT_EQ(heard.kind, CallResult::Kind::kAnswer) << heard.status.to_string();
  }
  // Reports are answered in order: the first one was told that the training goes on.
  const CallResult heard = reported(*reporting, {1, served_->run()});
  ASSERT_EQ(heard.kind, CallResult::Kind::kAnswer) << heard.status.to_string();
  for (const auto& end : ends) EXPECT_FALSE(end->is_given());
  served_->close();
  learner_->close();
  for (const auto& end : ends) EXPECT_TRUE(end->is_given());
  const Result<bool> end = stepping->run(in_time(30));
  ASSERT_TRUE(end.ok()) << end.status().to_string();
  EXPECT_TRUE(*end);
  EXPECT_EQ(stepping->counts().steps, 0u);
}

// They may be served again before the closed object is destroyed, which leaves the new one alone.
TEST_F(RemoteActorsTest, AreServedAnewWhileTheClosedObjectLives) {
  train(1'000'000);
  auto peer = peer_named("stranger");
  ASSERT_TRUE(peer->connect(address_).ok());
  served_->close();
  auto next = ServedActors::open(learner_, *trainer_);
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  served_->close();
  served_ = std::move(*next);
  const CallResult heard = peer->sync("learner", std::string(kActorReportFunction),
                                      report_of(1, 1, 1, true), {in_time(10), false});
  ASSERT_EQ(heard.kind, CallResult::Kind::kAnswer) << heard.status.to_string();
  EXPECT_FALSE(decode_actor_order(heard.payload).value().is_over);
}

// A training of 400 steps whose first batch is due before any of several actors has a transition,
// which is three of its steps.
TrainPlan early_plan(std::int64_t evaluation_interval) {
  const Options options = {{"seed", std::int64_t{7}},
                           {"steps", std::int64_t{400}},
                           {"warmup_steps", std::int64_t{4}},
                           {"n_step", std::int64_t{3}},
                           {"hidden", std::string("8")},
                           {"batch_size", std::int64_t{4}},
                           {"lead_steps", std::int64_t{8}},
                           {"evaluation_episodes", std::int64_t{1}},
                           {"evaluation_interval", evaluation_interval}};
  return plan_training(registry(), "dqn", "CartPole-v1", {}, options).value();
}

// Each of eight actors takes so many steps.
void take_steps(Trainer& trainer, int count) {
  for (int i = 0; i < 8 * count; ++i) {
    trainer.collect([&] {
      ReplaySink sink(trainer.outside_replay(static_cast<std::size_t>(i % 8)));
      EXPECT_TRUE(
          StepReport::read(report_of(1, 1, 1, false), trainer.agent().spec(), 1, sink).ok());
      return Trainer::OutsideSteps{1, {}};
    });
  }
}

TEST_F(RemoteActorsTest, AreWaitedForUntilOneHasMadeATransition) {
  trainer_ = open_served_training(early_plan(0)).value();
  ASSERT_TRUE(trainer_->start().ok());
  take_steps(*trainer_, 2);
  EXPECT_FALSE(trainer_->wait(in_time(0.1))) << trainer_->status().to_string();
  EXPECT_EQ(trainer_->progress().batches, 0u);
  EXPECT_TRUE(trainer_->may_collect());
  take_steps(*trainer_, 48);
  ASSERT_TRUE(trainer_->wait(in_time(30)));
  EXPECT_EQ(trainer_->progress().end, TrainEnd::kAllSteps) << trainer_->status().to_string();
  EXPECT_EQ(trainer_->progress().batches, 396u);
}

std::string new_folder() {
  std::string folder = ::testing::TempDir() + "remote_XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  return folder;
}

TEST_F(RemoteActorsTest, AreServedOrNotByATrainingThatIsResumed) {
  const std::string served = new_folder();
  const std::string unserved = new_folder();
  trainer_ = open_served_training(early_plan(0)).value();
  take_steps(*trainer_, 5);
  ASSERT_TRUE(trainer_->save(*checkpoint::Checkpointer::open(served, {}).value()).ok());
  {
    const auto alone = open_training(early_plan(0), served);
    ASSERT_TRUE(alone.ok()) << alone.status().to_string();
    EXPECT_EQ((*alone)->progress().steps, 40u);
    ASSERT_TRUE((*alone)->save(*checkpoint::Checkpointer::open(unserved, {}).value()).ok());
    ASSERT_TRUE((*alone)->start().ok());
    ASSERT_TRUE((*alone)->wait(in_time(30)));
    EXPECT_EQ((*alone)->progress().end, TrainEnd::kAllSteps) << (*alone)->status().to_string();
    EXPECT_EQ((*alone)->progress().batches, 396u);
  }
  // The streams of the actors elsewhere were kept.
  auto again = open_served_training(early_plan(0), unserved);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ((*again)->outside_replay(7)->counts().steps, 5);
  // One that never had any.
  const std::string alone = new_folder();
  ASSERT_TRUE(open_training(early_plan(0))
                  .value()
                  ->save(*checkpoint::Checkpointer::open(alone, {}).value())
                  .ok());
  again = open_served_training(early_plan(0), alone);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  take_steps(**again, 5);
  EXPECT_EQ((*again)->outside_replay(7)->counts().steps, 5);
}

// Their steps were enough for a batch, but none had a transition yet.
TEST_F(RemoteActorsTest, MayLeaveNoTransitionToAThreadThatActsAndLearns) {
  const std::string folder = new_folder();
  trainer_ = open_served_training(early_plan(0)).value();
  take_steps(*trainer_, 2);
  ASSERT_TRUE(trainer_->save(*checkpoint::Checkpointer::open(folder, {}).value()).ok());
  const auto alone = open_training(early_plan(0), folder).value();
  ASSERT_TRUE(alone->start().ok());
  ASSERT_TRUE(alone->wait(in_time(30)));
  EXPECT_EQ(alone->progress().end, TrainEnd::kAllSteps) << alone->status().to_string();
  EXPECT_EQ(alone->progress().batches, 396u);
}

TEST_F(RemoteActorsTest, AreServedByTwoLearnersWithoutAnActorHere) {
  Options options = settings(2'000);
  options["learners"] = std::int64_t{2};
  const auto two = [&] {
    return plan_training(registry(), "dqn", "CartPole-v1", {}, options).value();
  };
  expect_refused(open_training(two()).status(), StatusCode::kInvalidArgument,
                 {"learners is 2", "actors", "listen"});
  trainer_ = open_served_training(two()).value();
  address_ = learner_->listen("127.0.0.1:0").value();
  served_ = ServedActors::open(learner_, *trainer_).value();
  ASSERT_TRUE(trainer_->start().ok());
  auto peer = peer_named("actor");
  ASSERT_TRUE(peer->connect(address_).ok());
  auto one = open_remote_actor(two(), std::move(peer), "learner", 0).value();
  EXPECT_TRUE(one->run(in_time(60)).value());
  ASSERT_TRUE(trainer_->wait(in_time(30)));
  EXPECT_EQ(trainer_->progress().end, TrainEnd::kAllSteps) << trainer_->status().to_string();
  EXPECT_EQ(trainer_->progress().batches, trainer_->progress().batch_count);
  // Its policy is that of a training with one learner.
  const std::string folder = new_folder();
  ASSERT_TRUE(trainer_->save(*checkpoint::Checkpointer::open(folder, {}).value()).ok());
  const auto other = open_training(plan(2'000)).value();
  const Status loaded = load_policy(*other, folder);
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  EXPECT_TRUE(std::ranges::equal(other->policy().span(), trainer_->policy().span()));
}

// The learner makes it, and has no batch left.
TEST_F(RemoteActorsTest, LeaveNoEvaluationOutAtTheEnd) {
  std::string folder = ::testing::TempDir() + "remote_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  trainer_ = open_served_training(early_plan(0)).value();
  ASSERT_TRUE(trainer_->start().ok());
  take_steps(*trainer_, 50);
  ASSERT_TRUE(trainer_->wait(in_time(30)));
  ASSERT_TRUE(trainer_->status().ok()) << trainer_->status().to_string();
  ASSERT_TRUE(trainer_->save(*checkpoint::Checkpointer::open(folder, {}).value()).ok());
  const auto resumed = open_served_training(early_plan(200), folder).value();
  ASSERT_TRUE(resumed->start().ok());
  ASSERT_TRUE(resumed->wait(in_time(30)));
  ASSERT_EQ(resumed->evaluations().size(), 1u);
  EXPECT_EQ(resumed->evaluations()[0].step, 400u);
}

// A report without an answer would keep its actor waiting for as long as it is connected.
TEST_F(RemoteActorsTest, GetAnAnswerToEachReportWhenTheTrainingIsClosed) {
  train(1'000'000);
  auto peer = peer_named("stranger");
  ASSERT_TRUE(peer->connect(address_).ok());
  std::vector<std::shared_ptr<PendingCall>> calls;
  for (int i = 0; i < 2'000; ++i) {
    calls.push_back(PendingCall::begin(peer, "learner", std::string(kActorReportFunction),
                                       report_of(1, 1, 1, true), {})
                        .value());
  }
  // Calls are taken in order, in turns: once the second is answered, all reports have arrived.
  for (int i = 0; i < 2; ++i) {
    const CallResult heard =
        peer->sync("learner", std::string(kPingFunction), Payload(), {in_time(30), false});
    ASSERT_EQ(heard.kind, CallResult::Kind::kAnswer) << heard.status.to_string();
  }
  served_->close();
  for (const auto& call : calls) {
    ASSERT_TRUE(call->wait_until(in_time(30)));
    EXPECT_EQ(call->result().kind, CallResult::Kind::kAnswer) << call->result().status.to_string();
  }
}

// The handler of such a report was looked up before the training undefined it, and runs afterwards.
// The training is closed on the learner's I/O thread, which hears no answers: that takes 1 s.
TEST_F(RemoteActorsTest, GetAnAnswerToAReportThatIsHandledWhileTheTrainingIsClosed) {
  constexpr Duration kDeadAfter = std::chrono::seconds(30);
  learner_ = peer_named("learner", kDeadAfter);
  train(1'000'000);
  auto peer = peer_named("stranger", kDeadAfter);
  ASSERT_TRUE(peer->connect(address_).ok());
  const auto close = [&] { served_->close(); };
  for (const auto& call : test::late_calls(
           *learner_, peer, close, std::string(kActorReportFunction), report_of(1, 1, 1, true))) {
    const CallResult& result = call->result();
    // A report that is read only in the next turn finds no function.
    if (result.kind != CallResult::Kind::kAnswer) {
      EXPECT_EQ(result.status.code(), StatusCode::kNotFound) << result.status.to_string();
    } else {
      EXPECT_TRUE(decode_actor_order(result.payload).value().is_over);
    }
  }
}

}  // namespace
}  // namespace reverie
