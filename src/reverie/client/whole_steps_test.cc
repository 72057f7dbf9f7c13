#include "reverie/client/whole_steps.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_replay_service.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

class WholeStepsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    service_->add_table("replay");
    TrajectoryWriterOptions options{.chunks = {.num_keep_alive_refs = 4, .chunk_length = 2}};
    options.seed = 1;
    options.clock = &clock_;
    writer_ = TrajectoryWriter::open(service_, options).value();
    columns_ = {writer_->column("b"), writer_->column("a")};
    for (int step = 0; step < 3; ++step) append(step);
    steps_.keep(*writer_, columns_, R"({"b":0,"a":1})");
  }
  void TearDown() override { writer_->close(); }

  void append(int step) {
    const Value b = f32(static_cast<float>(step));
    const Value a = i64(10 * step);
    const std::vector<ColumnValue> step_values = {{columns_[0], b.view()}, {columns_[1], a.view()}};
    ASSERT_TRUE(writer_->append(step_values, false).ok());
  }

  ManualClock clock_;
  std::shared_ptr<FakeReplayService> service_ = std::make_shared<FakeReplayService>();
  std::unique_ptr<TrajectoryWriter> writer_;
  std::vector<ColumnId> columns_;
  WholeSteps steps_;
};

TEST_F(WholeStepsTest, AnItemHasAllColumnsOfTheLastSteps) {
  const auto columns = steps_.last(2, 3, writer_->next_step()).value();
  ASSERT_EQ(columns.size(), 2u);
  EXPECT_EQ(columns[0].name, "b");
  EXPECT_EQ(columns[1].name, "a");
  const NewItem item{"replay", 1.0, columns, steps_.structure(), 0};
  ASSERT_TRUE(writer_->create_item(item, TimePoint::max(), {}).ok());
  ASSERT_EQ(service_->size("replay"), 1u);
  const TrajectoryView stored = service_->item("replay", 0).trajectory.view();
  for (const LayoutColumn& column : stored.layout->columns()) EXPECT_EQ(stored.length(column), 2);
  EXPECT_EQ(stored.layout->structure(), R"({"b":0,"a":1})");
}

TEST_F(WholeStepsTest, MoreStepsThanWereAppendedAreRefused) {
  const auto columns = steps_.last(4, 3, writer_->next_step());
  EXPECT_EQ(columns.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(columns.status().message(), "num_timesteps is 4, but 3 steps were appended");
}

TEST_F(WholeStepsTest, AStepWithOtherColumnsIsRefusedNamingTheNewOne) {
  EXPECT_FALSE(steps_.empty());
  const Status other = steps_.refusal(std::vector<std::string>{"a", "b", "c"});
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(other.message().find("column 'c', which earlier steps lack"), std::string::npos);
  const Status fewer = steps_.refusal(std::vector<std::string>{"a"});
  EXPECT_NE(fewer.message().find("1 columns in another structure"), std::string::npos);
}

}  // namespace
}  // namespace reverie
