// Environment steps and batches per second on x cores: the two curves that core_split.h needs.
//
// Measured with the actors and learners of a training themselves: its environment, networks,
// optimiser, replay and batch size, each side alone on 1, 2, 3, 4, 6, 8, 12, ... cores; between
// these the curve is interpolated linearly.
//
// Source: "Parallel Actors and Learners", section V.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/learn/loops.h"

namespace reverie {

struct CoreProfileOptions {
  std::size_t core_count = 1;
  double measure_s = 0.2;  // for each point of a curve
  Clock* clock = &Clock::system();
};

struct CoreProfile {
  std::vector<double> actor_curve;    // [x - 1]: environment steps per second on x cores
  std::vector<double> learner_curve;  // [x - 1]: batches per second on x cores
};

// Takes about 2 measure_s per point and trains `agent`, which must not be used afterwards. Requires
// settings with a seed.
// INVALID_ARGUMENT for a count or time out of range; else the environments' or gradients' error.
Result<CoreProfile> profile_cores(TrainSettings settings, Agent& agent, const EnvMaker& make_envs,
                                  const CoreProfileOptions& options);

}  // namespace reverie
