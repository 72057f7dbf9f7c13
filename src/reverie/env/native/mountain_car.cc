// Tested in tests/conformance/env_suite.h and tests/python/native_gymnasium_test.py.
#include "reverie/env/native/mountain_car.h"

#include <algorithm>
#include <cmath>

#include "reverie/env/native/canvas.h"
#include "reverie/env/native/python_math.h"

namespace reverie {
namespace {

constexpr double kPositionMin = -1.2;
constexpr double kPositionMax = 0.6;
constexpr double kSpeedMax = 0.07;
constexpr double kGoal = 0.5;
constexpr double kForce = 0.001;
constexpr double kGravity = 0.0025;
constexpr double kContinuousGoal = 0.45;
constexpr double kPower = 0.0015;

Result<MountainCarConfig> read_config(OptionReader& options) {
  const double goal_velocity = options.number("goal_velocity", 0);
  if (!std::isfinite(goal_velocity)) {
    return invalid_argument("goal_velocity is {}; it must be finite", goal_velocity);
  }
  return MountainCarConfig{goal_velocity};
}

NativeSpec valley_spec() {
  NativeSpec spec;
  spec.observation = {"", DType::kFloat32, {2}};
  spec.observation_low = {static_cast<float>(kPositionMin), static_cast<float>(-kSpeedMax)};
  spec.observation_high = {static_cast<float>(kPositionMax), static_cast<float>(kSpeedMax)};
  spec.picture_width = 600;
  spec.picture_height = 400;
  return spec;
}

double height(double position) {
  return std::sin(3 * position) * 0.45 + 0.55;
}

void draw_valley(Canvas& canvas, double position, double goal) {
  const double scale = static_cast<double>(canvas.width()) / (kPositionMax - kPositionMin);
  const auto at = [&](double x) { return Point{(x - kPositionMin) * scale, height(x) * scale}; };
  constexpr int kPieces = 100;
  Point last = at(kPositionMin);
  for (int i = 1; i <= kPieces; ++i) {
    const Point next = at(kPositionMin + (kPositionMax - kPositionMin) * i / kPieces);
    canvas.line(last, next, 1.5, kBlack);
    last = next;
  }
  const double slope = std::cos(3 * position);
  const Point car = at(position);
  const auto on_car = [&](double x, double y) { return turned({x, y}, slope, car); };
  const Point body[] = {on_car(-20, 10), on_car(-20, 30), on_car(20, 30), on_car(20, 10)};
  canvas.fill(body, kBlack);
  canvas.disc(on_car(-10, 8), 8, kGrey);
  canvas.disc(on_car(10, 8), 8, kGrey);
  const Point flag = at(goal);
  canvas.line(flag, {flag.x, flag.y + 50}, 1.5, kBlack);
  canvas.fill({{flag.x, flag.y + 50}, {flag.x, flag.y + 40}, {flag.x + 25, flag.y + 45}},
              {204, 204, 0});
}

}  // namespace

// --- MountainCar-v0

Result<MountainCar::Config> MountainCar::read(OptionReader& options) {
  return read_config(options);
}

NativeSpec MountainCar::spec(const Config&) {
  NativeSpec spec = valley_spec();
  spec.action_count = 3;
  spec.max_episode_steps = 200;
  return spec;
}

void MountainCar::reset(Random& random) {
  position_ = -0.6 + 0.2 * random.uniform();
  velocity_ = 0;
}

NativeStep MountainCar::step(std::int64_t action, Random&) {
  velocity_ += static_cast<double>(action - 1) * kForce + std::cos(3 * position_) * (-kGravity);
  velocity_ = std::clamp(velocity_, -kSpeedMax, kSpeedMax);
  position_ += velocity_;
  position_ = std::clamp(position_, kPositionMin, kPositionMax);
  if (position_ == kPositionMin && velocity_ < 0) velocity_ = 0;
  return {-1.0f, position_ >= kGoal && velocity_ >= config_.goal_velocity};
}

void MountainCar::observe(std::span<float> out) const {
  out[0] = static_cast<float>(position_);
  out[1] = static_cast<float>(velocity_);
}

void MountainCar::get_state(std::span<double> out) const {
  out[0] = position_;
  out[1] = velocity_;
}

void MountainCar::set_state(std::span<const double> state) {
  position_ = state[0];
  velocity_ = state[1];
}

void MountainCar::draw(Canvas& canvas) const {
  draw_valley(canvas, position_, kGoal);
}

// --- MountainCarContinuous-v0

Result<MountainCarContinuous::Config> MountainCarContinuous::read(OptionReader& options) {
  return read_config(options);
}

NativeSpec MountainCarContinuous::spec(const Config&) {
  NativeSpec spec = valley_spec();
  spec.action_shape = {1};
  spec.action_low = {-1};
  spec.action_high = {1};
  spec.max_episode_steps = 999;
  return spec;
}

void MountainCarContinuous::reset(Random& random) {
  position_ = -0.6 + 0.2 * random.uniform();
  velocity_ = 0;
  is_first_ = true;
}

// Which numbers are float32 and which float64 follows NumPy's rules: a Python number takes the type
// of the NumPy scalar beside it. `Real` is the type of the state.
template <typename Real>
bool MountainCarContinuous::advance(float action) {
  auto position = static_cast<Real>(position_);
  auto velocity = static_cast<Real>(velocity_);
  const double pull = kGravity * std::cos(static_cast<double>(static_cast<Real>(3) * position));
  if (action > 1 || action < -1) {  // clipped to a Python number
    velocity += static_cast<Real>((action > 0 ? kPower : -kPower) - pull);
  } else {
    velocity += static_cast<Real>(action * static_cast<float>(kPower) - static_cast<float>(pull));
  }
  velocity = std::clamp(velocity, static_cast<Real>(-kSpeedMax), static_cast<Real>(kSpeedMax));
  position += velocity;
  position = std::clamp(position, static_cast<Real>(kPositionMin), static_cast<Real>(kPositionMax));
  if (position == static_cast<Real>(kPositionMin) && velocity < 0) velocity = 0;
  position_ = static_cast<double>(static_cast<float>(position));
  velocity_ = static_cast<double>(static_cast<float>(velocity));
  return position >= static_cast<Real>(kContinuousGoal) &&
         velocity >= static_cast<Real>(config_.goal_velocity);
}

NativeStep MountainCarContinuous::step(ContinuousAction action, Random&) {
  const bool terminated = is_first_ ? advance<double>(action[0]) : advance<float>(action[0]);
  is_first_ = false;
  const double cost = python_square(static_cast<double>(action[0])) * 0.1;
  return {static_cast<float>((terminated ? 100.0 : 0.0) - cost), terminated};
}

void MountainCarContinuous::observe(std::span<float> out) const {
  out[0] = static_cast<float>(position_);
  out[1] = static_cast<float>(velocity_);
}

void MountainCarContinuous::get_state(std::span<double> out) const {
  out[0] = position_;
  out[1] = velocity_;
  out[2] = is_first_ ? 1 : 0;
}

void MountainCarContinuous::set_state(std::span<const double> state) {
  position_ = state[0];
  velocity_ = state[1];
  is_first_ = state[2] != 0;
}

void MountainCarContinuous::draw(Canvas& canvas) const {
  draw_valley(canvas, position_, kContinuousGoal);
}

}  // namespace reverie
