#include "reverie/client/batch_stream.h"

#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/faucet.h"

namespace reverie {
namespace {

std::vector<std::int64_t> numbers(const DrawnBatch& drawn) {
  const std::span<const std::byte> bytes = drawn.batch.columns.at(0).bytes.bytes();
  std::vector<std::int64_t> found(bytes.size() / sizeof(std::int64_t));
  std::memcpy(found.data(), bytes.data(), bytes.size());
  return found;
}

class BatchStreamTest : public ::testing::Test {
 protected:
  static BatchStreamOptions options(std::size_t batch_size) {
    BatchStreamOptions made;
    made.table = "replay";
    made.batch_size = batch_size;
    made.timeout = Duration::zero();
    return made;
  }

  std::shared_ptr<Faucet> service_ = std::make_shared<Faucet>();
};

TEST_F(BatchStreamTest, BatchesComeInOrderAndTheLastIsCutShort) {
  service_->add_ones(7);
  BatchStream stream(service_, options(3));
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{3, 4, 5}));
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{6}));
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(stream.next({}).status().code(), StatusCode::kDeadlineExceeded);
  }
}

TEST_F(BatchStreamTest, ALastBatchMayBeDropped) {
  service_->add_ones(4);
  BatchStreamOptions dropping = options(3);
  dropping.drop_last = true;
  BatchStream stream(service_, dropping);
  EXPECT_EQ(stream.next({}).value().samples.size(), 3u);
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kDeadlineExceeded);
}

TEST_F(BatchStreamTest, NothingIsDrawnAheadFromATableWhoseItemsLeaveWithTheirSamples) {
  service_->spent_after["replay"] = 1;
  service_->add_ones(9);
  {
    BatchStream stream(service_, options(3));
    EXPECT_EQ(stream.next({}).value().samples.size(), 3u);
    stream.close();
    EXPECT_EQ(service_->asked.size(), 1u);
    EXPECT_TRUE(service_->returned.empty());
  }
  EXPECT_EQ(service_->asked.size(), 1u);
}

TEST_F(BatchStreamTest, WhatWasNotTakenGoesBack) {
  service_->spent_after["replay"] = 1;
  service_->add_ones(9);
  BatchStreamOptions ahead = options(3);
  ahead.depth = 2;
  BatchStream stream(service_, ahead);
  EXPECT_EQ(numbers(stream.next({}).value()), (std::vector<std::int64_t>{0, 1, 2}));
  stream.close();
  // One batch of three for each request that was made after the first.
  EXPECT_EQ(service_->returned.size(), 3 * (service_->asked.size() - 1));
  for (std::size_t i = 0; i < service_->returned.size(); ++i) {
    EXPECT_EQ(service_->returned[i], i + 3) << "in their order";
  }
}

TEST_F(BatchStreamTest, AFarServiceIsAskedForTheNextBatchWhileOneIsMade) {
  service_->add_ones(100);
  BatchStreamOptions far = options(5);
  far.is_far = true;
  far.depth = 2;
  BatchStream stream(service_, far);
  EXPECT_EQ(stream.next({}).value().samples.size(), 5u);
  stream.close();
  EXPECT_GE(service_->asked.size(), 2u);
}

TEST_F(BatchStreamTest, WeightsAreThoseOfTheBatch) {
  service_->add_ones(4);
  BatchStreamOptions weighed = options(4);
  weighed.weighing.beta = 0.5;
  BatchStream stream(service_, weighed);
  EXPECT_EQ(stream.next({}).value().weights, (std::vector<float>{1, 1, 1, 1}));
}

TEST_F(BatchStreamTest, WeightsOverATableThatDoesNotTellAreRefused) {
  service_->add_ones(4);
  BatchStreamOptions weighed = options(4);
  weighed.weighing = {0.5, /*over_table=*/true};
  BatchStream stream(service_, weighed);
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kUnimplemented);
}

TEST_F(BatchStreamTest, AClosedStreamGivesNothing) {
  service_->add_ones(9);
  BatchStream stream(service_, options(3));
  EXPECT_FALSE(stream.is_closed());
  stream.close();
  stream.close();
  EXPECT_TRUE(stream.is_closed());
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(stream.next_now().has_value());
}

}  // namespace
}  // namespace reverie
