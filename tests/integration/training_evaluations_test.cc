// The moments at which trainings evaluate their policies: with threads that act, with actors in
// other processes, and after a stop in an evaluation.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/agents/algorithms.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/env/native/classic_control.h"
#include "tests/support/eventually.h"

namespace reverie {
namespace {

constexpr std::int64_t kEpisodes = 7;  // of an evaluation; actors have one environment

const NativeRegistry& cart_poles() {
  static const NativeRegistry* const instance = [] {
    auto* const made = new NativeRegistry;
    EXPECT_TRUE(add_classic_control(*made).ok());
    return made;
  }();
  return *instance;
}

TrainPlan evaluated_plan(std::int64_t actors, std::int64_t steps, std::int64_t interval) {
  const Options options{{"seed", std::int64_t{1}},
                        {"steps", steps},
                        {"actors", actors},
                        {"warmup_steps", std::int64_t{50}},
                        {"hidden", std::string("8")},
                        {"batch_size", std::int64_t{4}},
                        {"evaluation_interval", interval},
                        {"evaluation_episodes", kEpisodes}};
  return plan_training(cart_poles(), "dqn", "CartPole-v1", {}, options).value();
}

// Calls `begun` with 1, 2, ... when an evaluation begins, on its thread.
void watch_evaluations(TrainPlan& plan, std::function<void(int)> begun) {
  auto count = std::make_shared<std::atomic<int>>(0);
  plan.make_envs = [make = plan.make_envs, begun = std::move(begun), count](std::size_t env_count,
                                                                            std::uint64_t seed) {
    if (env_count == kEpisodes) begun(++*count);
    return make(env_count, seed);
  };
}

// A folder for checkpoints.
class CheckpointFolder {
 public:
  CheckpointFolder() { EXPECT_NE(mkdtemp(path_.data()), nullptr); }
  const std::string& path() const { return path_; }
  void save(Trainer& trainer) const {
    const Result<std::string> saved =
        trainer.save(*checkpoint::Checkpointer::open(path_, {}).value());
    EXPECT_TRUE(saved.ok()) << saved.status().to_string();
  }

