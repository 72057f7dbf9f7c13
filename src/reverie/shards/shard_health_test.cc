// Probes, losses and returns of services, with a manual clock.
#include "reverie/shards/shard_health.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

using Attached = ShardHealth::Attached;
using Probed = ShardHealth::Probed;
using Shards = std::vector<ShardIndex>;
constexpr Duration kMs = std::chrono::milliseconds(1);

class ShardHealthTest : public ::testing::Test {
 protected:
  TimePoint now() const { return clock_.now(); }
  // Checks the health every probe_interval for `time`; returns the shards to probe, in order.
  Shards look_for(Duration time) {
    Shards probed;
    for (Duration passed{}; passed < time; passed += options_.probe_interval) {
      clock_.advance(options_.probe_interval);
      const ShardHealth::Checkup checkup = health_.check_health(now());
      probed.insert(probed.end(), checkup.to_probe.begin(), checkup.to_probe.end());
    }
    return probed;
  }

  ManualClock clock_;
  ShardConnectionOptions options_;  // defaults: 250 ms, 2 s, 2 s
  ShardHealth health_{{"shard 0 of 2 (a)", "shard 1 of 2 (b)"}, options_};
};

TEST_F(ShardHealthTest, AServiceWithoutWaitingCallsIsNeverProbed) {
  EXPECT_EQ(look_for(10'000 * kMs), Shards{});
  const ShardCall call = health_.open_call(0, now());
  EXPECT_EQ(health_.attach(call, 7), Attached::kWaiting);
  EXPECT_TRUE(health_.end_call(call, {}, now()).told.ok());
  EXPECT_EQ(health_.attach(call, 7), Attached::kOver);
  EXPECT_EQ(look_for(10'000 * kMs), Shards{});
  EXPECT_FALSE(health_.check_health(now()).is_needed);
}

TEST_F(ShardHealthTest, ASilentServiceIsProbedLessAndLessOftenWhileItAnswers) {
  health_.attach(health_.open_call(1, now()), 7);
  std::vector<std::int64_t> probes_ms;
  for (int tick = 1; tick <= 40; ++tick) {
    clock_.advance(250 * kMs);
    const ShardHealth::Checkup checkup = health_.check_health(now());
    EXPECT_TRUE(checkup.is_needed);
    if (checkup.to_probe.empty()) continue;
    EXPECT_EQ(checkup.to_probe, Shards{1});
    probes_ms.push_back(tick * 250);
    EXPECT_EQ(health_.take_probe(1, {}, now()), Probed::kAlive);
  }
  EXPECT_EQ(probes_ms, (std::vector<std::int64_t>{250, 750, 1'750, 3'750, 5'750, 7'750, 9'750}));
  EXPECT_TRUE(health_.is_up(1));
}

TEST_F(ShardHealthTest, AnUnansweredProbeMarksAServiceDownAndItsCallsAreLost) {
  const ShardCall call = health_.open_call(0, now());
  health_.attach(call, 7);
  EXPECT_EQ(look_for(250 * kMs), Shards{0});
  EXPECT_EQ(look_for(1'750 * kMs), Shards{}) << "one probe at a time";
  clock_.advance(250 * kMs);
  const ShardHealth::Checkup checkup = health_.check_health(now());
  EXPECT_EQ(checkup.silent, Shards{0});
  EXPECT_EQ(checkup.silence.message(), "no answer within 2 s");
  EXPECT_EQ(health_.lose(0, checkup.silence), std::vector<RequestId>{7});
  EXPECT_EQ(health_.lose(0, checkup.silence), std::nullopt) << "once";
  EXPECT_FALSE(health_.is_up(0));

  const ShardHealth::Ended ended = health_.end_call(call, cancelled("cancelled"), now());
  EXPECT_EQ(ended.told.code(), StatusCode::kUnavailable);
  EXPECT_EQ(ended.told.message(), "shard 0 of 2 (a): no answer within 2 s");
  EXPECT_FALSE(ended.is_gone) << "it was lost already";
  EXPECT_EQ(health_.none_answers().message(),
            "no shard answers; shard 0 of 2 (a): no answer within 2 s");
}

TEST_F(ShardHealthTest, ACallOpenedWhileItsServiceIsDownIsCancelledAtOnce) {
  health_.lose(0, unavailable("refused"));
  EXPECT_EQ(health_.attach(health_.open_call(0, now()), 7), Attached::kMustCancel);
}

TEST_F(ShardHealthTest, ADownServiceIsProbedUntilItAnswersAndUsedOnceRepaired) {
  health_.lose(1, unavailable("refused"));
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(look_for(250 * kMs), Shards{1});
    EXPECT_EQ(health_.take_probe(1, unavailable("refused"), now()), Probed::kGone);
    EXPECT_EQ(health_.lose(1, unavailable("refused")), std::nullopt);
  }
  EXPECT_EQ(look_for(250 * kMs), Shards{1});
  EXPECT_EQ(health_.take_probe(1, failed_precondition("who are you?"), now()), Probed::kReturning)
      << "a service that refuses is there";
  EXPECT_FALSE(health_.is_up(1));
  EXPECT_EQ(look_for(1'000 * kMs), Shards{}) << "no probe while it is being repaired";
  EXPECT_FALSE(health_.end_return(1, false, now()));
  EXPECT_FALSE(health_.is_up(1));
  EXPECT_EQ(look_for(250 * kMs), Shards{1});
  EXPECT_EQ(health_.take_probe(1, {}, now()), Probed::kReturning);
  EXPECT_TRUE(health_.end_return(1, true, now()));
  EXPECT_TRUE(health_.is_up(1));
  EXPECT_TRUE(health_.why_down(1).ok());
}

TEST_F(ShardHealthTest, UnavailableMarksAServiceDownAndOtherErrorsNameTheShard) {
  const ShardCall refused = health_.open_call(0, now());
  const ShardHealth::Ended told = health_.end_call(refused, not_found("no table 't'"), now());
  EXPECT_FALSE(told.is_gone);
  EXPECT_EQ(told.told.code(), StatusCode::kNotFound);
  EXPECT_NE(told.told.message().find("shard 0 of 2 (a)"), std::string::npos);

  const ShardCall gone = health_.open_call(0, now());
  EXPECT_TRUE(health_.end_call(gone, unavailable("no connection"), now()).is_gone);
  const ShardCall closed = health_.open_call(0, now());
  EXPECT_TRUE(health_.end_call(closed, cancelled("it was closed"), now()).is_gone)
      << "no caller had cancelled it";
}

TEST_F(ShardHealthTest, ACallCancelledByItsCallerDoesNotMarkItsServiceDown) {
  const ShardCall call = health_.open_call(0, now());
  EXPECT_EQ(health_.cancel(call), 0u) << "not attached yet";
  EXPECT_EQ(health_.attach(call, 7), Attached::kMustCancel);
  EXPECT_EQ(health_.cancel(call), 7u);
  EXPECT_FALSE(health_.end_call(call, cancelled("cancelled"), now()).is_gone);
  EXPECT_EQ(health_.cancel(call), 0u);
}

TEST_F(ShardHealthTest, NothingIsLostOrProbedAfterClose) {
  const ShardCall call = health_.open_call(0, now());
  health_.attach(call, 7);
  health_.close();
  EXPECT_EQ(look_for(5'000 * kMs), Shards{});
  EXPECT_FALSE(health_.end_call(call, cancelled("closed"), now()).is_gone);
  EXPECT_EQ(health_.lose(0, unavailable("gone")), std::nullopt);
}

TEST(ShardHealth, ASingleServiceKeepsItsErrorsUnchanged) {
  ShardHealth health({"10.0.0.1:8000"}, {});
  const ShardCall call = health.open_call(0, {});
  EXPECT_EQ(health.end_call(call, not_found("no table 't'"), {}).told, not_found("no table 't'"));
}

}  // namespace
}  // namespace reverie
