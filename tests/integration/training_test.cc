// Complete trainings: environments, replay, networks and threads together.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/agents/algorithms.h"
#include "reverie/checkpoint/checkpoint_reader.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/codec/byte_stream.h"
#include "reverie/env/native/classic_control.h"
#include "reverie/learn/loops.h"
#include "reverie/replay/local_service.h"
#include "tests/scale.h"
#include "tests/support/hooked_file_system.h"
#include "tests/support/no_new_threads.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

// What the environment below does from its tenth step on, or only in that step.
enum class Trouble {
  kNanReward,
  kNanObservation,
  kRaises,
  kOneNanReward,
  kOneNanObservation,
  kHugeRewards,
};
template <Trouble kTrouble>
struct BadEnv {
  struct Config {};
  using Observation = float;
  using Action = std::int64_t;
  static constexpr NativeCost kCost = NativeCost::kInline;

  static Result<Config> read(OptionReader&) { return Config{}; }
  static NativeSpec spec(const Config&) {
    NativeSpec spec;
    spec.observation = {"", DType::kFloat32, {2}};
    spec.action_count = 2;
    return spec;
  }
  explicit BadEnv(const Config&) {}
  void reset(Random&) {}
  NativeStep step(std::int64_t, Random&) {
    ++steps;
    if (kTrouble == Trouble::kHugeRewards) return {1e10f, false};
    if (kTrouble == Trouble::kRaises && steps == 10) throw std::runtime_error("out of fuel");
    const bool is_bad = (kTrouble == Trouble::kNanReward && steps >= 10) ||
                        (kTrouble == Trouble::kOneNanReward && steps == 10);
    return {is_bad ? std::numeric_limits<float>::quiet_NaN() : 1.0f, false};
  }
  void observe(std::span<float> out) const {
    const bool is_bad = kTrouble == Trouble::kNanObservation && steps >= 10;
    out[0] = static_cast<float>(steps);
    out[1] = is_bad ? std::numeric_limits<float>::infinity() : 0.0f;
    if (kTrouble == Trouble::kOneNanObservation && steps == 10) {
      out[1] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  int steps = 0;
};

const NativeRegistry& registry() {
  static const NativeRegistry* const instance = [] {
    auto* const made = new NativeRegistry;
    EXPECT_TRUE(add_classic_control(*made).ok());
    EXPECT_TRUE(made->add("NanReward", native_factory<BadEnv<Trouble::kNanReward>>()).ok());
    EXPECT_TRUE(made->add("NanObs", native_factory<BadEnv<Trouble::kNanObservation>>()).ok());
    EXPECT_TRUE(made->add("OneNanReward", native_factory<BadEnv<Trouble::kOneNanReward>>()).ok());
    EXPECT_TRUE(made->add("OneNanObs", native_factory<BadEnv<Trouble::kOneNanObservation>>()).ok());
    EXPECT_TRUE(made->add("HugeRewards", native_factory<BadEnv<Trouble::kHugeRewards>>()).ok());
    EXPECT_TRUE(made->add("Raises", native_factory<BadEnv<Trouble::kRaises>>()).ok());
    return made;
  }();
  return *instance;
}

std::int64_t integer(int value) {
  return value;
}

// Options that solve CartPole in seconds; see docs/algorithms/dqn.md.
Options cart_pole(int seed) {
  return {{"seed", integer(seed)},
          {"steps", integer(20'000)},
          {"hidden", std::string("128,128")},
          {"learning_rate", 1e-3},
          {"learning_rate_last_share", 0.0},
          {"tau", 0.01},
          {"n_step", integer(3)},
          {"reward_scale", 0.1},
          {"epsilon_last", 0.04},
          {"epsilon_share", 0.5}};
}

Options with(Options options, const Options& more) {
  for (const auto& [name, value] : more) options[name] = value;
  return options;
}

Result<std::unique_ptr<Trainer>> open(std::string_view env, const Options& options,
                                      std::string_view algorithm = "ddqn") {
  REVERIE_ASSIGN_OR_RETURN(TrainPlan plan, plan_training(registry(), algorithm, env, {}, options));
  auto service = LocalService::open(plan.tables, {}).value();
  return open_training(std::move(plan), std::move(service));
}

// A training that has run to its end.
std::unique_ptr<Trainer> trained(std::string_view env, const Options& options,
                                 std::string_view algorithm = "ddqn") {
  Result<std::unique_ptr<Trainer>> trainer = open(env, options, algorithm);
  REVERIE_CHECK(trainer.ok());
  EXPECT_TRUE((*trainer)->start().ok());
  EXPECT_TRUE((*trainer)->wait(TimePoint::max()));
  return std::move(*trainer);
}

double greedy_mean(Trainer& trainer, const nn::Parameters& policy) {
  const std::vector<double> returns =
      trainer.evaluate(policy, /*seed=*/1'000'000, {.episode_count = 20}).value();
  return std::accumulate(returns.begin(), returns.end(), 0.0) / 20;
}
double greedy_mean(Trainer& trainer) {
  return greedy_mean(trainer, trainer.policy());
}

TEST(Training, DoubleDqnSolvesCartPole) {
  // Judges the best policy on the way, because the last bits of a sum, which differ by build and
  // processor, decide how good the policy is at a given step.
  const auto trainer =
      trained("CartPole-v1", with(cart_pole(1), {{"evaluation_interval", integer(2'000)},
                                                 {"evaluation_episodes", integer(5)}}));
  EXPECT_TRUE(trainer->status().ok()) << trainer->status().to_string();
  EXPECT_GE(greedy_mean(*trainer, *trainer->best_policy()), 450);
  const TrainProgress progress = trainer->progress();
  EXPECT_EQ(progress.end, TrainEnd::kAllSteps);
  EXPECT_EQ(progress.steps, 20'000u);
  EXPECT_EQ(progress.batches, 19'000u);
  EXPECT_NEAR(*progress.measured_interval, 1.0, 1e-9);
}

// Other cases are in python/reverie/agents/checkpoints_test.py.
TEST(Training, ContinuesFromACheckpointBitForBit) {
  const Options options =
      with(cart_pole(3), {{"steps", integer(3'000)}, {"hidden", std::string("16")}});
  const auto plan = [&] {
    return plan_training(registry(), "ddqn", "CartPole-v1", {}, options).value();
  };
  const auto whole = trained("CartPole-v1", options);
  std::string folder = ::testing::TempDir() + "training_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    const auto to = checkpoint::Checkpointer::open(folder, {}).value();
    // Another one where this thread gets no time before the training ends.
    bool is_saved_midway = false;
    for (int attempt = 0; attempt < 50 && !is_saved_midway; ++attempt) {
      const std::unique_ptr<Trainer> trainer = open_training(plan()).value();
      ASSERT_TRUE(trainer->start().ok());
      bool is_over = false;
      while (!is_over && trainer->progress().batches < 500) {
        is_over = trainer->wait(Clock::system().now() + std::chrono::microseconds(200));
      }
      if (is_over) continue;
      ASSERT_TRUE(trainer->save(*to).ok());
      is_saved_midway = true;
    }
    ASSERT_TRUE(is_saved_midway);
  }
  const std::unique_ptr<Trainer> resumed = open_training(plan(), folder).value();
  EXPECT_GE(resumed->progress().batches, 500u);
  ASSERT_TRUE(resumed->start().ok());
  EXPECT_TRUE(resumed->wait(TimePoint::max()));
  const nn::Parameters ours = resumed->policy();
  const nn::Parameters theirs = whole->policy();
  EXPECT_TRUE(std::ranges::equal(ours.span(), theirs.span()));
  EXPECT_EQ(resumed->progress().episodes, whole->progress().episodes);

  const Status status = open_training(plan(), folder + "/none").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.to_string();
}

TEST(Training, AResumedTrainingWithALongerIntervalIsEvaluatedInTime) {
  const auto plan = [](int steps, int interval) {
    const Options options = with(cart_pole(3), {{"steps", integer(steps)},
                                                {"hidden", std::string("8")},
                                                {"actors", integer(0)},
                                                {"evaluation_interval", integer(interval)},
                                                {"evaluation_episodes", integer(1)}});
    return plan_training(registry(), "ddqn", "CartPole-v1", {}, options).value();
  };
  std::string folder = ::testing::TempDir() + "training_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    const auto to = checkpoint::Checkpointer::open(folder, {}).value();
    const std::unique_ptr<Trainer> trainer = open_training(plan(600, 100)).value();
    ASSERT_TRUE(trainer->start().ok());
    ASSERT_TRUE(trainer->wait(TimePoint::max()));
    ASSERT_EQ(trainer->evaluations().size(), 6u);
    ASSERT_TRUE(trainer->save(*to).ok());
  }
  const std::unique_ptr<Trainer> resumed = open_training(plan(2'000, 500), folder).value();
  ASSERT_TRUE(resumed->start().ok());
  ASSERT_TRUE(resumed->wait(TimePoint::max()));
  std::vector<std::uint64_t> steps;
  for (const Evaluation& one : resumed->evaluations()) steps.push_back(one.step);
  EXPECT_EQ(steps, (std::vector<std::uint64_t>{100, 200, 300, 400, 500, 600, 1'000, 1'500, 2'000}));
}

TEST(Training, ManyLearnersGetTablesOfAPossibleSize) {
  TrainSettings settings;
  settings.seed = 1;
  for (const std::uint64_t learners : {1u, 3u, 16u, 1024u}) {
    settings.learners = learners;
    for (const double capacity : {1.0, 1023.0, 1024.0, 3.0 * 1024, 1e5, 1e8, 3e8, 3e9, 1e12}) {
      settings.capacity = static_cast<std::uint64_t>(capacity);
      const auto tables = training_tables(settings);
      ASSERT_TRUE(tables.ok()) << learners << ": " << tables.status().to_string();
      std::int64_t sum = 0;
      for (const TableOptions& table : *tables) {
        EXPECT_TRUE(tables->size() == 1 || table.max_size >= 1024) << table.max_size;
        sum += table.max_size;
      }
      EXPECT_EQ(sum, static_cast<std::int64_t>(capacity));
    }
  }
  settings.capacity = 100'000;
  settings.learners = 16;
  EXPECT_EQ(replay_shard_count(settings), 64u);
}

// The payload of a training's checkpoint from before there was this setting.
std::vector<std::byte> without_setting(std::span<const std::byte> payload,
                                       const std::string& left_out) {
  std::vector<std::byte> older;
  ByteReader in(payload);
  ByteWriter out(older);
  for (int i = 0; i < 2; ++i) out.text(in.text());
  const std::uint32_t count = in.u32();
  out.u32(count - 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::string name = in.text();
    const std::string value = in.text();
    if (name != left_out) out.text(name).text(value);
  }
  out.raw(in.raw(in.left()));
  return older;
}

TEST(Training, ACheckpointFromBeforeThereWereSeveralTablesIsResumedWithOne) {
  const auto plan = [](const Options& more) {
    const Options options{{"seed", integer(1)},
                          {"steps", integer(1'500)},
                          {"actors", integer(1)},
                          {"learners", integer(4)},
                          {"hidden", std::string("8")}};
    return plan_training(registry(), "dqn", "CartPole-v1", {}, with(options, more)).value();
  };
  const Options one_table{{"replay_shards", integer(1)}};
  std::string folder = ::testing::TempDir() + "training_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    const auto to = checkpoint::Checkpointer::open(folder, {}).value();
    const std::unique_ptr<Trainer> trainer = open_training(plan(one_table)).value();
    ASSERT_TRUE(trainer->start().ok());
    ASSERT_TRUE(trainer->wait(TimePoint::max()));
    ASSERT_TRUE(trainer->save(*to).ok());
    checkpoint::LoadedCheckpoint loaded = std::move(*to->load().value());
    const auto store = LocalService::open(plan(one_table).tables, {}).value();
    ASSERT_TRUE(checkpoint::restore(*store, loaded, checkpoint::OnMismatch::kRefuse).ok());
    const std::vector<std::byte> older = without_setting(loaded.manifest.payload, "replay_shards");
    ASSERT_LT(older.size(), loaded.manifest.payload.size());
    ASSERT_TRUE(to->write(*store, older).ok());
  }
  expect_refused(open_training(plan({}), folder).status(), StatusCode::kInvalidArgument,
                 {"replay_shards 1", "has 16"});
  const auto resumed = open_training(plan(one_table), folder);
  ASSERT_TRUE(resumed.ok()) << resumed.status().to_string();
  EXPECT_EQ((*resumed)->progress().steps, 1'500u);
}

TEST(Training, EvaluationsKeepTheBestPolicy) {
  const auto trainer =
      trained("CartPole-v1", with(cart_pole(0), {{"steps", integer(6'000)},
                                                 {"hidden", std::string("64")},
                                                 {"evaluation_interval", integer(1'000)},
                                                 {"evaluation_episodes", integer(5)}}));
  const std::vector<Evaluation> evaluations = trainer->evaluations();
  ASSERT_EQ(evaluations.size(), 6u);
  double best = 0;
  std::uint64_t at = 0;
  for (const Evaluation& evaluation : evaluations) {
    if (evaluation.mean_return < best) continue;
    best = evaluation.mean_return;
    at = evaluation.step;
  }
  // The same seeds give the same returns.
  const std::vector<double> again =
      trainer
          ->evaluate(*trainer->best_policy(), derived_seed(0, SeedUse::kEvaluation, at / 1'000),
                     {.episode_count = 5})
          .value();
  EXPECT_DOUBLE_EQ(std::accumulate(again.begin(), again.end(), 0.0) / 5, best);
}

TEST(Training, AnUntrainedPolicyDoesNotSolveCartPole) {
  const auto trainer = open("CartPole-v1", cart_pole(1)).value();
  EXPECT_LT(greedy_mean(*trainer), 200);
}

TEST(Training, OneThreadRepeatsItsRunBitForBit) {
  const Options options =
      with(cart_pole(5), {{"steps", integer(2'000)}, {"hidden", std::string("64")}});
  const auto a = trained("CartPole-v1", options);
  const auto b = trained("CartPole-v1", options);
  const auto c = trained("CartPole-v1", with(options, {{"seed", integer(6)}}));
  EXPECT_TRUE(std::ranges::equal(a->policy().span(), b->policy().span()));
  EXPECT_FALSE(std::ranges::equal(a->policy().span(), c->policy().span()));
  EXPECT_EQ(a->episodes(0).size(), b->episodes(0).size());
}

// Every way to share the work makes the right number of steps and batches, and learns.
TEST(Training, ActorsAndLearnersShareTheWork) {
  struct Way {
    int actors, learners, envs;
    bool asynchronous;
  };
  for (const Way way : {Way{1, 1, 1, false}, Way{2, 1, 4, false}, Way{1, 2, 2, false},
                        Way{2, 2, 2, true}, Way{5, 3, 1, true}}) {
    const auto trainer =
        trained("CartPole-v1", with(cart_pole(3), {{"steps", integer(4'000)},
                                                   {"hidden", std::string("32")},
                                                   {"actors", integer(way.actors)},
                                                   {"learners", integer(way.learners)},
                                                   {"envs_per_actor", integer(way.envs)},
                                                   {"asynchronous", way.asynchronous},
                                                   {"update_interval", 2.0}}));
    const TrainProgress progress = trainer->progress();
    EXPECT_TRUE(trainer->status().ok()) << trainer->status().to_string();
    EXPECT_EQ(progress.end, TrainEnd::kAllSteps);
    EXPECT_GE(progress.steps, 4'000u);
    EXPECT_LE(progress.steps, 4'000u + static_cast<std::uint64_t>(way.actors * way.envs));
    EXPECT_EQ(progress.batches, progress.batch_count);
    const auto rounds = way.asynchronous ? 1u : static_cast<unsigned>(way.learners);
    EXPECT_EQ(progress.updates, progress.batches / rounds);
    EXPECT_NEAR(*progress.measured_interval, 2.0, 0.05);
    EXPECT_LE(progress.server.staleness_max, 8u);
    const nn::Parameters policy = trainer->policy();
    for (const float weight : policy.span()) ASSERT_TRUE(std::isfinite(weight));
  }
}

// The order in which actors and the learner run differs from run to run, and so does the result. So
// the best policy of twenty is judged, and one of three seeds has to succeed.
TEST(Training, TwoActorsAndALearnerSolveCartPole) {
  double best = 0;
  for (int seed = 2; seed <= 4 && best < 450; ++seed) {
    const auto trainer =
        trained("CartPole-v1", with(cart_pole(seed), {{"actors", integer(2)},
                                                      {"lead_steps", integer(32)},
                                                      {"evaluation_interval", integer(1'000)}}));
    const std::vector<double> returns =
        trainer->evaluate(*trainer->best_policy(), /*seed=*/1'000'000, {.episode_count = 20})
            .value();
    best = std::max(best, std::accumulate(returns.begin(), returns.end(), 0.0) / 20);
  }
  EXPECT_GE(best, 450);
}

TEST(Training, ContinuousActionsAreTrainedByOneThreadAndBySeveral) {
  for (const char* algorithm : {"ddpg", "td3", "sac"}) {
    for (const int actors : {0, 2}) {
      const auto trainer = trained("Pendulum-v1",
                                   {{"seed", integer(1)},
                                    {"steps", integer(800)},
                                    {"warmup_steps", integer(200)},
                                    {"hidden", std::string("32")},
                                    {"batch_size", integer(32)},
                                    {"actors", integer(actors)},
                                    {"learners", integer(actors == 0 ? 1 : 2)},
                                    {"asynchronous", actors != 0}},
                                   algorithm);
      EXPECT_TRUE(trainer->status().ok()) << trainer->status().to_string();
      EXPECT_EQ(trainer->progress().batches, 600u);
      const nn::Parameters policy = trainer->policy();
      for (const float weight : policy.span()) ASSERT_TRUE(std::isfinite(weight));
    }
  }
}

// An episode of hanging down costs about -1200, one of swinging up and balancing about -150.
TEST(Training, EachContinuousAlgorithmSwingsThePendulumUp) {
  for (const char* algorithm : {"ddpg", "td3", "sac"}) {
    const auto trainer = trained("Pendulum-v1",
                                 {{"seed", integer(1)},
                                  {"steps", integer(8'000)},
                                  {"hidden", std::string("64,64")},
                                  {"batch_size", integer(128)}},
                                 algorithm);
    EXPECT_TRUE(trainer->status().ok()) << trainer->status().to_string();
    EXPECT_GE(greedy_mean(*trainer), -300) << algorithm;
  }
}

TEST(Training, EndsWhenTheReturnIsReached) {
  const auto trainer =
      trained("CartPole-v1",
              with(cart_pole(1), {{"stop_at_return", 20.0}, {"return_window", integer(10)}}));
  EXPECT_EQ(trainer->progress().end, TrainEnd::kReturnReached);
  EXPECT_LT(trainer->progress().steps, 20'000u);
}

TEST(Training, StopsAtAnyMomentAndReportsIt) {
  for (const int actors : {0, 2}) {
    for (int moment = 0; moment < scaled(8, 20); ++moment) {
      auto trainer =
          open("CartPole-v1",
               with(cart_pole(1), {{"actors", integer(actors)}, {"steps", integer(100'000'000)}}))
              .value();
      ASSERT_TRUE(trainer->start().ok());
      while (trainer->progress().steps < static_cast<std::uint64_t>(moment * 100)) {
        (void)trainer->wait(Clock::system().now() + Duration(100'000));
      }
      trainer->stop();
      ASSERT_TRUE(trainer->wait(TimePoint::max()));
      EXPECT_EQ(trainer->progress().end, TrainEnd::kStopped);
      EXPECT_TRUE(trainer->status().ok());
    }
  }
}

TEST(Training, DestroyingARunningTrainerStopsIt) {
  const auto trainer = open("CartPole-v1", with(cart_pole(1), {{"actors", integer(2)}})).value();
  ASSERT_TRUE(trainer->start().ok());
  expect_refused(trainer->start(), StatusCode::kFailedPrecondition, {"started before"});
}

TEST(Training, ATrainerStoppedBeforeItsStartIsOverAndCannotStart) {
  const auto trainer = open("CartPole-v1", cart_pole(1)).value();
  trainer->stop();
  EXPECT_TRUE(trainer->wait(TimePoint::max()));
  expect_refused(trainer->start(), StatusCode::kFailedPrecondition, {"stopped before"});
}

TEST(Training, NonFiniteNumbersOfAnEnvironmentEndItAndAreNamed) {
  for (const int actors : {0, 2}) {
    const Options options{{"actors", integer(actors)}, {"steps", integer(5'000)}};
    const auto reward = trained("NanReward", options);
    EXPECT_EQ(reward->progress().end, TrainEnd::kFailed);
    expect_refused(reward->status(), StatusCode::kInvalidArgument, {"NanReward", "reward", "nan"});
    const auto observation = trained("NanObs", options);
    expect_refused(observation->status(), StatusCode::kInvalidArgument,
                   {"NanObs", "element 1", "inf"});
  }
}

TEST(Training, NonFiniteNumbersEndAnEvaluationAndAreNamed) {
  const auto reward = open("NanReward", {{"steps", integer(5'000)}}).value();
  expect_refused(reward->evaluate(reward->policy(), 1, {.episode_count = 2}).status(),
                 StatusCode::kInvalidArgument, {"NanReward", "reward", "nan"});
  const auto observation = open("NanObs", {{"steps", integer(5'000)}}).value();
  expect_refused(observation->evaluate(observation->policy(), 1, {}).status(),
                 StatusCode::kInvalidArgument, {"NanObs", "element 1", "inf"});
  // The evaluation after 5 steps meets the tenth step of its own environment first.
  for (const int actors : {0, 2}) {
    const auto trainer = trained("NanReward", {{"actors", integer(actors)},
                                               {"steps", integer(5'000)},
                                               {"evaluation_interval", integer(5)}});
    EXPECT_EQ(trainer->progress().end, TrainEnd::kFailed);
    EXPECT_TRUE(trainer->evaluations().empty());
    expect_refused(trainer->status(), StatusCode::kInvalidArgument, {"NanReward", "reward", "nan"});
  }
}

TEST(Training, AStepWithNonFiniteNumbersIsTakenAgainOnResume) {
  for (const std::string_view env : {"OneNanReward", "OneNanObs"}) {
    const auto plan = [&] {
      const Options options{
          {"seed", integer(1)}, {"steps", integer(1'200)}, {"hidden", std::string("8")}};
      return plan_training(registry(), "dqn", env, {}, options).value();
    };
    std::string folder = ::testing::TempDir() + "training_XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    {
      const auto to = checkpoint::Checkpointer::open(folder, {}).value();
      const std::unique_ptr<Trainer> failed = open_training(plan()).value();
      ASSERT_TRUE(failed->start().ok());
      ASSERT_TRUE(failed->wait(TimePoint::max()));
      EXPECT_EQ(failed->progress().steps, 9u);
      ASSERT_TRUE(failed->save(*to).ok());
    }
    const Result<std::unique_ptr<Trainer>> resumed = open_training(plan(), folder);
    ASSERT_TRUE(resumed.ok()) << resumed.status().to_string();
    ASSERT_TRUE((*resumed)->start().ok());
    ASSERT_TRUE((*resumed)->wait(TimePoint::max()));
    expect_refused((*resumed)->status(), StatusCode::kInvalidArgument, {std::string(env), "nan"});
    EXPECT_EQ((*resumed)->progress().steps, 9u);
  }
}

TEST(Training, AnEnvironmentThatRaisesEndsItWithItsError) {
  const auto trainer = trained("Raises", {{"actors", integer(2)}, {"steps", integer(5'000)}});
  expect_refused(trainer->status(), StatusCode::kInternal, {"out of fuel"});
}

// A step that would make weights NaN is not taken: they stay the last good ones.
TEST(Training, ADivergingTrainingKeepsItsLastGoodWeights) {
  const auto trainer =
      trained("CartPole-v1", {{"seed", integer(1)},
                              {"steps", integer(5'000)},
                              {"hidden", std::string("16,16")},
                              {"learning_rate", 1e20},
                              {"gradient_norm_max", 0.0},
                              {"huber_delta", std::numeric_limits<double>::infinity()}});
  EXPECT_EQ(trainer->progress().end, TrainEnd::kFailed);
  expect_refused(trainer->status(), StatusCode::kInvalidArgument, {"value network", "layer"});
}

// The Huber loss has a finite slope there, so that the gradient does not show it.
TEST(Training, AnInfiniteErrorEndsItBeforeAStep) {
  for (const bool prioritized : {false, true}) {
    const Options options{{"seed", integer(1)},
                          {"steps", integer(5'000)},
                          {"hidden", std::string()},
                          {"reward_scale", 1e30},
                          {"prioritized", prioritized}};
    const auto trainer = trained("HugeRewards", options);
    EXPECT_EQ(trainer->progress().end, TrainEnd::kFailed);
    expect_refused(trainer->status(), StatusCode::kInvalidArgument, {"TD error", "reward_scale"});
    EXPECT_EQ(trainer->progress().updates, 0u);
  }
}

// The next checkpoint is written, and this one removed, after its name was read.
TEST(Training, APolicyIsLoadedWhileItsTrainingWritesCheckpoints) {
  const auto plan = [] {
    const Options options{{"seed", integer(1)}, {"hidden", std::string("8")}};
    return plan_training(registry(), "dqn", "CartPole-v1", {}, options).value();
  };
  std::string folder = ::testing::TempDir() + "training_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto to = checkpoint::Checkpointer::open(folder, {}).value();
  const std::unique_ptr<Trainer> running = open_training(plan()).value();
  ASSERT_TRUE(running->save(*to).ok());
  reverie::testing::HookedFileSystem files(FileSystem::system());
  int saves = 2;
  files.before_open = [&] {
    if (saves-- > 0) {
      EXPECT_TRUE(running->save(*to).ok());
    }
  };
  const std::unique_ptr<Trainer> other = open_training(plan()).value();
  const Status loaded = load_policy(*other, folder, files);
  EXPECT_TRUE(loaded.ok()) << loaded.to_string();
  EXPECT_LT(saves, 0);
  // A manifest that is really lost is not waited for.
  const std::string newest = checkpoint::newest_checkpoint(FileSystem::system(), folder).value();
  ASSERT_TRUE(FileSystem::system().remove_file(newest + "/manifest").ok());
  EXPECT_EQ(load_policy(*other, folder).code(), StatusCode::kNotFound);
}

TEST(Training, MeasuresAndSplitsTheCores) {
  for (const char* algorithm : {"ddqn", "sac"}) {
    const std::string_view env =
        std::string_view(algorithm) == "sac" ? "Pendulum-v1" : "CartPole-v1";
    const TrainPlan plan =
        plan_training(
            registry(), algorithm, env, {},
            {{"seed", integer(1)}, {"hidden", std::string("16")}, {"batch_size", integer(16)}})
            .value();
    CoreProfileOptions options;
    options.core_count = 3;
    options.measure_s = 0.02;
    const CoreTuning tuning = tune_cores(plan, options).value();
    ASSERT_EQ(tuning.profile.actor_curve.size(), 3u);
    ASSERT_EQ(tuning.profile.learner_curve.size(), 3u);
    for (std::size_t x = 0; x < 3; ++x) {
      EXPECT_GT(tuning.profile.actor_curve[x], 0);
      EXPECT_GT(tuning.profile.learner_curve[x], 0);
    }
    EXPECT_LE(tuning.split.actor_cores + tuning.split.learner_cores, 3u);
    EXPECT_GE(tuning.split.actor_cores, 1u);
  }
}

// 2,000 steps of 512 environments are fewer than five of each; one actor fills the second store.
TEST(Training, MeasuresManyEnvironmentsWithLongReturns) {
  const TrainPlan plan = plan_training(registry(), "dqn", "CartPole-v1", {},
                                       {{"seed", integer(1)},
                                        {"hidden", std::string("8")},
                                        {"batch_size", integer(16)},
                                        {"envs_per_actor", integer(512)},
                                        {"n_step", integer(5)},
                                        {"warmup_steps", integer(4'000)}})
                             .value();
  CoreProfileOptions options;
  options.core_count = 4;
  options.measure_s = 0.005;
  const Result<CoreTuning> tuning = tune_cores(plan, options);
  EXPECT_TRUE(tuning.ok()) << tuning.status().to_string();
}

TEST(Training, EachNumberOfLearnersIsMeasuredWithTheTablesOfItsTraining) {
  const TrainPlan plan = plan_training(registry(), "ddqn", "CartPole-v1", {},
                                       {{"seed", integer(1)}, {"hidden", std::string("8")}})
                             .value();
  std::vector<std::size_t> table_counts;
  CoreProfileOptions options;
  options.core_count = 4;
  options.measure_s = 0.005;
  options.open_store = [&](std::vector<TableOptions> tables) {
    table_counts.push_back(tables.size());
    return LocalService::open(std::move(tables), {});
  };
  ASSERT_TRUE(tune_cores(plan, options).ok());
  // Actors beside 3 learners; then 1 or 2 learners; then 3 or 4.
  EXPECT_EQ(table_counts, (std::vector<std::size_t>{16, 1, 16}));
}

TEST(Training, ThreadsThatCannotStartEndIt) {
  for (const int actors : {0, 2}) {
    const auto trainer =
        open("CartPole-v1", with(cart_pole(1), {{"actors", integer(actors)}})).value();
    {
      const test::NoNewThreads none;
      expect_refused(trainer->start(), StatusCode::kResourceExhausted,
                     {"the training", "ulimit -u"});
    }
    EXPECT_TRUE(trainer->wait(TimePoint{})) << "no thread is left";
    EXPECT_EQ(trainer->progress().end, TrainEnd::kFailed);
    EXPECT_EQ(trainer->status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(trainer->start().code(), StatusCode::kFailedPrecondition);
  }
}

TEST(Training, ProfilingWithoutThreadsIsRefused) {
  const TrainPlan plan =
      plan_training(registry(), "ddqn", "CartPole-v1", {}, {{"hidden", std::string("16")}}).value();
  CoreProfileOptions options;
  options.measure_s = 0.02;
  const test::NoNewThreads none;
  expect_refused(tune_cores(plan, options).status(), StatusCode::kResourceExhausted,
                 {"a measurement", "ulimit -u"});
}

TEST(Training, ProfilingAFailingEnvironmentReportsItsError) {
  const TrainPlan plan = plan_training(registry(), "ddqn", "Raises", {}, {}).value();
  expect_refused(tune_cores(plan, {}).status(), StatusCode::kInternal, {"out of fuel"});
}

TEST(Training, UnknownNamesAreRefusedNamingTheNearest) {
  expect_refused(open("CartPole-v1", {}, "dqm").status(), StatusCode::kNotFound, {"dqm", "dqn"});
  expect_refused(open("CartPol-v1", {}).status(), StatusCode::kNotFound, {"CartPole-v1"});
  expect_refused(open("Pendulum-v1", {}).status(), StatusCode::kInvalidArgument, {"ddqn", "sac"});
  expect_refused(open("CartPole-v1", {{"gama", 0.9}}).status(), StatusCode::kInvalidArgument,
                 {"gama", "gamma"});
}

}  // namespace
}  // namespace reverie
