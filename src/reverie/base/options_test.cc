#include "reverie/base/options.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace reverie {
namespace {

TEST(OptionReader, ReturnsGivenOptionsAndDefaultsForAbsentOnes) {
  const Options options = {{"x", 1.5}, {"n", std::int64_t{3}}, {"on", true}};
  OptionReader reader(options);
  EXPECT_EQ(reader.number("x", 0), 1.5);
  EXPECT_EQ(reader.number("n", 0), 3.0);
  EXPECT_EQ(reader.integer("n", 0), 3);
  EXPECT_TRUE(reader.boolean("on", false));
  EXPECT_EQ(reader.number("absent", 7), 7);
  EXPECT_FALSE(reader.seed().has_value());
  EXPECT_TRUE(reader.finish().ok());
}

TEST(OptionReader, FinishRefusesAWrongType) {
  for (const OptionValue& wrong : {OptionValue(std::string("high")), OptionValue(true)}) {
    const Options options = {{"x", wrong}};
    OptionReader reader(options);
    EXPECT_EQ(reader.number("x", 2), 2);
    expect_refused(reader.finish(), StatusCode::kInvalidArgument, {"'x' must be a number"});
  }
  const Options options = {{"on", std::int64_t{1}}};
  OptionReader reader(options);
  EXPECT_TRUE(reader.boolean("on", true));
  expect_refused(reader.finish(), StatusCode::kInvalidArgument, {"'on' must be true or false"});
}

TEST(OptionReader, FinishRefusesUnknownOptionsAndListsTheKnownOnes) {
  const Options options = {{"gravty", 1.0}};
  OptionReader reader(options);
  reader.number("gravity", 0);
  reader.boolean("wind", false);
  expect_refused(reader.finish(), StatusCode::kInvalidArgument, {"'gravty'", "gravity, wind"});
}

}  // namespace
}  // namespace reverie
