// Divides cores between acting and learning so that both sides keep pace with each other.
//
//     f_a(x)   environment steps per second on x cores
//     f_l(x)   batches per second on x cores
//
//     f_a(x_a) = update_interval * f_l(x_l),    x_a + x_l <= cores
//
// No pair of whole numbers satisfies that exactly. All are tried: the result is the pair whose
// ratio of both sides is nearest to 1, or, among those nearly as near, the one that trains fastest.
//
// Source: "Parallel Actors and Learners", section V. It does not define "nearly as near".
#pragma once

#include <cstddef>
#include <span>

#include "reverie/base/status.h"

namespace reverie {

struct CoreSplitOptions {
  std::size_t core_count = 1;
  double update_interval = 1;  // environment steps per batch
  // Ratios that are at most this much further from 1 than the nearest count as equally near.
  double tolerance = 0.1;
  // Whether learners run on an accelerator: then all cores are used for actors.
  bool learners_need_no_core = false;
};

struct CoreSplit {
  std::size_t actor_cores = 0;
  std::size_t learner_cores = 0;  // or the threads that feed an accelerator
  double ratio = 0;               // f_a / (update_interval f_l)
  double steps_per_s = 0;         // of the environment, limited by the slower side
};

// `actor_curve[x - 1]` is f_a(x), `learner_curve[x - 1]` f_l(x). On one core both sides take turns:
// the split is 0 actors and 1 learner. INVALID_ARGUMENT for an empty curve, and unless all numbers,
// the interval and the core count are finite and above 0.
Result<CoreSplit> split_cores(std::span<const double> actor_curve,
                              std::span<const double> learner_curve,
                              const CoreSplitOptions& options);

}  // namespace reverie
