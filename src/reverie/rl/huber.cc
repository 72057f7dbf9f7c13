// Tested in learning_rules_test.cc.
#include "reverie/rl/huber.h"

#include <cmath>
#include <cstddef>

#include "reverie/base/check.h"

namespace reverie {
namespace {

Status check_delta(float delta) {
  if (delta > 0.0f) return {};
  return invalid_argument("delta is {}; it must be above 0 (1 is usual)", delta);
}

// NaN stays NaN.
float held(float error, float delta) {
  if (error > delta) return delta;
  return error < -delta ? -delta : error;
}

}  // namespace

Status huber_losses(std::span<const float> errors, float delta, std::span<float> losses) {
  REVERIE_RETURN_IF_ERROR(check_delta(delta));
  REVERIE_CHECK(errors.size() == losses.size());
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const float near = held(errors[i], delta);
    losses[i] = near * (errors[i] - 0.5f * near);
  }
  return {};
}

Status huber_derivatives(std::span<const float> errors, float delta, std::span<float> derivatives) {
  REVERIE_RETURN_IF_ERROR(check_delta(delta));
  REVERIE_CHECK(errors.size() == derivatives.size());
  for (std::size_t i = 0; i < errors.size(); ++i) derivatives[i] = held(errors[i], delta);
  return {};
}

}  // namespace reverie
