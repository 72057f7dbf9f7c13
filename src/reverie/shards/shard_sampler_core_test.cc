// Splitting, hedging, retrying and merging, with a manual clock.
#include "reverie/shards/shard_sampler_core.h"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/items.h"

namespace reverie {
namespace {

using ShardQueryPtr = std::shared_ptr<ShardSamplerCore::ShardQuery>;
using Work = ShardSamplerCore::Work;
using Counts = std::vector<std::size_t>;
constexpr Duration kMillisecond = std::chrono::milliseconds(1);

class ShardSamplerCoreTest : public ::testing::Test {
 protected:
  void open(std::size_t shard_count) {
    is_up_.assign(shard_count, true);
    ShardSamplerCore::Shards shards{shard_count, [this](ShardIndex shard) { return is_up_[shard]; },
                                    [] { return unavailable("no shard answers; all are down"); }};
    core_.emplace(std::move(shards), options_, clock_, clock_);
  }

  // Requests `count` samples; result_ is set once the request is complete.
  Work sample(std::size_t count, TimePoint deadline = TimePoint::max(), RequestId id = 1) {
    SampleRequest request;
    request.table = "t";
    request.count = request.min_count = count;
    request.deadline = deadline;
    Work work;
    core_->sample(
        id, std::move(request), [this](SampleResult result) { result_ = std::move(result); }, work);
    complete(work);
    return work;
  }
  // Answers with `count` items of probability `p`, from a table of `size` items.
  Work answer(const ShardQueryPtr& query, std::size_t count, Status status = {}, double p = 0.1,
              std::int64_t size = 10, double mass = 0) {
    SampleResult result{std::move(status), std::move(query->batch)};
    result.batch.set_sampler_mass(mass);
    for (std::size_t i = 0; i < count; ++i) {
      SampledItem item;
      item.key = ++last_key_;
      item.probability = p;
      item.priority = 1.0;
      item.table_size = size;
      item.trajectory = stored_.trajectory.view();
      result.batch.add(item);
    }
    Work work;
    core_->on_result(query, std::move(result), work);
    complete(work);
    return work;
  }
  Work alarm_after(Duration time) {
    clock_.advance(time);
    Work work;
    core_->on_alarm(work);
    complete(work);
    return work;
  }
  Work change(ShardIndex shard, bool is_up) {
    is_up_[shard] = is_up;
    Work work;
    core_->on_shards_changed(work);
    complete(work);
    return work;
  }
  void reset(ShardIndex shard) {
    Work work;
    core_->on_reset("t", shard, work);
    complete(work);
  }
  static void complete(Work& work) {
    for (auto& [done, result] : work.ends) done(std::move(result));
  }

  static Counts asked(const Work& work) {
    Counts counts;
    for (const ShardQueryPtr& query : work.queries) counts.push_back(query->count);
    return counts;
  }
  Counts given() const {
    Counts counts(is_up_.size());
    for (const ShardIndex shard : result_->batch.shards()) ++counts[shard];
    return counts;
  }
  TimePoint in(Duration time) const { return clock_.now() + time; }

