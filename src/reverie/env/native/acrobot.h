// Acrobot-v1: two links that hang from a point, with a motor at the joint between them.
//
// Observation: cosine and sine of both angles, both angular velocities. Torque -1, 0 or 1. Reward
// -1 per step until the free end is one link above the fixed point, which ends the episode with 0.
//
// Source: Sutton 1996, with the equations of Sutton & Barto's book and Gymnasium 1.x. Given the
// same state and actions every observation, reward and termination after a step is bit for bit
// Gymnasium's. The first observation of an episode may differ by the last bit: NumPy computes that
// one with its own float32 cosine.
#pragma once

#include "reverie/env/native_env.h"

namespace reverie {

class Acrobot {
 public:
  struct Config {};
  using Observation = float;
  using Action = std::int64_t;
  static constexpr NativeCost kCost = NativeCost::kInline;
  static constexpr std::size_t kStateSize = 4;

  static Result<Config> read(OptionReader& options);
  static NativeSpec spec(const Config& config);

  explicit Acrobot(const Config&) {}
  void reset(Random& random);
  NativeStep step(std::int64_t action, Random& random);
  void observe(std::span<float> out) const;
  void get_state(std::span<double> out) const;
  void set_state(std::span<const double> state);
  void draw(Canvas& canvas) const;

 private:
  double theta1_ = 0;  // of the first link; 0: it hangs
  double theta2_ = 0;  // of the second link relative to the first
  double theta1_dot_ = 0;
  double theta2_dot_ = 0;
};

}  // namespace reverie
