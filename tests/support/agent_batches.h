// Batches for tests of agents, and the outputs of a network for them, computed without kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/learn/transition_batch.h"
#include "reverie/nn/mlp.h"

namespace reverie::test {

// Fills everything except the actions.
inline void fill_without_actions(TransitionBatch& batch, Random& random) {
  for (float& x : batch.mutable_obs()) x = static_cast<float>(2 * random.uniform() - 1);
  for (float& x : batch.mutable_next_obs()) x = static_cast<float>(2 * random.uniform() - 1);
  for (float& x : batch.rewards()) x = static_cast<float>(4 * random.uniform() - 2);
  for (float& x : batch.mutable_discounts()) x = 0.9f;
  for (float& x : batch.mutable_weights()) x = static_cast<float>(0.5 + 0.5 * random.uniform());
}

// The outputs of a network with hidden ReLU layers for one row, in double precision.
inline std::vector<double> outputs(const nn::Mlp& mlp, const nn::Parameters& parameters,
                                   std::vector<double> values) {
  for (std::size_t layer = 0; layer < mlp.layers().size(); ++layer) {
    const nn::ConstMatrix weight = mlp.weight(layer, parameters.span());
    const nn::ConstMatrix bias = mlp.bias(layer, parameters.span());
    std::vector<double> next(weight.columns);
    for (std::size_t out = 0; out < next.size(); ++out) {
      next[out] = static_cast<double>(bias(0, out));
      for (std::size_t in = 0; in < values.size(); ++in) {
        next[out] += values[in] * static_cast<double>(weight(in, out));
      }
      if (layer + 1 < mlp.layers().size()) next[out] = std::max(0.0, next[out]);
    }
    values = std::move(next);
  }
  return values;
}

}  // namespace reverie::test
