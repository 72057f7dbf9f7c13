// Tested in tests/conformance/env_suite.h and tests/python/native_gymnasium_test.py.
#include "reverie/env/native/pendulum.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "reverie/env/native/canvas.h"
#include "reverie/env/native/python_math.h"

namespace reverie {
namespace {

constexpr double kSpeedMax = 8;
constexpr float kTorqueMax = 2;
constexpr double kStepSeconds = 0.05;

// In [-pi, pi).
double normalized(double angle) {
  return python_modulo(angle + std::numbers::pi, 2 * std::numbers::pi) - std::numbers::pi;
}

}  // namespace

Result<Pendulum::Config> Pendulum::read(OptionReader& options) {
  const double gravity = options.number("g", 10.0);
  if (!std::isfinite(gravity)) {
    return invalid_argument("g is {}; gravity must be finite", gravity);
  }
  return Config{gravity};
}

NativeSpec Pendulum::spec(const Config&) {
  NativeSpec spec;
  spec.observation = {"", DType::kFloat32, {3}};
  spec.observation_high = {1, 1, static_cast<float>(kSpeedMax)};
  for (const float high : spec.observation_high) spec.observation_low.push_back(-high);
  spec.action_shape = {1};
  spec.action_low = {-kTorqueMax};
  spec.action_high = {kTorqueMax};
  spec.max_episode_steps = 200;
  spec.picture_width = 500;
  spec.picture_height = 500;
  return spec;
}

void Pendulum::reset(Random& random) {
  theta_ = std::numbers::pi * (2 * random.uniform() - 1);
  theta_dot_ = 2 * random.uniform() - 1;
  torque_ = 0;
}

NativeStep Pendulum::step(ContinuousAction action, Random&) {
  torque_ = std::clamp(action[0], -kTorqueMax, kTorqueMax);
  // The torque's terms are float32, as in NumPy.
  const double cost = python_square(normalized(theta_)) + 0.1 * python_square(theta_dot_) +
                      static_cast<double>(0.001f * python_square(torque_));
  const double acceleration =
      3 * config_.gravity / 2 * std::sin(theta_) + static_cast<double>(3.0f * torque_);
  theta_dot_ = std::clamp(theta_dot_ + acceleration * kStepSeconds, -kSpeedMax, kSpeedMax);
  theta_ = theta_ + theta_dot_ * kStepSeconds;
  return {static_cast<float>(-cost), /*terminated=*/false};
}

void Pendulum::observe(std::span<float> out) const {
  out[0] = static_cast<float>(std::cos(theta_));
  out[1] = static_cast<float>(std::sin(theta_));
  out[2] = static_cast<float>(theta_dot_);
}

void Pendulum::get_state(std::span<double> out) const {
  out[0] = theta_;
  out[1] = theta_dot_;
}

void Pendulum::set_state(std::span<const double> state) {
  theta_ = state[0];
  theta_dot_ = state[1];
  torque_ = 0;
}

void Pendulum::draw(Canvas& canvas) const {
  const Point axle{static_cast<double>(canvas.width()) / 2,
                   static_cast<double>(canvas.height()) / 2};
  const double length = 0.45 * std::min(axle.x, axle.y) * 2 * 0.9;
  const Point tip = turned({0, length}, theta_, axle);
  const double thickness = length / 5;
  canvas.line(axle, tip, thickness, kRed);
  canvas.disc(axle, thickness / 2, kRed);
  canvas.disc(tip, thickness / 2, kRed);
  canvas.disc(axle, thickness / 5, kBlack);
  // The torque: an arc around the axle, longer for a larger torque, with an arrow head in its
  // direction.
  const double share = static_cast<double>(torque_ / kTorqueMax);
  if (std::abs(share) < 0.02) return;
  constexpr int kPieces = 24;
  const double radius = length / 3;
  const auto at = [&](int i) {
    return turned({0, -radius}, share * std::numbers::pi * 0.75 * i / kPieces, axle);
  };
  for (int i = 0; i < kPieces; ++i) canvas.line(at(i), at(i + 1), 3, kBlack);
  const Point end = at(kPieces);
  const double heading = share * std::numbers::pi * 0.75 + (share > 0 ? 0 : std::numbers::pi);
  const Point head[] = {turned({12, 0}, heading, end), turned({0, 6}, heading, end),
                        turned({0, -6}, heading, end)};
  canvas.fill(head, kBlack);
}

}  // namespace reverie
