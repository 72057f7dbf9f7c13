// Environment steps and batches per second on x cores: the two curves that core_split.h needs.
//
// Measured with the actors and learners of a training themselves: its environment, networks,
// optimiser, replay and batch size, each side alone on 1, 2, 3, 4, 6, 8, 12, ... cores; between
// these the curve is interpolated linearly.
//
// The transitions are in as many tables as those of a training with so many learners (loops.h).
// Actors have the tables of the most learners that leave one core to an actor: an insert takes the
// lock of one table, so it costs about as much with fewer.
//
// Source: "Parallel Actors and Learners", section V.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/learn/loops.h"
#include "reverie/replay/local_service.h"

namespace reverie {

struct CoreProfileOptions {
  std::size_t core_count = 1;
  double measure_s = 0.2;  // for each point of a curve
  Clock* clock = &Clock::system();
  // Asked several times a second; true ends the profile with CANCELLED.
  std::function<bool()> interrupted = [] { return false; };
  // Makes the store of one measured training.
  std::function<Result<std::shared_ptr<LocalService>>(std::vector<TableOptions>)> open_store =
      [](std::vector<TableOptions> tables) { return LocalService::open(std::move(tables), {}); };
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
