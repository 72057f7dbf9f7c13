#include "reverie/client/writer.h"

#include <gtest/gtest.h>

#include "reverie/client/batch.h"
#include "tests/support/fake_replay_service.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

class WriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    service_->add_table("replay");
    writer_ = Writer::open(service_, {.max_sequence_length = 3, .chunk_length = 2}).value();
    x_ = writer_->column("x");
    y_ = writer_->column("y");
  }
  void TearDown() override {
    if (writer_->closed()) return;
    EXPECT_TRUE(writer_->close(TimePoint::max(), {}).ok());
  }
  Status append(float x) {
    const Value a = f32(x);
    const Value b = f32s({x, x});
    return writer_->append(std::vector<ColumnValue>{{x_, a.view()}, {y_, b.view()}});
  }
  Status create(std::uint32_t steps, double priority = 1.0, const std::string& table = "replay") {
    return writer_->create_item(table, steps, priority, "nest", TimePoint::max(), {});
  }

  std::shared_ptr<FakeReplayService> service_ = std::make_shared<FakeReplayService>();
  std::unique_ptr<Writer> writer_;
  ColumnId x_ = 0;
  ColumnId y_ = 0;
};

TEST_F(WriterTest, AnItemIsTheLastSteps) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(append(static_cast<float>(i)).ok());
  ASSERT_TRUE(create(3).ok());
  ASSERT_TRUE(append(5).ok());
  ASSERT_TRUE(create(3).ok());
  const Batch batch = assemble(service_->all("replay"), {}).value();
  ASSERT_EQ(batch.columns.size(), 2u);
  EXPECT_EQ(batch.columns[0].spec, (TensorSpec{"x", DType::kFloat32, {2, 3}}));
  EXPECT_EQ(batch.columns[1].spec, (TensorSpec{"y", DType::kFloat32, {2, 3, 2}}));
  EXPECT_EQ(bytes_of(batch.columns[0].bytes.bytes()), f32s({2, 3, 4, 3, 4, 5}).bytes);
  EXPECT_EQ(batch.structure, "nest");
}

TEST_F(WriterTest, RefusesItemsLongerThanWhatThereIs) {
  expect_refused(create(1), StatusCode::kInvalidArgument, {"num_timesteps is 1", "0 steps"});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(append(1).ok());
  expect_refused(create(3), StatusCode::kInvalidArgument, {"num_timesteps is 3", "2 steps"});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(append(1).ok());
  expect_refused(create(4), StatusCode::kInvalidArgument, {"max_sequence_length is 3"});
  expect_refused(create(0), StatusCode::kInvalidArgument, {"num_timesteps is 0", "from 1 to 3"});
  expect_refused(create(1, std::numeric_limits<double>::quiet_NaN()), StatusCode::kInvalidArgument,
                 {"NaN"});
  expect_refused(create(1, 1.0, "nowhere"), StatusCode::kNotFound, {"'nowhere'", "'replay'"});
  EXPECT_TRUE(create(3).ok());
}

TEST_F(WriterTest, AStepThatIsRefusedLeavesTheWriterUsable) {
  ASSERT_TRUE(append(1).ok());
  const Value value = f32(1);
  const Value wide = f32s({1, 2, 3});
  const ColumnId z = writer_->column("z");
  expect_refused(writer_->append(std::vector<ColumnValue>{{x_, value.view()}}),
                 StatusCode::kInvalidArgument, {"1 columns", "the first had 2"});
  expect_refused(writer_->append(std::vector<ColumnValue>{{x_, value.view()}, {z, value.view()}}),
                 StatusCode::kInvalidArgument, {"column 2", "first step"});
  expect_refused(writer_->append(std::vector<ColumnValue>{{x_, value.view()}, {y_, wide.view()}}),
                 StatusCode::kInvalidArgument, {"'y'", "(3,)", "(2,)"});
  ASSERT_TRUE(append(2).ok());
  ASSERT_TRUE(create(2).ok());
  const Batch batch = assemble(service_->all("replay"), {}).value();
  EXPECT_EQ(bytes_of(batch.columns[0].bytes.bytes()), f32s({1, 2}).bytes);
}

TEST_F(WriterTest, AFirstStepWithoutColumnsIsRefused) {
  expect_refused(writer_->append({}), StatusCode::kInvalidArgument, {"at least one column"});
}

TEST_F(WriterTest, RefusesBoundsThatMeanNothing) {
  const auto code = [&](const WriterOptions& options) {
    return Writer::open(service_, options).status().code();
  };
  EXPECT_EQ(code({.max_sequence_length = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.max_sequence_length = 2, .chunk_length = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.max_sequence_length = 2, .chunk_length = 3}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.max_in_flight_items = 0}), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Writer::open(service_, {.max_sequence_length = 2}).ok());
}

TEST_F(WriterTest, CloseFlushesAndEndsAllCalls) {
  service_->add_table("full", 1);
  ASSERT_TRUE(append(1).ok());
  ASSERT_TRUE(create(1, 1.0, "full").ok());
  ASSERT_TRUE(create(1, 1.0, "full").ok());
  EXPECT_EQ(writer_->pending_items(), 1u);
  expect_refused(writer_->flush(TimePoint{0}, {}), StatusCode::kDeadlineExceeded, {"1 items"});
  expect_refused(writer_->close(TimePoint{0}, {}), StatusCode::kDeadlineExceeded, {"1 items"});
  EXPECT_TRUE(writer_->closed());
  EXPECT_EQ(service_->waiting("full"), 0u);
  for (const Status& status : {append(2), create(1), writer_->flush(TimePoint::max(), {}),
                               writer_->close(TimePoint::max(), {})}) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace reverie