 private:
  std::string path_ = ::testing::TempDir() + "evaluations_XXXXXX";
};

void run_whole(Trainer& trainer) {
  ASSERT_TRUE(trainer.start().ok());
  ASSERT_TRUE(trainer.wait(TimePoint::max()));
  ASSERT_TRUE(trainer.status().ok()) << trainer.status().to_string();
}

std::vector<std::uint64_t> steps_of(const std::vector<Evaluation>& evaluations) {
  std::vector<std::uint64_t> steps;
  for (const Evaluation& one : evaluations) steps.push_back(one.step);
  return steps;
}

void collect_outside(Trainer& trainer, std::uint64_t steps) {
  trainer.collect([&] { return Trainer::OutsideSteps{steps, {}}; });
}

TEST(TrainingEvaluations, OneThatAStopHasEndedIsTheFirstThingOfAResumedTraining) {
  for (const std::int64_t actors : {0, 1}) {
    for (const int stopped : {1, 2}) {
      const CheckpointFolder folder;
      {
        std::atomic<Trainer*> running = nullptr;
        TrainPlan made = evaluated_plan(actors, 400, 200);
        watch_evaluations(made, [&](int number) {
          if (number == stopped) running.load()->stop();
        });
        const std::unique_ptr<Trainer> trainer = open_training(std::move(made)).value();
        running = trainer.get();
        run_whole(*trainer);
        EXPECT_EQ(trainer->progress().end, TrainEnd::kStopped);
        EXPECT_EQ(trainer->evaluations().size(), static_cast<std::size_t>(stopped - 1));
        folder.save(*trainer);
      }
      const auto resumed = open_training(evaluated_plan(actors, 400, 200), folder.path()).value();
      run_whole(*resumed);
      EXPECT_EQ(steps_of(resumed->evaluations()), (std::vector<std::uint64_t>{200, 400}))
          << actors << " actors, stopped in evaluation " << stopped;
    }
  }
}

TEST(TrainingEvaluations, ThatOverlapAreInTheOrderOfTheirSteps) {
  std::atomic<Trainer*> running = nullptr;
  TrainPlan made = evaluated_plan(2, 600, 200);
  watch_evaluations(made, [&](int number) {
    if (number != 1) return;
    EXPECT_TRUE(test::eventually([&] { return !running.load()->evaluations().empty(); }));
  });
  const std::unique_ptr<Trainer> trainer = open_training(std::move(made)).value();
  running = trainer.get();
  run_whole(*trainer);
  const std::vector<std::uint64_t> steps = steps_of(trainer->evaluations());
  EXPECT_EQ(steps.size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
}

TEST(TrainingEvaluations, TheLastIsMadeIfAnActorInAnotherProcessTookTheLastSteps) {
  std::atomic<Trainer*> running = nullptr;
  TrainPlan made = evaluated_plan(1, 400, 200);
  watch_evaluations(made, [&](int number) {
    if (number == 1) collect_outside(*running.load(), 200);
  });
  const std::unique_ptr<Trainer> trainer = open_served_training(std::move(made)).value();
  running = trainer.get();
  run_whole(*trainer);
  EXPECT_EQ(steps_of(trainer->evaluations()), (std::vector<std::uint64_t>{200, 400}));
}

TEST(TrainingEvaluations, ACheckpointThatWaitsForOneCanBeInterrupted) {
  const CheckpointFolder folder;
  std::atomic<Trainer*> running = nullptr;
  Status saved;
  TrainPlan made = evaluated_plan(1, 400, 200);
  watch_evaluations(made, [&](int number) {
    if (number != 1) return;
    std::thread saver([&] {
      const auto to = checkpoint::Checkpointer::open(folder.path(), {}).value();
      saved = running.load()->save(*to, [] { return true; }).status();
    });
    saver.join();
  });
  const std::unique_ptr<Trainer> trainer = open_training(std::move(made)).value();
  running = trainer.get();
  run_whole(*trainer);
  EXPECT_EQ(saved.code(), StatusCode::kCancelled) << saved.to_string();
  EXPECT_EQ(steps_of(trainer->evaluations()), (std::vector<std::uint64_t>{200, 400}));
  folder.save(*trainer);
}

TEST(TrainingEvaluations, ALaterOneIsNotRepeatedBecauseAStopHasEndedAnEarlierOne) {
  constexpr std::uint64_t kInterval = 100;
  const CheckpointFolder folder;
  {
    std::atomic<Trainer*> running = nullptr;
    TrainPlan made = evaluated_plan(2, 100'000, kInterval);
    // The first takes longer than the second.
    watch_evaluations(made, [&](int number) {
      if (number != 1) return;
      EXPECT_TRUE(test::eventually([&] { return !running.load()->evaluations().empty(); }));
      running.load()->stop();
    });
    const std::unique_ptr<Trainer> trainer = open_training(std::move(made)).value();
    running = trainer.get();
    run_whole(*trainer);
    ASSERT_FALSE(trainer->evaluations().empty());
    folder.save(*trainer);
  }
  const auto resumed = open_training(evaluated_plan(2, 100'000, kInterval), folder.path()).value();
  const std::size_t before = resumed->evaluations().size();
  ASSERT_TRUE(resumed->start().ok());
  EXPECT_TRUE(test::eventually([&] { return resumed->evaluations().size() > before + 2; }));
  resumed->stop();
  ASSERT_TRUE(resumed->wait(TimePoint::max()));
  std::set<std::uint64_t> numbers;
  for (const Evaluation& one : resumed->evaluations()) {
    EXPECT_TRUE(numbers.insert(one.step / kInterval).second) << "twice after step " << one.step;
  }
}

}  // namespace
}  // namespace reverie
