#include "reverie/nn/adam.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie::nn {
namespace {

Mlp small() {
  return Mlp::make({{3, 5, 2}}).value();
}

// The model is the algorithm as it is written, in double precision, with bias corrections.
TEST(Adam, StepsMatchTheAlgorithm) {
  const Mlp mlp = small();
  const AdamOptions options{
      .learning_rate = 3e-3, .mean_decay = 0.8, .square_decay = 0.99, .epsilon = 1e-5};
  Adam adam = Adam::make(mlp, options).value();
  Parameters parameters = mlp.make_parameters();
  Parameters gradient = mlp.make_parameters();
  const std::size_t count = mlp.float_count();
  std::vector<double> w(count);
  std::vector<double> m(count);
  std::vector<double> v(count);
  Random random(std::uint64_t{71});
  for (int t = 1; t <= 300; ++t) {
    const float scale = t % 3 == 0 ? 0.25f : 1.0f;
    for (std::size_t i = 0; i < count; ++i) {
      gradient.data()[i] = static_cast<float>(random.uniform() - 0.3);
      const double g = static_cast<double>(gradient.data()[i]) * scale;
      m[i] = options.mean_decay * m[i] + (1 - options.mean_decay) * g;
      v[i] = options.square_decay * v[i] + (1 - options.square_decay) * g * g;
      const double mean = m[i] / (1 - std::pow(options.mean_decay, t));
      const double square = v[i] / (1 - std::pow(options.square_decay, t));
      w[i] -= options.learning_rate * mean / (std::sqrt(square) + options.epsilon);
    }
    adam.step(gradient, scale, parameters);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_NEAR(parameters.data()[i], w[i], 1e-6 + 2e-7 * t) << "step " << t;
    }
  }
  EXPECT_EQ(adam.step_count(), 300u);
}

// With denormal moments a step takes several times as long on some processors.
TEST(Adam, TheMomentOfAWeightWithoutGradientBecomesZero) {
  const Mlp mlp = small();
  Adam adam = Adam::make(mlp, {}).value();
  Parameters parameters = mlp.make_parameters();
  Parameters gradient = mlp.make_parameters();
  gradient.fill(1e-3f);
  adam.step(gradient, 1.0f, parameters);
  gradient.fill(0.0f);
  for (int step = 0; step < 1'500; ++step) adam.step(gradient, 1.0f, parameters);
  for (const float mean : adam.mean().span()) EXPECT_EQ(mean, 0.0f);
  volatile float tiny = 1e-37f;
  EXPECT_GT(tiny / 64, 0.0f) << "the caller's arithmetic is as it was";
}

// m / sqrt(v) is the sign of the gradient, so each step has the size of the learning rate.
TEST(Adam, AConstantGradientMovesByTheLearningRate) {
  const Mlp mlp = small();
  Adam adam = Adam::make(mlp, {.learning_rate = 0.5, .epsilon = 1e-12}).value();
  Parameters parameters = mlp.make_parameters();
  Parameters gradient = mlp.make_parameters();
  gradient.fill(-3.0f);
  for (int step = 1; step <= 4; ++step) {
    adam.step(gradient, 1.0f, parameters);
    for (const float w : parameters.span()) EXPECT_NEAR(w, 0.5 * step, 1e-5);
  }
}

TEST(Adam, ARestoredStateContinuesIdentically) {
  const Mlp mlp = small();
  Adam adam = Adam::make(mlp, {}).value();
  Parameters parameters = mlp.make_parameters();
  Parameters gradient = mlp.make_parameters();
  gradient.fill(0.7f);
  for (int i = 0; i < 5; ++i) adam.step(gradient, 1.0f, parameters);
  Adam other = Adam::make(mlp, {}).value();
  Parameters copy = parameters.copy();
  other.restore(adam.mean(), adam.square(), adam.step_count());
  gradient.fill(-0.2f);
  adam.step(gradient, 1.0f, parameters);
  other.step(gradient, 1.0f, copy);
  for (std::size_t i = 0; i < copy.float_count(); ++i) {
    EXPECT_EQ(copy.data()[i], parameters.data()[i]);
  }
}

TEST(Adam, ClippingShortensOnlyLongGradients) {
  const Mlp mlp = small();
  Parameters gradient = mlp.make_parameters();
  gradient.data()[1] = 3.0f;
  gradient.data()[7] = -4.0f;
  const double norm = gradient_norm(mlp, gradient).value();
  EXPECT_EQ(norm, 5.0);
  EXPECT_NEAR(clip_scale(norm, 1.0), 0.2, 1e-7);
  EXPECT_EQ(clip_scale(norm, 10.0), 1.0);
  EXPECT_EQ(clip_scale(0.0, 10.0), 1.0);
}

TEST(Adam, ANanGradientIsRefusedAndItsLayerNamed) {
  const Mlp mlp = small();
  Parameters gradient = mlp.make_parameters();
  mlp.bias(1, gradient.span())(0, 1) = std::numeric_limits<float>::quiet_NaN();
  const Status status = gradient_norm(mlp, gradient).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "the gradient in the bias of layer 1 holds nan; no step was taken. Look for NaN or "
            "infinite rewards and observations, or lower the learning rate");
  gradient.fill(std::numeric_limits<float>::max());
  EXPECT_TRUE(gradient_norm(mlp, gradient).ok());
}

TEST(Adam, RefusesOptionsOutOfRange) {
  const auto text = [](const AdamOptions& options) {
    return Adam::make(small(), options).status().message();
  };
  EXPECT_EQ(text({.learning_rate = 0}),
            "learning_rate is 0; it must be a number from 1e-30 to 1e+30");
  EXPECT_EQ(text({.mean_decay = 1}), "mean_decay is 1; it must be at least 0 and below 1");
  EXPECT_EQ(text({.square_decay = -0.5}),
            "square_decay is -0.5; it must be at least 0 and below 1");
  EXPECT_EQ(text({.epsilon = std::numeric_limits<double>::infinity()}),
            "epsilon is inf; it must be a number from 1e-30 to 1e+30");
  // Times the correction of the squares a float flushes it to 0, and a weight becomes 0 / 0.
  EXPECT_EQ(text({.epsilon = 1e-40}), "epsilon is 1e-40; it must be a number from 1e-30 to 1e+30");
  Adam adam = Adam::make(small(), {}).value();
  EXPECT_EQ(adam.set_learning_rate(-1).message(),
            "learning_rate is -1; it must be above 0 and at most 1e+30");
}

}  // namespace
}  // namespace reverie::nn
