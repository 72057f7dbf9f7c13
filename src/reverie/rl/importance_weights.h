// Importance weights: correct the bias of prioritised draws.
//
// Item i is drawn with probability p_i, while an unbiased mean over N items needs 1/N. A loss
// weighted by
//
//     w_i = (1 / (N p_i))^beta
//
// has the unbiased gradient at beta = 1; a smaller beta corrects less and lets rare, large errors
// change the network sooner. Learners increase it linearly from about 0.4 to 1 during training.
//
//     beta = 1, N = 4:    p = 1/2 -> w = 1/2      p = 1/4 -> w = 1      p = 1/8 -> w = 2
//     divided by the largest:       1/4                      1/2                    1
//
// Source: Schaul et al. 2016, "Prioritized Experience Replay", section 3.4.
#pragma once

#include <cstddef>
#include <span>

#include "reverie/base/status.h"

namespace reverie {

enum class WeightScale {
  kNone,          // by the formula
  kBatchMaximum,  // divided by the batch's largest: steps only get smaller
};

// Fills `weights` from `probabilities`, index by index. Relative error below 2e-7; a weight is
// clipped to [2^-126, 2^127], so that it is always a positive, finite float. Thread-safe; about 4
// ns per item.
//
// Refuses an item_count of 0, and a beta that is negative or not finite. Requires spans of the
// same length, and probabilities in (0, 1]: an item of probability 0 cannot have been drawn.
Status importance_weights(std::span<const double> probabilities, std::size_t item_count,
                          double beta, WeightScale scale, std::span<float> weights);

// The same, divided by the weight of an item of probability `least`: the largest weight of a whole
// table, not only of a batch, so that weights of different batches are comparable (as in OpenAI
// Baselines). If an item in the batch is even less likely, its weight becomes 1. Requires `least`
// in (0, 1].
Status importance_weights_over(std::span<const double> probabilities, double least, double beta,
                               std::span<float> weights);

}  // namespace reverie
