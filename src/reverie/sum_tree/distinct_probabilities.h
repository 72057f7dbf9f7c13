// How likely the items of a batch drawn without replacement were to be in it.
//
// Each draw takes an item in proportion to its weight among those that are left. The probability of
// the draw itself says little: of eight equal items the last of four drawn had 1/5, the first 1/8,
// and all were in the batch with 1/2. An average must divide by the latter. It has no closed form,
// so each item gets what makes averages right instead (Murthy's estimator): with S the set that was
// drawn, whatever its order,
//
//     q_i = P(S) / P(S, where i was the first draw),     mean over S of [i in S] / q_i = 1
//
// For equal weights, for a single draw and for a whole table, q_i is the probability to be in S,
// exactly. Else it is that probability given the others, and a sum over the batch of f_i / q_i has
// the mean that a sum of f_i over the table has. With p_i the shares of the weight, and R the share
// of what was not drawn, both probabilities are integrals over one variable (items as Poisson
// processes, R at rest until t), so that
//
//     1 / q_i = mean of 1 / (1 - exp(-p_i t))
//               over t with density ~ exp(-R t) prod (1 - exp(-p_j t))
//
// Source: Murthy 1957, "Ordered and unordered estimators in sampling without replacement"; Kool et
// al. 2020, "Estimating Gradients for Discrete Random Variables by Sampling without Replacement".
#pragma once

#include <cstddef>
#include <span>

namespace reverie {

// Turns the probabilities of the draws of a Selector::draw_distinct() into those of a single draw:
// p_k = c_k (1 - c_1) ... (1 - c_(k-1)). Items that were drawn only because nothing else was left
// have 0, those of a deterministic selector 1. `share`: that of the items in the draw among all, if
// earlier draws have removed some; ignored if nothing is left.
void to_single_draw(std::span<double> probabilities, double share = 1);

// From there to q_i / n, for a batch of n from a table of `table_size` items: what one of n draws
// with replacement would need, so that "1 / (N p)" means the same in both. Relative error below
// 1e-5. About 0.3 us per item. `least` (not drawn; the smallest probability of a single draw in the
// table) becomes the value that such an item would have got; may be null.
void to_inclusion(std::span<double> probabilities, std::size_t table_size, double* least);

}  // namespace reverie
