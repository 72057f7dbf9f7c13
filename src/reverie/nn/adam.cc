#include "reverie/nn/adam.h"

#include <cmath>
#include <string_view>

#include "reverie/nn/flush_denormals.h"
#include "reverie/nn/kernels.h"

namespace reverie::nn {
namespace {

constexpr double kFloatLeast = 1e-30;
constexpr double kFloatMost = 1e30;

// As a float it is neither infinity nor, times the correction of the squares, flushed to 0.
Status check_float(std::string_view name, double value) {
  if (value >= kFloatLeast && value <= kFloatMost) return {};
  return invalid_argument("{} is {}; it must be a number from {} to {}", name, value, kFloatLeast,
                          kFloatMost);
}

Status check_decay(std::string_view name, double value) {
  if (value >= 0.0 && value < 1.0) return {};
  return invalid_argument("{} is {}; it must be at least 0 and below 1", name, value);
}

}  // namespace

Adam::Adam(std::size_t float_count, const AdamOptions& options)
    : options_(options), mean_(float_count), square_(float_count) {}

Result<Adam> Adam::make(const Mlp& mlp, const AdamOptions& options) {
  REVERIE_RETURN_IF_ERROR(check_float("learning_rate", options.learning_rate));
  REVERIE_RETURN_IF_ERROR(check_decay("mean_decay", options.mean_decay));
  REVERIE_RETURN_IF_ERROR(check_decay("square_decay", options.square_decay));
  REVERIE_RETURN_IF_ERROR(check_float("epsilon", options.epsilon));
  return Adam(mlp.float_count(), options);
}

void Adam::begin_step(float gradient_scale) {
  ++step_count_;
  const auto count = static_cast<double>(step_count_);
  const double square_correction = std::sqrt(1.0 - std::pow(options_.square_decay, count));
  const double mean_correction = 1.0 - std::pow(options_.mean_decay, count);
  step_.gradient_scale = gradient_scale;
  step_.mean_decay = static_cast<float>(options_.mean_decay);
  step_.square_decay = static_cast<float>(options_.square_decay);
  step_.mean_share = static_cast<float>(1.0 - options_.mean_decay);
  step_.square_share = static_cast<float>(1.0 - options_.square_decay);
  // Numerator and denominator are multiplied by the correction of v, so that there is one
  // correction per step and none per element.
  step_.step_size =
      static_cast<float>(options_.learning_rate * square_correction / mean_correction);
  step_.epsilon = static_cast<float>(options_.epsilon * square_correction);
}

void Adam::step_part(const Parameters& gradient, Part part, Parameters& parameters) {
  REVERIE_CHECK(gradient.float_count() == mean_.float_count());
  REVERIE_CHECK(parameters.float_count() == mean_.float_count());
  const auto [begin, end] = part.of(mean_.float_count());
  AdamStep step = step_;
  step.parameters = parameters.data() + begin;
  step.mean = mean_.data() + begin;
  step.square = square_.data() + begin;
  step.gradient = gradient.data() + begin;
  step.count = end - begin;
  const FlushDenormals flush;
  kernels().adam(step);
}

Status Adam::set_learning_rate(double learning_rate) {
  if (!(learning_rate > 0.0) || learning_rate > kFloatMost) {
    return invalid_argument("learning_rate is {}; it must be above 0 and at most {}", learning_rate,
                            kFloatMost);
  }
  options_.learning_rate = learning_rate;
  return {};
}

void Adam::restore(const Parameters& mean, const Parameters& square, std::uint64_t step_count) {
  mean_.assign(mean);
  square_.assign(square);
  step_count_ = step_count;
}

double sum_of_squares(const Parameters& gradient, Part part) {
  const auto [begin, end] = part.of(gradient.float_count());
  return kernels().sum_of_squares(gradient.data() + begin, end - begin);
}

Result<double> gradient_norm(const Mlp& mlp, const Parameters& gradient) {
  return gradient_norm(mlp, gradient, sum_of_squares(gradient));
}

Result<double> gradient_norm(const Mlp& mlp, const Parameters& gradient, double square_sum) {
  REVERIE_CHECK(gradient.float_count() == mlp.float_count());
  const double norm = std::sqrt(square_sum);
  if (std::isfinite(norm)) return norm;
  for (std::size_t i = 0; i < gradient.float_count(); ++i) {
    if (std::isfinite(gradient.data()[i])) continue;
    return invalid_argument(
        "the gradient in {} holds {}; no step was taken. Look for NaN or infinite rewards and "
        "observations, or lower the learning rate",
        mlp.tensor_text(i), gradient.data()[i]);
  }
  REVERIE_CHECK(false);  // squares of floats do not overflow a double
  return norm;
}

double clip_scale(double norm, double norm_max) {
  REVERIE_CHECK(norm_max > 0.0);
  // The small number avoids a division by 0; torch adds the same.
  return std::fmin(1.0, norm_max / (norm + 1e-6));
}

}  // namespace reverie::nn
