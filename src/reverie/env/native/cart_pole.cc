// Tested in tests/conformance/env_suite.h and tests/python/native_gymnasium_test.py.
#include "reverie/env/native/cart_pole.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "reverie/env/native/canvas.h"

namespace reverie {
namespace {

constexpr double kGravity = 9.8;
constexpr double kPoleMass = 0.1;
constexpr double kTotalMass = 0.1 + 1.0;
constexpr double kHalfLength = 0.5;
constexpr double kPoleMassLength = kPoleMass * kHalfLength;
constexpr double kForce = 10.0;
constexpr double kStepSeconds = 0.02;
constexpr double kPositionMax = 2.4;
constexpr double kAngleMax = 12 * 2 * std::numbers::pi / 360;

}  // namespace

Result<CartPole::Config> CartPole::read(OptionReader& options) {
  return Config{options.boolean("sutton_barto_reward", false)};
}

NativeSpec CartPole::spec(const Config&) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  NativeSpec spec;
  spec.observation = {"", DType::kFloat32, {4}};
  spec.observation_high = {static_cast<float>(2 * kPositionMax), kInfinity,
                           static_cast<float>(2 * kAngleMax), kInfinity};
  for (const float high : spec.observation_high) spec.observation_low.push_back(-high);
  spec.action_count = 2;
  spec.max_episode_steps = 500;
  spec.picture_width = 600;
  spec.picture_height = 400;
  return spec;
}

void CartPole::reset(Random& random) {
  for (double* const value : {&x_, &x_dot_, &theta_, &theta_dot_}) {
    *value = -0.05 + 0.1 * random.uniform();
  }
}

// The order of operations is Gymnasium's: another order would round differently.
NativeStep CartPole::step(std::int64_t action, Random&) {
  const double force = action == 1 ? kForce : -kForce;
  const double cosine = std::cos(theta_);
  const double sine = std::sin(theta_);
  const double pushed = (force + kPoleMassLength * (theta_dot_ * theta_dot_) * sine) / kTotalMass;
  const double theta_acceleration =
      (kGravity * sine - cosine * pushed) /
      (kHalfLength * (4.0 / 3.0 - kPoleMass * (cosine * cosine) / kTotalMass));
  const double x_acceleration = pushed - kPoleMassLength * theta_acceleration * cosine / kTotalMass;
  x_ = x_ + kStepSeconds * x_dot_;
  x_dot_ = x_dot_ + kStepSeconds * x_acceleration;
  theta_ = theta_ + kStepSeconds * theta_dot_;
  theta_dot_ = theta_dot_ + kStepSeconds * theta_acceleration;
  const bool terminated =
      x_ < -kPositionMax || x_ > kPositionMax || theta_ < -kAngleMax || theta_ > kAngleMax;
  if (config_.sutton_barto_reward) return {terminated ? -1.0f : 0.0f, terminated};
  return {1.0f, terminated};
}

void CartPole::observe(std::span<float> out) const {
  out[0] = static_cast<float>(x_);
  out[1] = static_cast<float>(x_dot_);
  out[2] = static_cast<float>(theta_);
  out[3] = static_cast<float>(theta_dot_);
}

void CartPole::get_state(std::span<double> out) const {
  out[0] = x_;
  out[1] = x_dot_;
  out[2] = theta_;
  out[3] = theta_dot_;
}

void CartPole::set_state(std::span<const double> state) {
  x_ = state[0];
  x_dot_ = state[1];
  theta_ = state[2];
  theta_dot_ = state[3];
}

void CartPole::draw(Canvas& canvas) const {
  const double width = static_cast<double>(canvas.width());
  const double scale = width / (2 * kPositionMax);
  const double ground = 0.25 * static_cast<double>(canvas.height());
  const Point axle{width / 2 + x_ * scale, ground};
  canvas.line({0, ground}, {width, ground}, 1, kBlack);
  canvas.fill({{axle.x - 25, ground - 15},
               {axle.x + 25, ground - 15},
               {axle.x + 25, ground + 15},
               {axle.x - 25, ground + 15}},
              kBlack);
  const double length = 2 * kHalfLength * scale;
  canvas.line(turned({0, -5}, -theta_, axle), turned({0, length}, -theta_, axle), 10,
              {202, 152, 101});
  canvas.disc(axle, 5, {129, 132, 203});
}

}  // namespace reverie
