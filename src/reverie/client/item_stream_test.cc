#include "reverie/client/item_stream.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/mutex.h"
#include "tests/support/eventually.h"
#include "tests/support/faucet.h"
#include "tests/support/forwarding_service.h"

namespace reverie {
namespace {

// A service that checkpoints may pause, and that several threads may sample.
class PausedService final : public testing::ForwardingService {
 public:
  using testing::ForwardingService::ForwardingService;

  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    MutexLock lock(mutex_);
    return ForwardingService::sample(std::move(request), std::move(done));
  }
  AheadReaders* ahead_readers() override { return &readers; }
  std::optional<std::size_t> hand_back(std::string_view, SampleBatch& batch) override {
    handed_back += batch.size();
    return batch.size();
  }

  AheadReaders readers;
  std::size_t handed_back = 0;

 private:
  Mutex mutex_;
};

class ItemStreamTest : public ::testing::Test {
 protected:
  // Three items per request, and a timeout of 0.
  static ItemStreamOptions options() {
    ItemStreamOptions made;
    made.feed.table = "replay";
    made.feed.request_max = 3;
    made.feed.is_local = true;
    made.feed.timeout = Duration::zero();
    return made;
  }
  // The keys received until the stream ends, and the status with which it ends.
  static std::vector<std::uint64_t> keys_until_end(ItemStream& stream, Status& end) {
    std::vector<std::uint64_t> keys;
    while (true) {
      const Result<FedSamples> fed = stream.next({});
      if (!fed.ok()) {
        end = fed.status();
        return keys;
      }
      const auto some = fed->samples.keys();
      keys.insert(keys.end(), some.begin(), some.end());
    }
  }

  std::shared_ptr<Faucet> service_ = std::make_shared<Faucet>();
};

TEST_F(ItemStreamTest, ItemsComeInOrderUntilATimeout) {
  service_->add_ones(7);
  ItemStream stream(service_, options());
  Status end;
  EXPECT_EQ(keys_until_end(stream, end), (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(end.code(), StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(stream.next_now().has_value());
}

TEST_F(ItemStreamTest, ReachingTheSampleBoundEndsWithOutOfRange) {
  service_->add_ones(100);
  ItemStreamOptions bounded = options();
  bounded.samples_max = 8;
  ItemStream stream(service_, bounded);
  Status end;
  EXPECT_EQ(keys_until_end(stream, end).size(), 8u);
  EXPECT_EQ(end.code(), StatusCode::kOutOfRange);
}

TEST_F(ItemStreamTest, UnusedItemsAreReturnedBeforeThoseNotTaken) {
  service_->spent_after["replay"] = 1;
  service_->add_ones(6);
  ItemStreamOptions spent = options();
  spent.max_times_sampled = 1;
  ItemStream stream(service_, spent);
  FedSamples fed = stream.next({}).value();
  ASSERT_EQ(fed.samples.size(), 3u);
  SampleBatch unused;
  unused.take(fed.samples, 1, 2, 0);  // the reader has used the first item
  stream.close(std::move(unused));
  // The second request may or may not have been made before the stream was closed.
  const std::vector<std::uint64_t> all{1, 2, 3, 4, 5};
  ASSERT_TRUE(service_->returned.size() == 2 || service_->returned.size() == 5);
  for (std::size_t i = 0; i < service_->returned.size(); ++i) {
    EXPECT_EQ(service_->returned[i], all[i]);
  }
}

TEST_F(ItemStreamTest, NothingIsReturnedToATableThatKeepsSampledItems) {
  service_->add_ones(6);
  ItemStream stream(service_, options());
  FedSamples fed = stream.next({}).value();
  stream.close(std::move(fed.samples));
  EXPECT_TRUE(service_->returned.empty());
}

TEST_F(ItemStreamTest, APauseHandsBackWhatWasDrawnAheadAndDrawsAsMuchLater) {
  service_->add_ones(100);
  const auto paused = std::make_shared<PausedService>(service_);
  ItemStreamOptions bounded = options();
  bounded.samples_max = 9;
  ItemStream stream(paused, bounded);
  EXPECT_EQ(stream.next({}).value().samples.size(), 3u);
  paused->readers.pause_for([] {});
  Status end;
  const std::vector<std::uint64_t> rest = keys_until_end(stream, end);
  EXPECT_EQ(rest.size(), 6u);
  EXPECT_EQ(rest.front(), 3 + paused->handed_back);
  EXPECT_EQ(end.code(), StatusCode::kOutOfRange);
}

TEST_F(ItemStreamTest, APauseHandsBackTheLastItemsOfSeveralThreadsToo) {
  service_->add_ones(100);
  const auto paused = std::make_shared<PausedService>(service_);
  ItemStreamOptions bounded = options();
  bounded.thread_count = 2;
  bounded.samples_max = 6;
  ItemStream stream(paused, bounded);
  EXPECT_EQ(stream.next({}).value().samples.size(), 3u);
  // One thread has drawn the last items; the other has been told that there are no more.
  ASSERT_TRUE(test::eventually([&] {
    paused->readers.pause_for([] {});
    return paused->handed_back >= 3;
  }));
  Status end;
  EXPECT_EQ(keys_until_end(stream, end).size(), 3u);
  EXPECT_EQ(end.code(), StatusCode::kOutOfRange);
}

TEST_F(ItemStreamTest, AClosedStreamGivesNothing) {
  service_->add_ones(9);
  ItemStream stream(service_, options());
  stream.close();
  stream.close();
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(stream.next_now().has_value());
}

}  // namespace
}  // namespace reverie
