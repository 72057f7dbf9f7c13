// What a prioritised draw owes to the expectation it distorts.
//
// Item i is drawn with probability p_i where an unbiased mean over N items wants 1/N. A loss
// weighed by
//
//     w_i = (1 / (N p_i))^beta
//
// has the unbiased gradient at beta = 1; a smaller beta corrects less and lets rare, large
// errors move the weights sooner. Learners go linearly from about 0.4 to 1 over their training.
//
//     beta = 1, N = 4:    p = 1/2 -> w = 1/2      p = 1/4 -> w = 1      p = 1/8 -> w = 2
//     by the largest:               1/4                      1/2                    1
//
// Source: Schaul et al. 2016, "Prioritized Experience Replay", section 3.4.
#pragma once

#include <cstddef>
#include <span>

#include "reverie/base/status.h"

namespace reverie {

enum class WeightScale {
  kNone,          // as the formula says
  kBatchMaximum,  // divided by the largest of the batch: steps only ever get smaller
};

// Fills `weights` from `probabilities`, index by index. Relative error below 2e-7; a weight
// is held within [2^-126, 2^127], so that it is always a positive, finite float. Thread-safe; about
// 4 ns an item.
//
// Refuses an item_count of 0, and a beta that is negative or not finite. Requires spans of the
// same length, and probabilities in (0, 1]: an item of probability 0 cannot have been drawn.
Status importance_weights(std::span<const double> probabilities, std::size_t item_count,
                          double beta, WeightScale scale, std::span<float> weights);

// The same divided by the weight that an item of probability `least` has: the largest of a whole
// table, not only of a batch, so that a weight is comparable from batch to batch (as OpenAI
// Baselines has it). Where an item is less likely yet, that one has weight 1. Requires
// `least` in (0, 1].
Status importance_weights_over(std::span<const double> probabilities, double least, double beta,
                               std::span<float> weights);

}  // namespace reverie