  ManualClock clock_;
  ShardSamplerOptions options_;  // hedge_min 5 ms, query_timeout 100 ms, size_interval 500 ms
  std::vector<bool> is_up_;
  std::optional<ShardSamplerCore> core_;
  std::optional<SampleResult> result_;
  Item stored_ = testing::make_item(1, 1.0);
  ItemKey last_key_ = 0;
};

TEST_F(ShardSamplerCoreTest, ABatchHasAPartOfEachShardAndProbabilitiesOverAllShards) {
  open(3);
  Work work = sample(6);
  ASSERT_EQ(asked(work), (Counts{2, 2, 2}));
  answer(work.queries[0], 2, {}, 0.5, 10);
  answer(work.queries[1], 2, {}, 0.25, 20);
  EXPECT_FALSE(result_);
  answer(work.queries[2], 2, {}, 0.125, 40);
  ASSERT_TRUE(result_);
  EXPECT_TRUE(result_->status.ok());
  EXPECT_EQ(given(), (Counts{2, 2, 2}));
  EXPECT_EQ(result_->batch.table_size(), 70);
  EXPECT_DOUBLE_EQ(result_->batch.probabilities()[0], 0.5 / 3);
  EXPECT_DOUBLE_EQ(result_->batch.probabilities()[5], 0.125 / 3);
  EXPECT_EQ(result_->batch.tickets()[3], result_->batch.keys()[3]);
}

TEST_F(ShardSamplerCoreTest, ALateShardCostsOneHedgeAndItsSamplesComeFirstNextTime) {
  open(3);
  Work work = sample(6);
  const ShardQueryPtr late = work.queries[2];
  EXPECT_EQ(work.wake, in(60 * kMillisecond))
      << "three times 20 ms, before any answer has told more";
  answer(work.queries[0], 2);
  answer(work.queries[1], 2);
  const TimePoint hedge = work.wake;
  EXPECT_EQ(asked(alarm_after(59 * kMillisecond)), Counts{}) << "not yet";
  EXPECT_FALSE(result_);
  work = alarm_after(hedge - clock_.now());
  ASSERT_EQ(asked(work), (Counts{1, 1})) << "the others are asked for what is missing";
  answer(work.queries[0], 1);
  answer(work.queries[1], 1);
  ASSERT_TRUE(result_);
  EXPECT_EQ(given(), (Counts{3, 3, 0}));

  result_.reset();
  work = sample(4);
  ASSERT_EQ(asked(work), (Counts{2, 2})) << "one request under way at the late shard is enough";
  EXPECT_NE(work.queries[0]->shard, 2);
  answer(work.queries[0], 2);
  answer(late, 2);
  ASSERT_TRUE(result_) << "late samples go to the request that waits";
  EXPECT_EQ(given()[2], 2u);

  answer(work.queries[1], 2);  // these samples are kept for the next request
  result_.reset();
  work = sample(2);
  EXPECT_EQ(asked(work), Counts{});
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->batch.size(), 2u);
}

TEST_F(ShardSamplerCoreTest, TheHedgeDelayFollowsTheAnswerTimes) {
  open(2);
  for (int i = 0; i < 200; ++i) {
    const Work work = sample(2);
    clock_.advance(40 * kMillisecond);
    for (const ShardQueryPtr& query : work.queries) answer(query, query->count);
  }
  Work work = sample(2);
  EXPECT_NEAR(to_seconds(work.wake - clock_.now()), 0.12, 1e-6);
  for (const ShardQueryPtr& query : work.queries) answer(query, query->count);
  for (int i = 0; i < 400; ++i) {
    for (const ShardQueryPtr& query : sample(2).queries) answer(query, query->count);
  }
  work = sample(2);
  EXPECT_EQ(work.wake, in(options_.hedge_min));
}

TEST_F(ShardSamplerCoreTest, TheOtherShardsFillUpForAShardWithTooFewItems) {
  open(2);
  Work work = sample(8, in(10'000 * kMillisecond));
  ASSERT_EQ(asked(work), (Counts{4, 4}));
  EXPECT_EQ(work.queries[0]->deadline, in(options_.query_timeout));
  answer(work.queries[0], 4);
  clock_.advance(options_.query_timeout);
  work = answer(work.queries[1], 1, deadline_exceeded("1 of 4"));
  std::size_t missing = 0;
  for (const ShardQueryPtr& query : work.queries) missing += query->count;
  EXPECT_EQ(missing, 3u);
  for (const ShardQueryPtr& query : work.queries) answer(query, query->count);
  ASSERT_TRUE(result_);
  EXPECT_TRUE(result_->status.ok());
  EXPECT_EQ(result_->batch.size(), 8u);
}

TEST_F(ShardSamplerCoreTest, AtTheDeadlineTheResultHasTheSamplesReceived) {
  open(2);
  const Work work = sample(8, in(50 * kMillisecond));
  clock_.advance(50 * kMillisecond);
  answer(work.queries[0], 3, deadline_exceeded("too small"));
  EXPECT_FALSE(result_);
  answer(work.queries[1], 1, deadline_exceeded("too small"));
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->status,
            deadline_exceeded("4 of 8 samples were drawn before the deadline; too small"));
  EXPECT_EQ(given(), (Counts{3, 1}));
}

TEST_F(ShardSamplerCoreTest, ASilentShardIsAwaitedAtMostForTheGraceAfterTheDeadline) {
  open(1);
  sample(4, in(50 * kMillisecond));
  alarm_after(50 * kMillisecond + options_.answer_grace - kMillisecond);
  EXPECT_FALSE(result_) << "the shard has its own deadline, and its answer is on its way";
  alarm_after(kMillisecond);
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(ShardSamplerCoreTest, SamplesRequestedFromALostShardAreRequestedFromOthers) {
  open(2);
  const Work first = sample(4);
  is_up_[1] = false;
  Work work = answer(first.queries[1], 0, unavailable("shard 1 is gone"));
  EXPECT_TRUE(work.queries.empty()) << "a shard has one request of a draw at a time";
  work = answer(first.queries[0], 2);
  ASSERT_EQ(asked(work), Counts{2});
  EXPECT_EQ(work.queries[0]->shard, 0);
}

TEST_F(ShardSamplerCoreTest, WhileNoShardAnswersARequestWaitsForTheRetryTime) {
  options_.retry_time = 30 * kMillisecond;
  open(2);
  is_up_ = {false, false};
  Work work = sample(2);
  EXPECT_EQ(work.wake, in(30 * kMillisecond));
  work = alarm_after(29 * kMillisecond);
  EXPECT_FALSE(result_);
  alarm_after(kMillisecond);
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->status.code(), StatusCode::kUnavailable);

  result_.reset();
  sample(2);
  work = change(1, true);
  ASSERT_EQ(asked(work), Counts{2}) << "the first shard that is up is asked at once";
  answer(work.queries[0], 2);
  EXPECT_TRUE(result_->status.ok());
}

TEST_F(ShardSamplerCoreTest, ACancelledRequestHasTheSamplesReceivedByThen) {
  open(2);
  const Work work = sample(4, TimePoint::max(), 7);
  EXPECT_FALSE(core_->attach(work.queries[0], {0, 11}));
  answer(work.queries[0], 2);
  const std::vector<ShardCall> calls = core_->begin_cancel(7);
  EXPECT_TRUE(calls.empty()) << "the one that was attached is over";
  EXPECT_TRUE(core_->attach(work.queries[1], {1, 12})) << "its call is to be cancelled";
  Work end;
  core_->end_cancel(7, end);
  complete(end);
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->status, cancelled("cancelled with 2 of 4 samples drawn"));
  EXPECT_EQ(result_->batch.size(), 2u);
}

TEST_F(ShardSamplerCoreTest, AnEmptyShardIsAskedForItsSizesOccasionally) {
  options_.sampling = ShardSampling::kEven;
  open(2);
  Work work = sample(2);
  for (const ShardQueryPtr& query : work.queries) answer(query, query->count);
  const auto asks_for_sizes = [&] {
    Work asking = sample(2, in(10'000 * kMillisecond));
    const auto empty = asking.queries[1];
    clock_.advance(options_.query_timeout);
    answer(asking.queries[0], 1);
    Work next = answer(empty, 0, deadline_exceeded("empty"));
    const bool asked = !next.sizes_of.empty();
    for (const ShardQueryPtr& query : next.queries) answer(query, query->count);
    return asked;
  };
  EXPECT_TRUE(asks_for_sizes());
  EXPECT_FALSE(asks_for_sizes());
  clock_.advance(options_.size_interval);
  EXPECT_TRUE(asks_for_sizes());
  core_->learn_sizes(1, {});  // the shard does not have the table
  clock_.advance(options_.size_interval);
  result_.reset();
  sample(2);
}

TEST_F(ShardSamplerCoreTest, PartsFollowTheMassThatShardsReportForAnySampler) {
  options_.sampling = ShardSampling::kMass;
  open(2);
  Work work = sample(8);
  EXPECT_EQ(asked(work), (Counts{4, 4})) << "nothing is known yet";
  answer(work.queries[0], 4, {}, 0.1, 10, /*mass=*/30);
  answer(work.queries[1], 4, {}, 0.1, 10, /*mass=*/10);
  EXPECT_FALSE(core_->must_learn("t"));
  EXPECT_EQ(asked(sample(80)), (Counts{60, 20}));
}

TEST_F(ShardSamplerCoreTest, TheMassOfAShardThatReportsNoneIsEstimatedFromItsDraws) {
  options_.sampling = ShardSampling::kMass;
  open(2);
  Work work = sample(8);
  answer(work.queries[0], 4, {}, 0.05);
  answer(work.queries[1], 4, {}, 0.1);
  EXPECT_TRUE(core_->must_learn("t")) << "what priorities are raised to";
  TableInfo info;
  info.options.name = "t";
  info.options.sampler = {"Prioritized", {{"priority_exponent", 0.5}}};
  core_->learn({&info, 1});
  EXPECT_FALSE(core_->must_learn("t"));
  work = sample(8);
  answer(work.queries[0], 4, {}, 0.05);  // with priority 1: masses of 20 and 10
  answer(work.queries[1], 4, {}, 0.1);
  EXPECT_EQ(asked(sample(60)), (Counts{40, 20}));
}

TEST_F(ShardSamplerCoreTest, ClosingCompletesWaitingAndLaterRequests) {
  open(2);
  sample(4);
  core_->stop();
  Work work;
  core_->close(work);
  complete(work);
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->status.code(), StatusCode::kCancelled);
  result_.reset();
  EXPECT_EQ(asked(sample(1)), Counts{});
  EXPECT_EQ(result_->status.code(), StatusCode::kCancelled);
}

TEST_F(ShardSamplerCoreTest, SamplesThatWaitAreDroppedByAReset) {
  open(2);
  Work work = sample(4);
  const ShardQueryPtr late = work.queries[1];
  answer(work.queries[0], 2);
  work = alarm_after(60 * kMillisecond);
  answer(work.queries[0], 2);
  ASSERT_TRUE(result_);
  answer(late, 2);
  reset(0);
  result_.reset();
  work = sample(1);
  ASSERT_TRUE(result_) << "another shard's";
  reset(1);
  result_.reset();
  const ItemKey last = last_key_;
  work = sample(4);
  ASSERT_EQ(asked(work), (Counts{2, 2}));
  answer(work.queries[0], 2);
  answer(work.queries[1], 2);
  ASSERT_TRUE(result_);
  for (const ItemKey key : result_->batch.keys()) EXPECT_GT(key, last);
}

TEST_F(ShardSamplerCoreTest, SamplesRequestedBeforeAResetGoToNoRequestAfterIt) {
  open(2);
  Work work = sample(4);
  const ShardQueryPtr late = work.queries[1];
  answer(work.queries[0], 2);
  work = alarm_after(60 * kMillisecond);
  answer(work.queries[0], 2);
  ASSERT_TRUE(result_);
  reset(0);
  reset(1);
  result_.reset();
  work = sample(2);
  ASSERT_EQ(asked(work), Counts{2}) << "the late shard has not answered";
  answer(late, 2, {}, 0.1, 1'000);
  EXPECT_FALSE(result_);
  answer(work.queries[0], 2, {}, 0.1, 10);
  ASSERT_TRUE(result_);
  EXPECT_EQ(given(), (Counts{2, 0}));
  EXPECT_EQ(result_->batch.table_size(), 10) << "without a size from before the reset";
  result_.reset();
  EXPECT_EQ(asked(sample(4)), (Counts{2, 2})) << "nothing is left over, and the shard is free";
}

TEST_F(ShardSamplerCoreTest, TheSizeOfAShardIsNotKnownAfterItsReset) {
  open(2);
  Work work = sample(4);
  answer(work.queries[0], 2, {}, 0.1, 1'000);
  answer(work.queries[1], 2, {}, 0.1, 1'000);
  EXPECT_EQ(result_->batch.table_size(), 2'000);
  reset(0);
  reset(1);
  result_.reset();
  work = sample(2, in(50 * kMillisecond));
  ASSERT_EQ(asked(work), (Counts{1, 1}));
  work = answer(work.queries[0], 1, {}, 0.1, 10);
  clock_.advance(1'000 * kMillisecond);
  alarm_after(Duration::zero());
  ASSERT_TRUE(result_) << "the other one is silent";
  EXPECT_EQ(result_->batch.table_size(), 10);
}

TEST_F(ShardSamplerCoreTest, ARequestThatWaitsDuringAResetGetsItsAnswers) {
  open(2);
  const Work work = sample(4);
  answer(work.queries[0], 2);
  reset(0);
  reset(1);
  answer(work.queries[1], 2);
  ASSERT_TRUE(result_) << "the shard may have drawn them after the reset";
  EXPECT_EQ(given(), (Counts{2, 2}));
}

}  // namespace
}  // namespace reverie
