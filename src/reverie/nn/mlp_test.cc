#include "reverie/nn/mlp.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/nn/initializer.h"

namespace reverie::nn {
namespace {

Mlp mlp_of(std::vector<std::size_t> widths, Activation hidden = Activation::kRelu,
           Activation output = Activation::kNone) {
  return Mlp::make({std::move(widths), hidden, output}).value();
}

std::vector<float> draws(Random& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(2 * random.uniform() - 1);
  return values;
}

double activated(Activation activation, double x) {
  if (activation == Activation::kRelu) return std::max(x, 0.0);
  return activation == Activation::kTanh ? std::tanh(x) : x;
}

// The model computes one row through all layers in double precision.
std::vector<double> outputs_of(const Mlp& mlp, const Parameters& parameters,
                               std::vector<double> values) {
  for (std::size_t i = 0; i < mlp.layers().size(); ++i) {
    const ConstMatrix weight = mlp.weight(i, parameters.span());
    const ConstMatrix bias = mlp.bias(i, parameters.span());
    std::vector<double> next(weight.columns);
    for (std::size_t c = 0; c < weight.columns; ++c) {
      double sum = bias(0, c);
      for (std::size_t r = 0; r < weight.rows; ++r) sum += values[r] * weight(r, c);
      next[c] = activated(mlp.layers()[i].activation, sum);
    }
    values = next;
  }
  return values;
}

// The loss of the gradient tests: a fixed linear function of the outputs.
double loss_of(const Mlp& mlp, const Parameters& parameters, const std::vector<float>& inputs,
               const std::vector<float>& shares) {
  double loss = 0;
  const std::size_t rows = inputs.size() / mlp.input_width();
  for (std::size_t row = 0; row < rows; ++row) {
    const auto begin = inputs.begin() + static_cast<std::ptrdiff_t>(row * mlp.input_width());
    const std::vector<double> outputs = outputs_of(
        mlp, parameters, {begin, begin + static_cast<std::ptrdiff_t>(mlp.input_width())});
    for (std::size_t c = 0; c < outputs.size(); ++c) {
      loss += shares[row * outputs.size() + c] * outputs[c];
    }
  }
  return loss;
}

struct Case {
  std::vector<std::size_t> widths;
  Activation hidden;
  Activation output;
};

std::vector<Case> cases() {
  return {{{8, 64, 64, 4}, Activation::kRelu, Activation::kNone},
          {{3, 17, 5, 1}, Activation::kTanh, Activation::kNone},
          {{6, 33, 30, 9, 2}, Activation::kRelu, Activation::kTanh},
          {{1, 1}, Activation::kRelu, Activation::kNone},
          {{5, 7}, Activation::kRelu, Activation::kTanh},
          {{2, 3, 2}, Activation::kNone, Activation::kRelu}};
}

TEST(Mlp, ForwardMatchesTheDefinitionForAnyBatch) {
  Random random(std::uint64_t{31});
  for (const Case& c : cases()) {
    const Mlp mlp = mlp_of(c.widths, c.hidden, c.output);
    Parameters parameters = mlp.make_parameters();
    initialize_uniform(mlp, random, parameters);
    MlpPass pass(mlp, 33);
    for (const std::size_t rows : {33u, 1u, 2u, 12u}) {
      const std::vector<float> inputs = draws(random, rows * mlp.input_width());
      const Matrix outputs =
          pass.forward(parameters, {inputs.data(), rows, mlp.input_width(), mlp.input_width()});
      ASSERT_EQ(outputs.rows, rows);
      ASSERT_EQ(outputs.columns, mlp.output_width());
      for (std::size_t row = 0; row < rows; ++row) {
        const auto begin = inputs.begin() + static_cast<std::ptrdiff_t>(row * mlp.input_width());
        const std::vector<double> expected = outputs_of(
            mlp, parameters, {begin, begin + static_cast<std::ptrdiff_t>(mlp.input_width())});
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(outputs(row, i), expected[i], 3e-6);
        }
      }
    }
  }
}

// The slope of the loss along `value`, computed with the model; nullopt if a rectifier switches
// within the step, so that the slopes on both sides differ.
template <typename Loss>
std::optional<double> slope(float& value, Loss loss) {
  constexpr float kStep = 1e-4f;
  const float before = value;
  const double middle = loss();
  value = before + kStep;
  const double above = (loss() - middle) / (static_cast<double>(value) - before);
  value = before - kStep;
  const double below = (middle - loss()) / (before - static_cast<double>(value));
  value = before;
  if (std::abs(above - below) > 1e-3) return std::nullopt;
  return (above + below) / 2;
}

TEST(Mlp, BothGradientsMatchTheSlopesOfTheLoss) {
  Random random(std::uint64_t{37});
  for (const Case& c : cases()) {
    const Mlp mlp = mlp_of(c.widths, c.hidden, c.output);
    Parameters parameters = mlp.make_parameters();
    initialize_uniform(mlp, random, parameters);
    constexpr std::size_t kRows = 9;
    std::vector<float> inputs = draws(random, kRows * mlp.input_width());
    const std::vector<float> shares = draws(random, kRows * mlp.output_width());
    const auto loss = [&] { return loss_of(mlp, parameters, inputs, shares); };
    MlpPass pass(mlp, kRows + 3);
    const auto forward = [&] {
      pass.forward(parameters, {inputs.data(), kRows, mlp.input_width(), mlp.input_width()});
      const Matrix gradient = pass.output_gradient();
      for (std::size_t i = 0; i < shares.size(); ++i) {
        gradient(i / gradient.columns, i % gradient.columns) = shares[i];
      }
    };
    std::size_t checked = 0;
    std::size_t skipped = 0;
    const auto check = [&](std::optional<double> expected, float actual, const std::string& where) {
      ++(expected ? checked : skipped);
      if (expected) {
        EXPECT_NEAR(actual, *expected, 2e-4) << where;
      }
    };
    forward();
    Parameters gradient = mlp.make_parameters();
    gradient.fill(5.0f);  // must be overwritten
    pass.backward(parameters, gradient);
    for (std::size_t layer = 0; layer < mlp.layers().size(); ++layer) {
      const Matrix weight = mlp.weight(layer, parameters.span());
      const Matrix weight_gradient = mlp.weight(layer, gradient.span());
      for (std::size_t r = 0; r < weight.rows; ++r) {
        const std::size_t at = random.below(weight.columns);
        check(slope(weight(r, at), loss), weight_gradient(r, at), "weight");
      }
      const Matrix bias = mlp.bias(layer, parameters.span());
      for (std::size_t i = 0; i < bias.columns; ++i) {
        check(slope(bias(0, i), loss), mlp.bias(layer, gradient.span())(0, i), "bias");
      }
    }
    forward();
    const Matrix input_gradient = pass.input_gradient(parameters);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      check(slope(inputs[i], loss), input_gradient(i / mlp.input_width(), i % mlp.input_width()),
            "input");
    }
    EXPECT_GT(checked, 20 * skipped);
  }
}

