// MountainCar-v0 and MountainCarContinuous-v0: a car in a valley, too weak to drive straight out.
//
// Observation: position in [-1.2, 0.6], velocity in [-0.07, 0.07]. Option of both: goal_velocity
// (0): the least velocity that the car must have at the goal.
//
// Source: Moore 1990, with the constants of Gymnasium 1.x. Given the same state and actions every
// observation, reward and termination is bit for bit Gymnasium's under NumPy 2.
#pragma once

#include "reverie/env/native_env.h"

namespace reverie {

struct MountainCarConfig {
  double goal_velocity = 0;
};

// Actions: push left, none, push right. Reward: -1 per step until the car is at 0.5.
class MountainCar {
 public:
  using Config = MountainCarConfig;
  using Observation = float;
  using Action = std::int64_t;
  static constexpr NativeCost kCost = NativeCost::kInline;
  static constexpr std::size_t kStateSize = 2;

  static Result<Config> read(OptionReader& options);
  static NativeSpec spec(const Config& config);

  explicit MountainCar(const Config& config) : config_(config) {}
  void reset(Random& random);
  NativeStep step(std::int64_t action, Random& random);
  void observe(std::span<float> out) const;
  void get_state(std::span<double> out) const;
  void set_state(std::span<const double> state);
  void draw(Canvas& canvas) const;

 private:
  Config config_;
  double position_ = 0;
  double velocity_ = 0;
};

// One action, the force, clipped to [-1, 1]. Reward: 100 at 0.45, less 0.1 times the square of each
// action before clipping: an action out of range costs more but pushes no harder.
//
// Gymnasium keeps the state in float32, except for the first step of an episode, which it computes
// in float64; so does this. The third number of the state tells which: 1 before the first step.
class MountainCarContinuous {
 public:
  using Config = MountainCarConfig;
  using Observation = float;
  using Action = ContinuousAction;
  static constexpr NativeCost kCost = NativeCost::kInline;
  static constexpr std::size_t kStateSize = 3;

  static Result<Config> read(OptionReader& options);
  static NativeSpec spec(const Config& config);

  explicit MountainCarContinuous(const Config& config) : config_(config) {}
  void reset(Random& random);
  NativeStep step(ContinuousAction action, Random& random);
  void observe(std::span<float> out) const;
  void get_state(std::span<double> out) const;
  void set_state(std::span<const double> state);
  void draw(Canvas& canvas) const;

 private:
  template <typename Real>
  bool advance(float action);

  Config config_;
  double position_ = 0;  // both are float32 numbers unless this is the first step
  double velocity_ = 0;
  bool is_first_ = true;
};

}  // namespace reverie
