#include "reverie/learn/core_split.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace reverie {
namespace {

// A curve on which each core adds less than the one before.
std::vector<double> curve(std::size_t cores, double first, double exponent) {
  std::vector<double> values;
  for (std::size_t x = 1; x <= cores; ++x) {
    values.push_back(first * std::pow(static_cast<double>(x), exponent));
  }
  return values;
}

TEST(CoreSplit, ActorsAndLearnersKeepPace) {
  // f_a(x) = 100 x, f_l(x) = 300 x: three actors per learner.
  const CoreSplit split =
      split_cores(curve(8, 100, 1), curve(8, 300, 1), {.core_count = 8}).value();
  EXPECT_EQ(split.actor_cores, 6u);
  EXPECT_EQ(split.learner_cores, 2u);
  EXPECT_DOUBLE_EQ(split.ratio, 1.0);
  EXPECT_DOUBLE_EQ(split.steps_per_s, 600);
}

TEST(CoreSplit, TheIntervalCountsStepsPerBatch) {
  const CoreSplit split =
      split_cores(curve(8, 100, 1), curve(8, 100, 1), {.core_count = 8, .update_interval = 3})
          .value();
  EXPECT_EQ(split.actor_cores, 6u);
  EXPECT_EQ(split.learner_cores, 2u);
}

TEST(CoreSplit, AFasterSplitWithinTheToleranceBeatsAnExactOne) {
  // One actor and one learner match exactly; four and four match within 5 % and are nearly four
  // times as fast.
  const std::vector<double> actors{100, 200, 300, 400};
  const std::vector<double> learners{100, 195, 290, 381};
  const CoreSplit split = split_cores(actors, learners, {.core_count = 8}).value();
  EXPECT_EQ(split.actor_cores, 4u);
  EXPECT_EQ(split.learner_cores, 4u);
  const CoreSplit exact = split_cores(actors, learners, {.core_count = 8, .tolerance = 0}).value();
  EXPECT_EQ(exact.actor_cores, 1u);
  EXPECT_EQ(exact.learner_cores, 1u);
}

TEST(CoreSplit, NoPairOfCoreCountsIsBetter) {
  // Typical curves: inference and environments scale well, gradients less so.
  struct Machine {
    std::size_t cores;
    double actor, actor_power, learner, learner_power;
  };
  for (const Machine& machine :
       {Machine{16, 820, 0.94, 1'310, 0.71}, Machine{56, 790, 0.91, 1'240, 0.62},
        Machine{56, 6'000, 0.9, 150, 0.8}}) {
    const std::vector<double> actors = curve(machine.cores, machine.actor, machine.actor_power);
    const std::vector<double> learners =
        curve(machine.cores, machine.learner, machine.learner_power);
    for (const double interval : {0.5, 1.0, 4.0}) {
      const CoreSplitOptions options{.core_count = machine.cores, .update_interval = interval};
      const CoreSplit split = split_cores(actors, learners, options).value();
      EXPECT_LE(split.actor_cores + split.learner_cores, machine.cores);
      const double found = std::abs(split.ratio - 1);
      for (std::size_t a = 1; a < machine.cores; ++a) {
        for (std::size_t l = 1; a + l <= machine.cores; ++l) {
          const double consumed = interval * learners[l - 1];
          const double distance = std::abs(actors[a - 1] / consumed - 1);
          EXPECT_LE(found, distance + options.tolerance + 1e-12);
          if (distance <= found) {
            EXPECT_LE(std::min(actors[a - 1], consumed), split.steps_per_s + 1e-9);
          }
        }
      }
    }
  }
}

TEST(CoreSplit, AnAcceleratorLeavesAllCoresToActors) {
  const CoreSplit split = split_cores(curve(16, 100, 1), std::vector<double>{1'600},
                                      {.core_count = 16, .learners_need_no_core = true})
                              .value();
  EXPECT_EQ(split.actor_cores, 16u);
  EXPECT_EQ(split.learner_cores, 1u);
}

TEST(CoreSplit, OneCoreActsAndLearnsInTurn) {
  const CoreSplit split =
      split_cores(std::vector<double>{300}, std::vector<double>{600}, {.core_count = 1}).value();
  EXPECT_EQ(split.actor_cores, 0u);
  EXPECT_EQ(split.learner_cores, 1u);
  EXPECT_DOUBLE_EQ(split.steps_per_s, 200);
}

TEST(CoreSplit, InvalidCurvesAreRefused) {
  const std::vector<double> good{1, 2};
  const std::vector<double> bad{1, std::numeric_limits<double>::quiet_NaN()};
  expect_refused(split_cores({}, good, {}).status(), StatusCode::kInvalidArgument, {"actors'"});
  expect_refused(split_cores(good, bad, {}).status(), StatusCode::kInvalidArgument,
                 {"learners'", "2 cores", "nan"});
  expect_refused(split_cores(good, good, {.core_count = 2, .update_interval = 0}).status(),
                 StatusCode::kInvalidArgument, {"update_interval"});
  expect_refused(split_cores(good, good, {.core_count = 0}).status(), StatusCode::kInvalidArgument,
                 {"cores"});
}

}  // namespace
}  // namespace reverie
