// Tested in tests/conformance/env_suite.h and tests/python/native_gymnasium_test.py.
#include "reverie/env/native/acrobot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "reverie/env/native/canvas.h"
#include "reverie/env/native/python_math.h"

namespace reverie {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kStepSeconds = 0.2;
constexpr double kSpeed1Max = 4 * kPi;
constexpr double kSpeed2Max = 9 * kPi;
constexpr double kGravity = 9.8;
// Both links: length 1, mass 1, moment of inertia 1, centre of mass in the middle.
constexpr double kCentre = 0.5;

using State = std::array<double, 4>;  // angles, then their velocities

// The order of operations is Gymnasium's: another order would round differently.
State derivative(const State& s, double torque) {
  const auto [theta1, theta2, dtheta1, dtheta2] = s;
  const double cosine2 = std::cos(theta2);
  const double sine2 = std::sin(theta2);
  const double d1 = 0.25 + (1.0 + 0.25 + 1.0 * cosine2) + 1.0 + 1.0;
  const double d2 = (0.25 + kCentre * cosine2) + 1.0;
  const double phi2 = kCentre * kGravity * std::cos(theta1 + theta2 - kPi / 2);
  const double phi1 = -kCentre * python_square(dtheta2) * sine2 - 1.0 * dtheta2 * dtheta1 * sine2 +
                      (kCentre + 1.0) * kGravity * std::cos(theta1 - kPi / 2) + phi2;
  const double ddtheta2 =
      (torque + d2 / d1 * phi1 - kCentre * python_square(dtheta1) * sine2 - phi2) /
      (0.25 + 1.0 - python_square(d2) / d1);
  const double ddtheta1 = -(d2 * ddtheta2 + phi1) / d1;
  return {dtheta1, dtheta2, ddtheta1, ddtheta2};
}

State moved(const State& from, double by, const State& along) {
  State to;
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] + by * along[i];
  return to;
}

// One step of the classic Runge-Kutta method.
State integrated(const State& s, double torque) {
  const State k1 = derivative(s, torque);
  const State k2 = derivative(moved(s, kStepSeconds / 2, k1), torque);
  const State k3 = derivative(moved(s, kStepSeconds / 2, k2), torque);
  const State k4 = derivative(moved(s, kStepSeconds, k3), torque);
  State out;
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = s[i] + kStepSeconds / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
  }
  return out;
}

// The loops are Gymnasium's. A state with speeds that no episode reaches would make them endless.
double wrapped(double angle) {
  if (!(std::abs(angle) < 1e3)) return std::remainder(angle, 2 * kPi);
  while (angle > kPi) angle = angle - 2 * kPi;
  while (angle < -kPi) angle = angle + 2 * kPi;
  return angle;
}

}  // namespace

Result<Acrobot::Config> Acrobot::read(OptionReader&) {
  return Config{};
}

NativeSpec Acrobot::spec(const Config&) {
  NativeSpec spec;
  spec.observation = {"", DType::kFloat32, {6}};
  spec.observation_high = {
      1, 1, 1, 1, static_cast<float>(kSpeed1Max), static_cast<float>(kSpeed2Max)};
  for (const float high : spec.observation_high) spec.observation_low.push_back(-high);
  spec.action_count = 3;
  spec.max_episode_steps = 500;
  spec.picture_width = 500;
  spec.picture_height = 500;
  return spec;
}

void Acrobot::reset(Random& random) {
  for (double* const value : {&theta1_, &theta2_, &theta1_dot_, &theta2_dot_}) {
    *value = static_cast<double>(static_cast<float>(-0.1 + 0.2 * random.uniform()));
  }
}

NativeStep Acrobot::step(std::int64_t action, Random&) {
  const State next =
      integrated({theta1_, theta2_, theta1_dot_, theta2_dot_}, static_cast<double>(action - 1));
  theta1_ = wrapped(next[0]);
  theta2_ = wrapped(next[1]);
  theta1_dot_ = std::clamp(next[2], -kSpeed1Max, kSpeed1Max);
  theta2_dot_ = std::clamp(next[3], -kSpeed2Max, kSpeed2Max);
  const bool terminated = -std::cos(theta1_) - std::cos(theta2_ + theta1_) > 1.0;
  return {terminated ? 0.0f : -1.0f, terminated};
}

void Acrobot::observe(std::span<float> out) const {
  out[0] = static_cast<float>(std::cos(theta1_));
  out[1] = static_cast<float>(std::sin(theta1_));
  out[2] = static_cast<float>(std::cos(theta2_));
  out[3] = static_cast<float>(std::sin(theta2_));
  out[4] = static_cast<float>(theta1_dot_);
  out[5] = static_cast<float>(theta2_dot_);
}

void Acrobot::get_state(std::span<double> out) const {
  out[0] = theta1_;
  out[1] = theta2_;
  out[2] = theta1_dot_;
  out[3] = theta2_dot_;
}

void Acrobot::set_state(std::span<const double> state) {
  theta1_ = state[0];
  theta2_ = state[1];
  theta1_dot_ = state[2];
  theta2_dot_ = state[3];
}

void Acrobot::draw(Canvas& canvas) const {
  const double width = static_cast<double>(canvas.width());
  const double scale = std::min(width, static_cast<double>(canvas.height())) / 4.4;
  const Point fixed{width / 2, static_cast<double>(canvas.height()) / 2};
  const Point joint = turned({0, -scale}, theta1_, fixed);
  const Point tip = turned({0, -scale}, theta1_ + theta2_, joint);
  constexpr Colour kLink{0, 150, 160};
  constexpr Colour kJoint{204, 180, 0};
  canvas.line({0, fixed.y + scale}, {width, fixed.y + scale}, 1, kBlack);
  canvas.line(fixed, joint, 0.2 * scale, kLink);
  canvas.line(joint, tip, 0.2 * scale, kLink);
  canvas.disc(tip, 0.1 * scale, kLink);
  canvas.disc(fixed, 0.1 * scale, kJoint);
  canvas.disc(joint, 0.1 * scale, kJoint);
}

}  // namespace reverie
