#include "reverie/learn/pace.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

PaceOptions options_of(std::uint64_t steps, std::uint64_t warmup, double interval,
                       std::uint64_t lead) {
  PaceOptions options;
  options.steps = steps;
  options.warmup = warmup;
  options.update_interval = interval;
  options.lead = lead;
  return options;
}

TEST(Pace, BatchBIsDueOnceItsStepsAreThere) {
  Pace pace(options_of(100, 10, 4, 0));
  EXPECT_EQ(pace.batch_count(), 22u);  // (100 - 10) / 4, cut off
  pace.collect(13);
  EXPECT_FALSE(pace.is_due(0));
  pace.collect(1);
  EXPECT_TRUE(pace.is_due(0));
  EXPECT_FALSE(pace.is_due(1));
}

TEST(Pace, AnIntervalBelowOneAsksForSeveralBatchesAStep) {
  Pace pace(options_of(11, 1, 0.25, 0));
  EXPECT_EQ(pace.batch_count(), 40u);
  pace.collect(2);
  EXPECT_TRUE(pace.is_due(3));
  EXPECT_FALSE(pace.is_due(4));
}

TEST(Pace, NoPartOfARoundIsBegun) {
  PaceOptions options = options_of(111, 10, 1, 0);
  options.batches_per_round = 3;
  EXPECT_EQ(Pace(options).batch_count(), 99u);
}

TEST(Pace, FewerStepsThanTheWarmUpMakeNoBatch) {
  EXPECT_EQ(Pace(options_of(10, 20, 1, 0)).batch_count(), 0u);
}

TEST(Pace, ActorsStopAtTheLeadAndGoOnAtHalfOfIt) {
  Pace pace(options_of(10'000, 0, 1, 100));
  pace.collect(99);
  EXPECT_TRUE(pace.may_collect());
  pace.collect(1);
  EXPECT_FALSE(pace.may_collect());
  pace.learn(49);
  EXPECT_FALSE(pace.may_go_on_collecting());
  pace.learn(1);
  EXPECT_TRUE(pace.may_go_on_collecting());
}

TEST(Pace, MeasuresStepsABatchSinceTheWarmUp) {
  Pace pace(options_of(1'000, 100, 2, 0));
  pace.collect(100);
  EXPECT_FALSE(pace.measured_interval().has_value());
  pace.collect(50);
  pace.learn(20);
  EXPECT_DOUBLE_EQ(*pace.measured_interval(), 2.5);
}

// Threads that collect and learn as fast as they may; returns the pace at the end.
Pace run(const PaceOptions& options, int actors, int learners, double* ahead_max) {
  Pacer pacer(options, Clock::system());
  std::vector<std::thread> threads;
  std::atomic<double> ahead{0};
  for (int i = 0; i < actors; ++i) {
    threads.emplace_back([&] {
      while (pacer.begin_collect()) pacer.collect(options.actor_stride);
    });
  }
  for (int i = 0; i < learners; ++i) {
    threads.emplace_back([&] {
      while (pacer.begin_next_batch()) {
        double now = pacer.pace().ahead();
        double seen = ahead.load();
        while (now > seen && !ahead.compare_exchange_weak(seen, now)) {
        }
        pacer.learn(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  *ahead_max = ahead;
  return pacer.pace();
}

TEST(Pacer, EveryStepIsCollectedAndEveryBatchLearned) {
  for (const double interval : {0.5, 1.0, 3.0}) {
    for (const int actors : {1, 3}) {
      PaceOptions options = options_of(4'000, 100, interval, 64);
      options.actor_stride = 4;
      double ahead = 0;
      const Pace end = run(options, actors, 2, &ahead);
      EXPECT_GE(end.collected(), 4'000u);
      EXPECT_LE(end.collected(), 4'000u + 4 * 3);
      EXPECT_EQ(end.learned(), end.batch_count());
      // Each actor may take a stride when the lead is just not used up; the run's end is free.
      EXPECT_LE(ahead, 64 + 4 * 3 + 4 * interval + 1) << interval << " " << actors;
    }
  }
}

TEST(Pacer, StopEndsEveryWaitAndEveryCallToCome) {
  Pacer pacer(options_of(1'000'000, 10, 1, 8), Clock::system());
  std::thread actor([&] {
    while (pacer.begin_collect()) pacer.collect(1);  // waits at the lead: no thread learns
  });
  while (pacer.pace().collected() < 18) std::this_thread::yield();
  pacer.stop();
  actor.join();
  EXPECT_FALSE(pacer.begin_collect());
  EXPECT_FALSE(pacer.begin_batch(0));
  EXPECT_FALSE(pacer.begin_next_batch());
}

TEST(Pacer, ALearnerThatWaitsIsWokenByStop) {
  Pacer pacer(options_of(1'000'000, 10, 1, 8), Clock::system());
  std::thread learner([&] { EXPECT_FALSE(pacer.begin_next_batch()); });
  pacer.stop();
  learner.join();
}

}  // namespace
}  // namespace reverie
