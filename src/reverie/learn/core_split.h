// Which cores act and which learn: the split whose two sides keep pace with each other.
//
//     f_a(x)   environment steps a second on x cores
//     f_l(x)   batches a second on x cores
//
//     f_a(x_a) = update_interval * f_l(x_l),    x_a + x_l <= cores
//
// No pair of whole numbers meets that exactly. All are tried: the one whose ratio of both sides is
// nearest to 1 is sought, and among those nearly as near the one that trains fastest.
//
// Source: "Parallel Actors and Learners", section V. It leaves open what is nearly as near.
#pragma once

#include <cstddef>
#include <span>

#include "reverie/base/status.h"

namespace reverie {

struct CoreSplitOptions {
  std::size_t core_count = 1;
  double update_interval = 1;  // environment steps a batch
  // Ratios this much further from 1 than the nearest count as equally near.
  double tolerance = 0.1;
  // Whether learners run on an accelerator: then all cores are for actors.
  bool learners_need_no_core = false;
};

struct CoreSplit {
  std::size_t actor_cores = 0;
  std::size_t learner_cores = 0;  // or threads that feed an accelerator
  double ratio = 0;               // f_a / (update_interval f_l)
  double steps_per_s = 0;         // of the environment: what the slower side allows
};

// `actor_curve[x - 1]` is f_a(x), `learner_curve[x - 1]` f_l(x). On one core both sides take turns:
// the split is 0 actors and 1 learner. INVALID_ARGUMENT for an empty curve, a number that is not
// finite and above 0, or an interval or core count that is not.
Result<CoreSplit> split_cores(std::span<const double> actor_curve,
                              std::span<const double> learner_curve,
                              const CoreSplitOptions& options);

}  // namespace reverie