TEST(Mlp, PaddingStaysZeroThroughAnyNumberOfSteps) {
  Random random(std::uint64_t{41});
  const Mlp mlp = mlp_of({3, 5, 6, 2}, Activation::kTanh);
  Parameters parameters = mlp.make_parameters();
  Parameters gradient = mlp.make_parameters();
  initialize_uniform(mlp, random, parameters);
  MlpPass pass(mlp, 4);
  for (int step = 0; step < 20; ++step) {
    const std::vector<float> inputs = draws(random, 12);
    pass.forward(parameters, {inputs.data(), 4, 3, 3});
    const Matrix output_gradient = pass.output_gradient();
    for (std::size_t r = 0; r < 4; ++r) output_gradient(r, r % 2) = 1.0f;
    pass.backward(parameters, gradient);
    polyak_average(gradient, 0.1f, parameters);
  }
  for (std::size_t i = 0; i < mlp.layers().size(); ++i) {
    const Mlp::Layer& layer = mlp.layers()[i];
    for (std::size_t r = 0; r <= layer.inputs; ++r) {  // the bias comes after the last row
      for (std::size_t c = layer.outputs; c < layer.stride; ++c) {
        EXPECT_EQ(parameters.data()[layer.weight + r * layer.stride + c], 0.0f);
      }
    }
  }
}

TEST(Mlp, TheSameBatchGivesTheSameBits) {
  Random random(std::uint64_t{43});
  const Mlp mlp = mlp_of({8, 64, 4});
  Parameters parameters = mlp.make_parameters();
  initialize_uniform(mlp, random, parameters);
  const std::vector<float> inputs = draws(random, 64 * 8);
  MlpPass one(mlp, 64);
  MlpPass other(mlp, 100);
  const Matrix first = one.forward(parameters, {inputs.data(), 64, 8, 8});
  const Matrix second = other.forward(parameters, {inputs.data(), 64, 8, 8});
  for (std::size_t i = 0; i < 64 * 4; ++i) EXPECT_EQ(first.data[i], second.data[i]);
}

TEST(Mlp, RefusesInvalidWidths) {
  const auto text = [](std::vector<std::size_t> widths) {
    const Result<Mlp> mlp = Mlp::make({std::move(widths)});
    return mlp.ok() ? std::string("accepted") : mlp.status().message();
  };
  EXPECT_EQ(text({4}), "widths has 1 entries; a network needs at least 2, inputs and outputs");
  EXPECT_EQ(text({4, 0, 2}), "widths[1] is 0; it must be between 1 and 1048576");
  EXPECT_EQ(text({1 << 20, 1 << 20}),
            "widths make more than 1073741824 parameters up to layer 0; choose smaller ones");
  EXPECT_EQ(activation_named("gelu").status().message(),
            "activation is 'gelu'; it must be 'none', 'relu' or 'tanh'");
}

TEST(Mlp, NamesTheTensorOfAnIndex) {
  const Mlp mlp = mlp_of({2, 3, 1});  // 2 rows of 4 and a bias, 3 rows of 4 and a bias
  EXPECT_EQ(mlp.tensor_text(0), "the weight of layer 0");
  EXPECT_EQ(mlp.tensor_text(8), "the bias of layer 0");
  EXPECT_EQ(mlp.tensor_text(12), "the weight of layer 1");
  EXPECT_EQ(mlp.tensor_text(24), "the bias of layer 1");
}

TEST(MlpDeathTest, MismatchedShapesAbort) {
  const Mlp mlp = mlp_of({2, 3, 1});
  Parameters parameters = mlp.make_parameters();
  MlpPass pass(mlp, 2);
  const std::vector<float> inputs(6);
  EXPECT_DEATH(pass.forward(parameters, {inputs.data(), 3, 2, 2}), "invariant broken");
  EXPECT_DEATH(pass.forward(parameters, {inputs.data(), 2, 3, 3}), "invariant broken");
  EXPECT_DEATH(pass.forward(Parameters(4), {inputs.data(), 2, 2, 2}), "invariant broken");
  Parameters gradient = mlp.make_parameters();
  EXPECT_DEATH(pass.backward(parameters, gradient), "invariant broken");
}

}  // namespace
}  // namespace reverie::nn
