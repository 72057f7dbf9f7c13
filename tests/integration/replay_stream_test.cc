// Batches of a replay buffer that are prepared ahead, over a real store.
#include "reverie/transitions/replay_stream.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/replay/local_service.h"
#include "reverie/service/blocking.h"
#include "reverie/transitions/replay_shards.h"
#include "tests/support/eventually.h"

namespace reverie {
namespace {

class ReplayStreamTest : public ::testing::Test {
 protected:
  ReplayStreamTest() {
    const TransitionOptions options{.capacity = 100};
    TableOptions table = ReplayBuffer::table_options(options, "t");
    table.sampler = {"Prioritized", {{"priority_exponent", 1.0}, {"seed", std::int64_t{1}}}};
    service_ = LocalService::open({table}, {}).value();
    buffer_ = ReplayBuffer::open(service_, "t", options, {{"", DType::kFloat32, {}}},
                                 {{"", DType::kInt64, {}}}, 1)
                  .value();
  }
  ~ReplayStreamTest() override { service_->close(); }

  // Transition i leads from observation i to observation i + 1, with action i.
  void add(int count) {
    for (int i = 0; i < count; ++i) {
      const std::array<float, 1> obs{static_cast<float>(i)};
      const std::array<float, 1> next_obs{static_cast<float>(i + 1)};
      const std::array<std::int64_t, 1> action{i};
      const std::array<float, 1> reward{1};
      const std::array<std::uint8_t, 1> over{0};
      const TensorView obs_view{DType::kFloat32, {}, std::as_bytes(std::span(obs))};
      const TensorView next_view{DType::kFloat32, {}, std::as_bytes(std::span(next_obs))};
      const TensorView action_view{DType::kInt64, {}, std::as_bytes(std::span(action))};
      const Status status = buffer_->add(
          {{&obs_view, 1}, {&action_view, 1}, {&next_view, 1}, reward, over, over, {}, false});
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }

  template <typename T>
  static std::vector<T> values(const Buffer& array) {
    std::vector<T> read(array.size_bytes() / sizeof(T));
    std::memcpy(read.data(), array.data(), array.size_bytes());
    return read;
  }

  std::shared_ptr<LocalService> service_;
  std::shared_ptr<ReplayBuffer> buffer_;
};

TEST_F(ReplayStreamTest, BatchesAreWholeTransitions) {
  add(20);
  ReplayStream stream(buffer_, {.batch_size = 8});
  ASSERT_EQ(stream.layout().specs()[1].name, "action");
  for (int batch = 0; batch < 10; ++batch) {
    const std::vector<Buffer> arrays = stream.next({}).value();
    ASSERT_EQ(arrays.size(), stream.layout().specs().size());
    const auto obs = values<float>(arrays[0]);
    const auto action = values<std::int64_t>(arrays[1]);
    const auto next_obs = values<float>(arrays[3]);
    ASSERT_EQ(obs.size(), 8u);
    for (std::size_t i = 0; i < obs.size(); ++i) {
      EXPECT_EQ(static_cast<float>(action[i]), obs[i]);
      EXPECT_EQ(next_obs[i], obs[i] + 1);
    }
  }
}

TEST_F(ReplayStreamTest, ADistinctBatchHasEachItemOnce) {
  add(20);
  ReplayStream stream(buffer_, {.batch_size = 19, .distinct = true});
  auto action = values<std::int64_t>(stream.next({}).value()[1]);
  std::sort(action.begin(), action.end());
  EXPECT_EQ(std::unique(action.begin(), action.end()), action.end());
}

// Item 0 is drawn four times as often as any other item, so its weight is 4^-beta of theirs.
TEST_F(ReplayStreamTest, WeightsUseTheLastBeta) {
  add(20);
  ReplayStream reading(buffer_, {.batch_size = 19, .distinct = true});
  const std::vector<Buffer> all = reading.next({}).value();
  reading.close();
  const std::size_t last = all.size() - 1;
  const std::vector<std::uint64_t> tickets = values<std::uint64_t>(all[last]);
  std::vector<double> priorities(tickets.size(), 1.0);
  priorities[0] = 4.0;
  ASSERT_EQ(buffer_->update(tickets, priorities, {}).value(), tickets.size());

  ReplayStream stream(buffer_, {.batch_size = 64, .beta = 0.0, .depth = 1});
  for (const float weight : values<float>(stream.next({}).value()[last - 1])) {
    EXPECT_EQ(weight, 1.0f);
  }
  stream.set_beta(1.0);
  // Two batches may have been drawn before the change: one that waits, and the next.
  for (int drawn = 0; drawn < 2; ++drawn) ASSERT_TRUE(stream.next({}).ok());
  const std::vector<Buffer> arrays = stream.next({}).value();
  const auto drawn = values<std::uint64_t>(arrays[last]);
  const auto weights = values<float>(arrays[last - 1]);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_NEAR(weights[i], drawn[i] == tickets[0] ? 0.25f : 1.0f, 1e-5f);
  }
}

TEST_F(ReplayStreamTest, AnEmptyBufferEndsTheStreamWithATimeout) {
  ReplayStream stream(buffer_, {.batch_size = 8, .timeout = Duration::zero()});
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(stream.next({}).status().code(), StatusCode::kDeadlineExceeded);
  }
}

TEST_F(ReplayStreamTest, ATimeoutThatNoUserWaitedForDoesNotEndTheStream) {
  ReplayStream stream(buffer_, {.batch_size = 8, .timeout = std::chrono::milliseconds(1)});
  ASSERT_TRUE(test::eventually([&] {
    const TableInfo info = info_and_wait(*service_).value().front();
    return info.sample_wait_s > 0 && info.pending_samples == 0;
  })) << "the draw ahead has timed out";
  add(20);
  for (int batch = 0; batch < 5; ++batch) EXPECT_TRUE(stream.next({}).ok());
}

TEST_F(ReplayStreamTest, TooFewDistinctItemsWhileNoUserWaitsAreDrawnAgainOnceOneDoes) {
  add(3);
  ReplayStream stream(buffer_, {.batch_size = 8, .distinct = true});
  ASSERT_TRUE(
      test::eventually([&] { return info_and_wait(*service_).value().front().samples > 0; }));
  add(20);
  for (int batch = 0; batch < 5; ++batch) EXPECT_TRUE(stream.next({}).ok());
}

TEST_F(ReplayStreamTest, MoreDistinctItemsThanStoredAreRefused) {
  add(3);
  ReplayStream stream(buffer_, {.batch_size = 8, .distinct = true});
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(ReplayStreamTest, ABufferOfSeveralTablesIsDrawnFromAsAWhole) {
  const TransitionOptions options{.capacity = 100};
  TableOptions table = ReplayBuffer::table_options(options, "t");
  table.sampler = {"Prioritized", {{"priority_exponent", 1.0}, {"seed", std::int64_t{1}}}};
  const auto tables = ReplayShards::split(table, 4).value();
  service_->close();
  service_ = LocalService::open(tables, {}).value();
  buffer_ = ReplayBuffer::open(service_, tables, options, {{"", DType::kFloat32, {}}},
                               {{"", DType::kInt64, {}}}, 1)
                .value();
  add(100);
  ReplayStream stream(buffer_, {.batch_size = 32});
  std::set<std::int64_t> drawn;
  for (int batch = 0; batch < 200; ++batch) {
    const std::vector<Buffer> arrays = stream.next({}).value();
    for (const std::int64_t action : values<std::int64_t>(arrays[1])) drawn.insert(action);
  }
  std::int64_t stored = 0;  // a table that was full has replaced some
  const std::vector<TableInfo> infos = info_and_wait(*service_).value();
  for (const TableInfo& info : infos) stored += info.current_size;
  EXPECT_GT(stored, 75);
  EXPECT_EQ(std::ssize(drawn), stored);
}

TEST_F(ReplayStreamTest, AClosedStreamGivesNothing) {
  add(20);
  ReplayStream stream(buffer_, {.batch_size = 8});
  stream.close();
  stream.close();
  EXPECT_EQ(stream.next({}).status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(stream.next_now().has_value());
}

}  // namespace
}  // namespace reverie
