#include "reverie/client/insert_step.h"

#include <gtest/gtest.h>

#include "reverie/client/batch.h"
#include "tests/support/fake_replay_service.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

class InsertStep : public testing::Test {
 protected:
  Status insert(std::initializer_list<InsertTarget> targets) {
    const std::vector<NamedValue> step = {{"x", x_.view()}, {"word", word_.view()}};
    return insert_step(service_, step, "structure", targets, TimePoint::max(), random_, {});
  }

  FakeReplayService service_;
  Random random_{7};
  Value x_ = f32s({1, 2, 3});
  Value word_ = text("grey");
};

TEST_F(InsertStep, MakesAnItemOfOneRowThatHoldsTheStep) {
  service_.add_table("t");
  ASSERT_TRUE(insert({{"t", 2.5}}).ok());
  const Item& item = service_.item("t", 0);
  EXPECT_EQ(item.priority, 2.5);
  EXPECT_TRUE(check_trajectory(item.trajectory.view()).ok());
  const Batch batch = assemble(service_.all("t"), {}).value();
  EXPECT_EQ(batch.structure, "structure");
  EXPECT_EQ(batch.columns[0].spec, (TensorSpec{"x", DType::kFloat32, {1, 1, 3}}));
  EXPECT_EQ(bytes_of(batch.columns[0].bytes.bytes()), x_.bytes);
  EXPECT_EQ(batch.columns[1].spec, (TensorSpec{"word", DType::kString, {1, 1}}));
  EXPECT_EQ(bytes_of(batch.columns[1].bytes.bytes()), word_.bytes);
}

TEST_F(InsertStep, StoresTheStepOnceForAllTables) {
  service_.add_table("t");
  service_.add_table("u");
  ASSERT_TRUE(insert({{"t", 1.0}, {"u", std::nullopt}}).ok());
  const Item& first = service_.item("t", 0);
  const Item& second = service_.item("u", 0);
  EXPECT_EQ(first.trajectory.pieces()[0].chunk, second.trajectory.pieces()[0].chunk);
  EXPECT_NE(first.key, second.key);
  EXPECT_EQ(second.priority, std::nullopt);
}

TEST_F(InsertStep, SaysHowManyTablesHaveTheItem) {
  service_.add_table("t");
  const Status status = insert({{"t", 1.0}, {"nowhere", 1.0}});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("1 of 2 tables have the item"), std::string::npos);
  EXPECT_EQ(service_.size("t"), 1u);
  EXPECT_EQ(insert({{"nowhere", 1.0}}).message().find("tables have"), std::string::npos);
}

TEST_F(InsertStep, RefusesAStepWithoutColumns) {
  service_.add_table("t");
  const InsertTarget target{"t", 1.0};
  const Status status =
      insert_step(service_, {}, "", {&target, 1}, TimePoint::max(), random_, WaitOptions());
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(service_.size("t"), 0u);
}

}  // namespace
}  // namespace reverie
