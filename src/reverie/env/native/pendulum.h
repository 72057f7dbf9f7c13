// Pendulum-v1: a pendulum with a weak motor at its axle, to be swung up and held.
//
// Observation: cosine and sine of the angle, angular velocity in [-8, 8]. One action, the torque,
// clipped to [-2, 2]. The reward is at most 0, and 0 if the pendulum is upright and still. Episodes
// do not end by themselves. Option: g (10.0), the gravity.
//
// Source: Gymnasium 1.x. Given the same state and actions every observation and reward is bit for
// bit Gymnasium's under NumPy 2.
#pragma once

#include "reverie/env/native_env.h"

namespace reverie {

class Pendulum {
 public:
  struct Config {
    double gravity = 10.0;
  };
  using Observation = float;
  using Action = ContinuousAction;
  static constexpr NativeCost kCost = NativeCost::kInline;
  static constexpr std::size_t kStateSize = 2;

  static Result<Config> read(OptionReader& options);
  static NativeSpec spec(const Config& config);

  explicit Pendulum(const Config& config) : config_(config) {}
  void reset(Random& random);
  NativeStep step(ContinuousAction action, Random& random);
  void observe(std::span<float> out) const;
  void get_state(std::span<double> out) const;
  void set_state(std::span<const double> state);
  void draw(Canvas& canvas) const;

 private:
  Config config_;
  double theta_ = 0;  // 0 is upright
  double theta_dot_ = 0;
  float torque_ = 0;  // the latest, for the picture
};

}  // namespace reverie
