#include "reverie/learn/update_ratio.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace reverie {
namespace {

UpdateRatioOptions options_of(std::uint64_t steps, std::uint64_t warmup, double interval,
                              std::uint64_t lead) {
  UpdateRatioOptions options;
  options.steps = steps;
  options.warmup = warmup;
  options.update_interval = interval;
  options.lead = lead;
  return options;
}

TEST(UpdateRatio, ABatchIsDueOnceItsStepsAreCollected) {
  UpdateRatio ratio(options_of(100, 10, 4, 0));
  EXPECT_EQ(ratio.batch_count(), 22u);  // (100 - 10) / 4, rounded down
  ratio.collect(13);
  EXPECT_FALSE(ratio.is_due(0));
  ratio.collect(1);
  EXPECT_TRUE(ratio.is_due(0));
  EXPECT_FALSE(ratio.is_due(1));
}

TEST(UpdateRatio, AnIntervalBelowOneRequiresSeveralBatchesPerStep) {
  UpdateRatio ratio(options_of(11, 1, 0.25, 0));
  EXPECT_EQ(ratio.batch_count(), 40u);
  ratio.collect(2);
  EXPECT_TRUE(ratio.is_due(3));
  EXPECT_FALSE(ratio.is_due(4));
}

// 100 + 330 * 1.1 is 463.00000000000006 in doubles, yet 363 / 1.1 is 330.
TEST(UpdateRatio, TheLastBatchHasItsStepsOnceAllAreCollectedWhateverTheIntervalRoundsTo) {
  for (const double interval : {1.1, 2.2, 4.4, 8.8, 0.1, 0.3, 0.7, 3.3}) {
    for (std::uint64_t steps = 101; steps < 3'000; ++steps) {
      UpdateRatio ratio(options_of(steps, 100, interval, 0));
      ratio.collect(steps);
      if (ratio.batch_count() == 0) continue;
      ASSERT_TRUE(ratio.is_due(ratio.batch_count() - 1)) << interval << " " << steps;
      ASSERT_FALSE(ratio.is_due(ratio.batch_count())) << interval << " " << steps;
    }
  }
  EXPECT_EQ(UpdateRatio(options_of(463, 100, 1.1, 0)).batch_count(), 330u);
}

TEST(UpdateRatio, OnlyCompleteRoundsAreCounted) {
  UpdateRatioOptions options = options_of(111, 10, 1, 0);
  options.batches_per_round = 3;
  EXPECT_EQ(UpdateRatio(options).batch_count(), 99u);
}

TEST(UpdateRatio, FewerStepsThanTheWarmUpMakeNoBatch) {
  EXPECT_EQ(UpdateRatio(options_of(10, 20, 1, 0)).batch_count(), 0u);
}

TEST(UpdateRatio, ActorsStopAtTheLeadAndContinueAtHalfOfIt) {
  UpdateRatio ratio(options_of(10'000, 0, 1, 100));
  ratio.collect(99);
  EXPECT_TRUE(ratio.may_collect());
  ratio.collect(1);
  EXPECT_FALSE(ratio.may_collect());
  ratio.learn(49);
  EXPECT_FALSE(ratio.may_go_on_collecting());
  ratio.learn(1);
  EXPECT_TRUE(ratio.may_go_on_collecting());
}

TEST(UpdateRatio, MeasuresStepsPerBatchSinceTheWarmUp) {
  UpdateRatio ratio(options_of(1'000, 100, 2, 0));
  ratio.collect(100);
  EXPECT_FALSE(ratio.measured_interval().has_value());
  ratio.collect(50);
  ratio.learn(20);
  EXPECT_DOUBLE_EQ(*ratio.measured_interval(), 2.5);
}

// Runs threads that collect and learn as fast as the gate allows; returns the ratio at the end.
UpdateRatio run(const UpdateRatioOptions& options, int actors, int learners, double* ahead_max) {
  RatioGate gate(options, Clock::system());
  std::vector<std::thread> threads;
  std::atomic<double> ahead{0};
  for (int i = 0; i < actors; ++i) {
    threads.emplace_back([&] {
      while (gate.begin_collect()) gate.collect(options.actor_stride);
    });
  }
  for (int i = 0; i < learners; ++i) {
    threads.emplace_back([&] {
      while (gate.begin_next_batch()) {
        double now = gate.ratio().ahead();
        double seen = ahead.load();
        while (now > seen && !ahead.compare_exchange_weak(seen, now)) {
        }
        gate.learn(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  *ahead_max = ahead;
  return gate.ratio();
}

TEST(RatioGate, EveryStepIsCollectedAndEveryBatchLearned) {
  for (const double interval : {0.5, 1.0, 3.0}) {
    for (const int actors : {1, 3}) {
      UpdateRatioOptions options = options_of(4'000, 100, interval, 64);
      options.actor_stride = 4;
      double ahead = 0;
      const UpdateRatio end = run(options, actors, 2, &ahead);
      EXPECT_GE(end.collected(), 4'000u);
      EXPECT_LE(end.collected(), 4'000u + 4 * 3);
      EXPECT_EQ(end.learned(), end.batch_count());
      // Each actor may begin a stride just below the lead; the end of the run adds a batch.
      EXPECT_LE(ahead, 64 + 4 * 3 + 4 * interval + 1) << interval << " " << actors;
    }
  }
}

TEST(RatioGate, AnIntervalWhoseProductsRoundUpEndsWithEveryBatchLearned) {
  for (const std::uint64_t lead : {0u, 64u}) {
    double ahead = 0;
    const UpdateRatio end = run(options_of(463, 100, 1.1, lead), 1, 1, &ahead);
    EXPECT_EQ(end.learned(), 330u);
  }
}

TEST(RatioGate, BatchesThatAreHeldHoldNoActorAndBeginWithAnItemOrTheLastStep) {
  for (const bool has_item : {true, false}) {
    RatioGate gate(options_of(100, 10, 1, 8), Clock::system());
    bool is_there = false;
    gate.hold_batches_until([&] { return is_there; });
    gate.collect_outside(60);
    EXPECT_TRUE(gate.may_collect());
    EXPECT_TRUE(gate.wait_to_collect(TimePoint{}));
    gate.attach(1);
    std::atomic<bool> is_begun{false};
    std::thread learner([&] {
      EXPECT_TRUE(gate.begin_next_batch());
      is_begun = true;
      gate.detach();
    });
    EXPECT_TRUE(gate.pause());
    EXPECT_TRUE(gate.wait_for_rest(TimePoint::max()));  // the learner waits, or is about to
    EXPECT_FALSE(is_begun);
    is_there = has_item;
    gate.go_on();
    gate.collect_outside(has_item ? 1 : 40);
    learner.join();
    EXPECT_EQ(gate.may_collect(), !has_item);
  }
}

TEST(RatioGate, AThreadThatDoesNotRestIsWaitedForUntilTheDeadlineOrTheStop) {
  RatioGate gate(options_of(100, 10, 1, 8), Clock::system());
  gate.attach(1);
  EXPECT_TRUE(gate.pause());
  EXPECT_FALSE(gate.wait_for_rest(TimePoint{}));
  gate.stop();
  EXPECT_TRUE(gate.wait_for_rest(TimePoint::max()));
  EXPECT_FALSE(gate.pause());
}

TEST(RatioGate, StopEndsEveryWaitAndEveryLaterCall) {
  RatioGate gate(options_of(1'000'000, 10, 1, 8), Clock::system());
  std::thread actor([&] {
    while (gate.begin_collect()) gate.collect(1);  // waits at the lead, since no thread learns
  });
  EXPECT_TRUE(test::eventually([&] { return gate.ratio().collected() >= 18; }));
  gate.stop();
  actor.join();
  EXPECT_FALSE(gate.begin_collect());
  EXPECT_FALSE(gate.begin_batch(0));
  EXPECT_FALSE(gate.begin_next_batch());
}

TEST(RatioGate, ALearnerThatWaitsIsWokenByStop) {
  RatioGate gate(options_of(1'000'000, 10, 1, 8), Clock::system());
  std::thread learner([&] { EXPECT_FALSE(gate.begin_next_batch()); });
  gate.stop();
  learner.join();
}

}  // namespace
}  // namespace reverie
