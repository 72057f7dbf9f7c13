#include "reverie/client/sample_feed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/faucet.h"
#include "tests/support/forwarding_service.h"

namespace reverie {
namespace {

class SampleFeedTest : public ::testing::Test {
 protected:
  SampleFeed feed(std::size_t request_max, bool is_local = false,
                  const std::shared_ptr<SampleFeed::Budget>& budget = nullptr,
                  std::optional<Duration> timeout = {}) {
    const SampleFeedOptions options{.table = "replay",
                                    .request_max = request_max,
                                    .timeout = timeout,
                                    .is_local = is_local,
                                    .clock = &clock_};
    return {service_, options, budget};
  }
  static std::size_t drawn(SampleFeed& feed) { return feed({}).value().samples.size(); }

  ManualClock clock_;
  std::shared_ptr<Faucet> service_ = std::make_shared<Faucet>();
};

TEST_F(SampleFeedTest, AdjacentItemsOfTheSameShapeFormOneGroup) {
  for (const auto& [number, rows] : {std::pair{7, 1u}, {8, 2u}, {9, 2u}, {10, 3u}, {11, 1u}}) {
    service_->add(number, rows);
  }
  SampleFeed items = feed(10, /*is_local=*/true);
  const FedSamples fed = items({}).value();
  ASSERT_EQ(fed.groups.size(), 4u);
  std::vector<std::pair<std::size_t, std::size_t>> places;
  std::vector<std::int64_t> rows;
  for (const SampleGroup& group : fed.groups) {
    places.emplace_back(group.begin, group.count);
    EXPECT_EQ(group.squeezed, std::vector<bool>{false});
    const std::span<const std::byte> bytes = group.batch.columns[0].bytes.bytes();
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::int64_t)) {
      std::memcpy(&rows.emplace_back(), bytes.data() + i, sizeof(std::int64_t));
    }
  }
  EXPECT_EQ(places,
            (std::vector<std::pair<std::size_t, std::size_t>>{{0, 1}, {1, 2}, {3, 1}, {4, 1}}));
  EXPECT_EQ(rows, (std::vector<std::int64_t>{7, 8, 8, 9, 9, 10, 10, 10, 11}));
  EXPECT_EQ(fed.groups[1].batch.columns[0].spec.shape, (Shape{2, 2}));
  EXPECT_EQ(fed.samples.keys()[4], 4u);
}

TEST_F(SampleFeedTest, RequestsDoubleWhileItemsComeAtOnce) {
  service_->add_ones(100);
  SampleFeed items = feed(10);
  for (const std::size_t count : {1, 2, 4, 8, 10, 10}) EXPECT_EQ(drawn(items), count);
  EXPECT_EQ(service_->asked[0], (Faucet::Asked{1, 1, false}));
  EXPECT_EQ(service_->asked[3], (Faucet::Asked{8, 8, true})) << "not for ever";
}

TEST_F(SampleFeedTest, RequestsStayWithinTheirBytes) {
  for (int i = 0; i < 20; ++i) service_->add(i, /*rows=*/10);
  service_->add_ones(100);
  const SampleFeedOptions options{
      .table = "replay", .request_max = 64, .clock = &clock_, .bytes_max = 400};
  SampleFeed items(service_, options, nullptr);
  for (const std::size_t count : {1, 2, 4, 5, 5}) EXPECT_EQ(drawn(items), count) << "of 80 bytes";
  EXPECT_EQ(drawn(items), 5u) << "two of them larger";
  EXPECT_GT(drawn(items), 5u);
}

TEST_F(SampleFeedTest, RequestsGrowAfterTheMaximumIsRaised) {
  service_->add_ones(100);
  SampleFeed items = feed(1);
  EXPECT_EQ(drawn(items), 1u);
  EXPECT_EQ(drawn(items), 1u);
  items.set_request_max(32);
  for (const std::size_t count : {4, 8, 16, 32}) EXPECT_EQ(drawn(items), count);
}

