// Exploration: how often an actor tries another action than its best, and which.
//
// The random draws come from the caller, as numbers in [0, 1): the functions are pure, and a run is
// repeated by repeating its draws.
//
// Sources: Mnih et al. 2015 (linear schedule, epsilon-greedy); Horgan et al. 2018, section 4.1 (an
// epsilon for each actor).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reverie/base/status.h"

namespace reverie {

enum class Decay : std::uint8_t { kLinear, kExponential };

// From `first` to `last` within `step_count` steps, then `last`.
struct EpsilonSchedule {
  double first = 1;
  double last = 0.05;
  std::uint64_t step_count = 10'000;
  Decay decay = Decay::kLinear;
};

// INVALID_ARGUMENT unless both are in [0, 1], and above 0 where the decay is exponential.
Status check_schedule(const EpsilonSchedule& schedule);
// Linear in the step, or in its logarithm. Requires a schedule that check_schedule() accepts.
// Thread-safe.
double epsilon_at(const EpsilonSchedule& schedule, std::uint64_t step);

// The epsilon of actor `actor` of `actor_count`: base^(1 + alpha actor / (actor_count - 1)), so
// that a few explore a lot and most explore little. Requires actor < actor_count, base in (0, 1],
// alpha >= 0.
double actor_epsilon(std::size_t actor, std::size_t actor_count, double base = 0.4,
                     double alpha = 7);

// actions[i] is, if explore_draws[i] < epsilon, the action that action_draws[i] selects uniformly;
// else the greedy action of row i of `values`. Thread-safe. Requires draws in [0, 1), spans of one
// length B, and rows of B A values, A >= 1.
void epsilon_greedy(std::span<const float> values, double epsilon,
                    std::span<const double> explore_draws, std::span<const double> action_draws,
                    std::span<std::int32_t> actions);

}  // namespace reverie
