#include "reverie/client/insert_step.h"

#include <gtest/gtest.h>

#include "reverie/gather/batch.h"
#include "tests/support/fake_replay_service.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

class InsertStep : public ::testing::Test {
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

TEST_F(InsertStep, StepsOfTheSameKindShareASchemaAndALayout) {
  service_.add_table("t");
  StepKinds kinds;
  const InsertTarget target{"t", 1.0};
  const auto insert_as = [&](const std::vector<NamedValue>& step, std::string_view structure) {
    return insert_step(service_, step, structure, {&target, 1}, TimePoint::max(), random_, {},
                       &kinds);
  };
  const Value longer = f32s({1, 2, 3, 4});
  const std::vector<NamedValue> step = {{"x", x_.view()}, {"word", word_.view()}};
  ASSERT_TRUE(insert_as(step, "a").ok());
  ASSERT_TRUE(insert_as(step, "a").ok());
  ASSERT_TRUE(insert_as(step, "b").ok());
  ASSERT_TRUE(insert_as({{"y", x_.view()}, {"word", word_.view()}}, "a").ok());
  ASSERT_TRUE(insert_as({{"x", longer.view()}, {"word", word_.view()}}, "a").ok());
  ASSERT_TRUE(insert_as({{"x", x_.view()}}, "a").ok());
  const auto schema = [&](std::size_t i) {
    return &service_.item("t", i).trajectory.pieces()[0].chunk->schema();
  };
  const auto layout = [&](std::size_t i) { return &service_.item("t", i).trajectory.layout(); };
  EXPECT_EQ(schema(0), schema(1));
  EXPECT_EQ(layout(0), layout(1));
  for (std::size_t i = 2; i < 6; ++i) {
    EXPECT_NE(schema(0), schema(i));
    EXPECT_NE(layout(0), layout(i));
    EXPECT_TRUE(check_trajectory(service_.item("t", i).trajectory.view()).ok());
  }
  // Steps that are all different evict earlier ones from the cache, and stay correct.
  for (int i = 0; i < 40; ++i) {
    const std::string name = format("x{}", i);
    ASSERT_TRUE(insert_as({{name, x_.view()}}, "c").ok());
    EXPECT_EQ(service_.item("t", 6 + static_cast<std::size_t>(i))
                  .trajectory.layout()
                  .columns()[0]
                  .spec.name,
              name);
  }
}

TEST_F(InsertStep, AnErrorSaysHowManyTablesHaveTheItem) {
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
