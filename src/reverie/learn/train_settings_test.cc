#include "reverie/learn/train_settings.h"

#include <limits>

#include <gtest/gtest.h>

#include "reverie/base/format.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

TEST(TrainSettings, EachOptionIsCheckedIndependentlyOfTheOthers) {
  EXPECT_TRUE(check_options({{"warmup_steps", std::int64_t{1}}, {"n_step", std::int64_t{5}}}).ok());
  const Status wrong = check_options({{"batch_size", std::int64_t{0}}});
  EXPECT_EQ(wrong.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(wrong.message().find("batch_size is 0"), std::string::npos) << wrong.message();
  const Status unknown = check_options({{"stepz", std::int64_t{3}}});
  EXPECT_NE(unknown.message().find("steps"), std::string::npos) << unknown.message();
}

TEST(TrainSettings, TheDefaultsAreInRange) {
  EXPECT_TRUE(check_settings({}).ok());
}

TEST(TrainSettings, SettingsSurviveARoundTrip) {
  TrainSettings settings;
  settings.seed = 7;
  settings.stop_at_return = 475;
  settings.hidden = {64, 32};
  settings.prioritized = false;
  settings.huber_delta = std::numeric_limits<double>::infinity();
  settings.update_interval = 0.5;
  const Result<TrainSettings> read = read_settings(write_settings(settings));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read, settings);
}

TEST(TrainSettings, EveryFieldIsWritten) {
  TrainSettings settings;
  settings.seed = 1;
  settings.stop_at_return = 1;
  settings.target_entropy = 1;
  std::size_t count = 0;
  visit_settings(settings, [&](const char*, const auto&) { ++count; });
  EXPECT_EQ(write_settings(settings).size(), count);
}

TEST(TrainSettings, EmptyTextMeansNoHiddenLayers) {
  const Result<TrainSettings> read = read_settings({{"hidden", std::string()}});
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->hidden.empty());
}

TEST(TrainSettings, AnIntegerIsAcceptedForANumber) {
  EXPECT_EQ(read_settings({{"gamma", std::int64_t{1}}})->gamma, 1.0);
}

TEST(TrainSettings, AnUnknownNameIsRefusedNamingTheNearest) {
  expect_refused(read_settings({{"learnin_rate", 1.0}}).status(), StatusCode::kInvalidArgument,
                 {"learnin_rate", "learning_rate"});
}

TEST(TrainSettings, AnOptionOutOfRangeIsNamedWithItsValueAndBound) {
  const auto refuses = [](Options options, const std::vector<std::string>& words) {
    expect_refused(read_settings(options).status(), StatusCode::kInvalidArgument, words);
  };
  refuses({{"gamma", 1.5}}, {"gamma", "1.5", "from 0 to 1"});
  refuses({{"gamma", std::numeric_limits<double>::quiet_NaN()}}, {"gamma", "nan"});
  refuses({{"learning_rate", 0.0}}, {"learning_rate", "0", "from 1e-30 to 1e+30"});
  refuses({{"batch_size", std::int64_t{0}}}, {"batch_size", "0", "from 1"});
  refuses({{"steps", std::int64_t{-1}}}, {"steps", "-1"});
  refuses({{"steps", 1.5}}, {"steps", "integer"});
  refuses({{"prioritized", std::int64_t{1}}}, {"prioritized", "true or false"});
  refuses({{"hidden", std::string("64,,64")}}, {"hidden", "64,,64"});
  refuses({{"hidden", std::string("64,")}}, {"hidden"});
  refuses({{"warmup_steps", std::int64_t{3}}, {"n_step", std::int64_t{3}}}, {"warmup_steps", "4"});
}

// As floats they would be 0 or infinity, which ends a training with NaN weights or an abort.
TEST(TrainSettings, ANumberThatNoFloatHoldsIsRefusedWithItsBounds) {
  const char* const names[] = {
      "priority_epsilon",  "reward_scale", "learning_rate",        "adam_epsilon",
      "gradient_norm_max", "huber_delta",  "policy_learning_rate", "target_noise_max",
  };
  for (const char* const name : names) {
    for (const double value : {1e-46, 1e-40, -1e-3, 1e39, 1e300}) {
      expect_refused(read_settings({{name, value}}).status(), StatusCode::kInvalidArgument,
                     {name, format("{}", value), "from 1e-30 to 1e+30"});
    }
    for (const double value : {1e-30, 1.0, 1e30}) {
      EXPECT_TRUE(read_settings({{name, value}}).ok()) << name << " " << value;
    }
  }
  expect_refused(read_settings({{"tau", 1e-46}}).status(), StatusCode::kInvalidArgument,
                 {"tau is 1e-46", "0 or a number from 1e-30 to 1"});
  expect_refused(read_settings({{"temperature", 1e-46}}).status(), StatusCode::kInvalidArgument,
                 {"temperature is 1e-46", "0 or a number from 1e-30"});
  expect_refused(read_settings({{"target_entropy", -1e39}}).status(), StatusCode::kInvalidArgument,
                 {"target_entropy", "-1e+39", "from -1e+30"});
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(read_settings({{"huber_delta", infinity}}).ok());
  EXPECT_TRUE(read_settings({{"gradient_norm_max", 0.0}, {"tau", 0.0}, {"temperature", 0.0}}).ok());
}

}  // namespace
}  // namespace reverie
