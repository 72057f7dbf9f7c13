// Rows that are inserted as one chunk, and what a reader gets for rows of external columns.
#include "reverie/client/insert_rows.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "reverie/gather/batch.h"
#include "reverie/gather/corrupt_items.h"
#include "reverie/replay/local_service.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

constexpr std::int64_t kInsertedRows = 20;
const std::vector<std::int64_t> kInsertedFrames = {kInsertedRows, 3};
const std::vector<std::int64_t> kInsertedRewards = {kInsertedRows};

class InsertRows : public ::testing::Test {
 protected:
  void SetUp() override {
    TableOptions queue = testing::table_options("t", "Fifo", "Fifo", 10, RateLimiter::queue(10));
    queue.max_times_sampled = 1;
    service_ = LocalService::open({queue}, {}).value();
    std::iota(rewards_.begin(), rewards_.end(), 0.0f);
  }
  RowsColumn reward() const {
    return {"reward", {DType::kFloat32, kInsertedRewards, std::as_bytes(std::span(rewards_))}};
  }
  RowsColumn frame(std::optional<ExternalRange> range = ExternalRange{"video", 7, 99, 0}) const {
    RowsColumn column{"frame", {DType::kUInt8, kInsertedFrames, {}}};
    column.external = std::move(range);
    return column;
  }
  Status insert(std::vector<RowsColumn> columns, std::vector<RowsItem> items) {
    return insert_rows(*service_, "t", columns, "*", items, TimePoint::max(), random_, {}, keys_);
  }

  // All items of the table, in order.
  SampleBatch all() {
    SampleRequest request;
    request.table = "t";
    request.count = keys_.size();
    return sample_and_wait(*service_, std::move(request)).batch;
  }

  std::shared_ptr<LocalService> service_;
  Random random_{7};
  std::vector<float> rewards_ = std::vector<float>(kInsertedRows);
  std::vector<ItemKey> keys_;
};

TEST_F(InsertRows, ItemsShareOneChunkAndReadOnlyTheirOwnRows) {
  ASSERT_TRUE(insert({frame(), reward()}, {{0, 5, 1.0}, {4, 9, {}}}).ok());
  ASSERT_EQ(keys_.size(), 2u);
  const SampleBatch samples = all();
  EXPECT_EQ(samples.trajectories()[0].pieces()[0].chunk,
            samples.trajectories()[1].pieces()[0].chunk);
  std::vector<ExternalRead> asked;
  ExternalFunction files([&](const ExternalRead& read) {
    asked.push_back(read);
    std::ranges::fill(read.out, static_cast<std::byte>(read.first_row));
    return Status();
  });
  const Batch batch = assemble(samples, {.files = &files}).value();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[1].range, (ExternalRange{"video", 7, 99, 0}));
  EXPECT_EQ(asked[1].first_row, 4u);
  EXPECT_EQ(asked[1].row_count, 5u);
  EXPECT_EQ(asked[1].row_bytes(), 3u);
  const BatchColumn& frames = batch.columns[0];
  EXPECT_EQ(frames.spec.shape, (Shape{2, 5, 3}));
  EXPECT_EQ(frames.bytes.bytes()[15], std::byte{4});
  const auto* const rewards = reinterpret_cast<const float*>(batch.columns[1].bytes.data());
  EXPECT_EQ(std::vector<float>(rewards, rewards + 10),
            (std::vector<float>{0, 1, 2, 3, 4, 4, 5, 6, 7, 8}));
}

TEST_F(InsertRows, RowsWithoutFilesAreStoredAsARawChunk) {
  ASSERT_TRUE(insert({reward()}, {{3, 6, 1.0}}).ok());
  const SampleBatch samples = all();
  EXPECT_TRUE(samples.trajectories()[0].pieces()[0].chunk->is_raw_for_good());
  const Batch batch = assemble(samples, {}).value();
  EXPECT_EQ(*reinterpret_cast<const float*>(batch.columns[0].bytes.data()), 3.0f);
}

TEST_F(InsertRows, AReaderWithoutFilesIsRefusedAndReportsNoDamage) {
  ASSERT_TRUE(insert({frame()}, {{0, 5, 1.0}}).ok());
  const SampleBatch samples = all();
  EXPECT_EQ(assemble(samples, {}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_FALSE(find_damage(samples.trajectories()[0], nullptr).has_value());
}

TEST_F(InsertRows, OnlyDataLossCountsAsDamage) {
  ASSERT_TRUE(insert({frame()}, {{0, 5, 1.0}}).ok());
  const SampleBatch samples = all();
  for (const Status& told : {data_loss("gone"), unavailable("later")}) {
    ExternalFunction files([&](const ExternalRead&) { return told; });
    EXPECT_EQ(assemble(samples, {.files = &files}).status().code(), told.code());
    EXPECT_EQ(find_damage(samples.trajectories()[0], &files).has_value(),
              told.code() == StatusCode::kDataLoss);
  }
}

TEST_F(InsertRows, InvalidRowsAreRefusedByName) {
  const std::vector<std::int64_t> fewer = {kInsertedRows - 1, 3};
  RowsColumn other = frame();
  other.value.shape = fewer;
  RowsColumn scalar = reward();
  scalar.value.shape = {};
  RowsColumn text = reward();
  text.value.dtype = DType::kString;
  const std::vector<std::int64_t> large = {kInsertedRows, 1 << 20, 1 << 6};
  RowsColumn huge = frame();
  huge.value.shape = large;
  const struct {
    std::vector<RowsColumn> columns;
    std::vector<RowsItem> items;
    const char* names;
  } cases[] = {
      {{}, {{0, 1, {}}}, "no columns"},
      {{reward()}, {}, "no items"},
      {{reward()}, {{5, 5, {}}}, "[5, 5)"},
      {{reward()}, {{0, kInsertedRows + 1, {}}}, "[0, 21)"},
      {{reward(), other}, {{0, 1, {}}}, "19"},
      {{scalar}, {{0, 1, {}}}, "no axis"},
      {{text}, {{0, 1, {}}}, "fixed size"},
      {{frame(ExternalRange{"", 0, 0, 0})}, {{0, 1, {}}}, "empty"},
      {{huge}, {{0, 1, {}}}, "134217728"},
  };
  for (const auto& [columns, items, names] : cases) {
    const Status status = insert(columns, items);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << names;
    EXPECT_NE(status.message().find(names), std::string::npos) << status.message();
    EXPECT_TRUE(keys_.empty());
  }
}

}  // namespace
}  // namespace reverie
