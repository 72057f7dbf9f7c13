// CartPole-v1: a pole on a cart that is pushed left or right.
//
// Observation: position, velocity, angle, angular velocity. Reward: 1 per step; the episode ends
// when the cart leaves [-2.4, 2.4] or the pole leans by more than 12 degrees. Option:
// sutton_barto_reward (false): 0 per step and -1 for the last, instead of 1 for each.
//
// Source: Barto, Sutton & Anderson 1983, with the constants of Gymnasium 1.x. Given the same state
// and actions every observation, reward and termination is bit for bit Gymnasium's.
#pragma once

#include "reverie/env/native_env.h"

namespace reverie {

class CartPole {
 public:
  struct Config {
    bool sutton_barto_reward = false;
  };
  using Observation = float;
  using Action = std::int64_t;
  static constexpr NativeCost kCost = NativeCost::kInline;
  static constexpr std::size_t kStateSize = 4;

  static Result<Config> read(OptionReader& options);
  static NativeSpec spec(const Config& config);

  explicit CartPole(const Config& config) : config_(config) {}
  void reset(Random& random);
  NativeStep step(std::int64_t action, Random& random);
  void observe(std::span<float> out) const;
  void get_state(std::span<double> out) const;
  void set_state(std::span<const double> state);
  void draw(Canvas& canvas) const;

 private:
  Config config_;
  double x_ = 0;
  double x_dot_ = 0;
  double theta_ = 0;
  double theta_dot_ = 0;
};

}  // namespace reverie