TEST_F(SampleFeedTest, APartialResponseIsHandedOutAndTheNextRequestIsSmaller) {
  service_->add_ones(1 + 2 + 4 + 3);
  SampleFeed items = feed(16);
  for (const std::size_t count : {1, 2, 4, 3}) EXPECT_EQ(drawn(items), count);
  service_->add_ones(1);
  EXPECT_EQ(drawn(items), 1u);
  EXPECT_EQ(service_->asked.back(), (Faucet::Asked{1, 1, false}));
}

TEST_F(SampleFeedTest, AfterWaitingInVainForSeveralItAsksForOne) {
  service_->add_ones(3);
  SampleFeed items = feed(16);
  EXPECT_EQ(drawn(items), 1u);
  EXPECT_EQ(drawn(items), 2u);
  EXPECT_EQ(items({}).status().code(), StatusCode::kCancelled);
  ASSERT_EQ(service_->asked.size(), 4u);
  EXPECT_EQ(service_->asked[2], (Faucet::Asked{4, 4, true}));
  EXPECT_EQ(service_->asked[3], (Faucet::Asked{1, 1, false}));
}

TEST_F(SampleFeedTest, ATimeoutEndsTheFeed) {
  SampleFeed items = feed(16, /*is_local=*/false, nullptr, Duration::zero());
  EXPECT_EQ(items({}).status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(service_->asked.size(), 1u);
}

TEST_F(SampleFeedTest, ALocalServiceIsAskedForAFullRequestAtOnce) {
  service_->add_ones(5);
  SampleFeed items = feed(16, /*is_local=*/true);
  EXPECT_EQ(drawn(items), 5u);
  EXPECT_EQ(service_->asked[0], (Faucet::Asked{16, 1, false}));
}

TEST_F(SampleFeedTest, FeedsThatShareABudgetDrawNoMoreThanIt) {
  service_->add_ones(100);
  const auto budget = std::make_shared<SampleFeed::Budget>(11);
  SampleFeed one = feed(4, /*is_local=*/false, budget);
  SampleFeed other = feed(4, /*is_local=*/true, budget);
  std::size_t count = 0;
  for (int i = 0; i < 2; ++i) count += drawn(one) + drawn(other);
  EXPECT_EQ(count, 11u);
  for (SampleFeed* items : {&one, &other}) {
    EXPECT_EQ((*items)({}).status().code(), StatusCode::kOutOfRange);
  }
}

TEST_F(SampleFeedTest, UndrawnSamplesReturnToTheBudget) {
  service_->add_ones(2);
  const auto budget = std::make_shared<SampleFeed::Budget>(10);
  SampleFeed items = feed(8, /*is_local=*/true, budget);
  EXPECT_EQ(drawn(items), 2u);
  EXPECT_EQ(budget->load(), 8);
  service_->add_ones(100);
  EXPECT_EQ(drawn(items), 8u);
  EXPECT_EQ(items({}).status().code(), StatusCode::kOutOfRange);
}

// Whose first request is interrupted.
class InterruptedFaucet final : public testing::ForwardingService {
 public:
  using testing::ForwardingService::ForwardingService;

  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    deadlines.push_back(request.deadline);
    if (deadlines.size() > 1) return inner_->sample(std::move(request), std::move(done));
    done({cancelled("interrupted"), {}});
    return 0;
  }

  std::vector<TimePoint> deadlines;
};

TEST_F(SampleFeedTest, AnInterruptedWaitMayBeContinuedByTheNextCall) {
  service_->add_ones(9);
  const auto interrupted = std::make_shared<InterruptedFaucet>(service_);
  const SampleFeedOptions options{.table = "replay",
                                  .timeout = std::chrono::seconds(10),
                                  .is_local = true,
                                  .continues_waits = true,
                                  .clock = &clock_};
  SampleFeed items(interrupted, options, nullptr);
  const TimePoint begin = clock_.now();
  EXPECT_EQ(items({}).status().code(), StatusCode::kCancelled);
  for (int call = 0; call < 2; ++call) {
    clock_.advance(std::chrono::seconds(7));
    EXPECT_EQ(drawn(items), 1u);
  }
  const Duration timeout = std::chrono::seconds(10);
  EXPECT_EQ(interrupted->deadlines,
            (std::vector<TimePoint>{begin + timeout, begin + timeout,
                                    begin + std::chrono::seconds(14) + timeout}));
}

}  // namespace
}  // namespace reverie
