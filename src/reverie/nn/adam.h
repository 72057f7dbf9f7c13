// Adam over the flat parameters of a network, and clipping of gradients.
//
//     m = b1 m + (1 - b1) g        v = b2 v + (1 - b2) g^2
//     w = w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
//
// Source: Kingma & Ba 2015, algorithm 1; the same numbers as torch.optim.Adam within rounding.
#pragma once

#include <cstdint>

#include "reverie/base/status.h"
#include "reverie/nn/kernels.h"
#include "reverie/nn/mlp.h"
#include "reverie/nn/parameters.h"

namespace reverie::nn {

struct AdamOptions {
  double learning_rate = 1e-3;  // in [1e-30, 1e30]
  double mean_decay = 0.9;      // b1, in [0, 1)
  double square_decay = 0.999;  // b2, in [0, 1)
  double epsilon = 1e-8;        // in [1e-30, 1e30]
};

// Not thread-safe. Holds the moments of one network.
class Adam {
 public:
  // INVALID_ARGUMENT for options out of range.
  static Result<Adam> make(const Mlp& mlp, const AdamOptions& options);

  // One step against `gradient`, which is multiplied by `gradient_scale` first. Allocates nothing.
  // Requires vectors of the network's size.
  void step(const Parameters& gradient, float gradient_scale, Parameters& parameters) {
    begin_step(gradient_scale);
    step_part(gradient, {}, parameters);
  }
  // The same by parts: begin_step(), then each part once, by any threads.
  void begin_step(float gradient_scale);
  void step_part(const Parameters& gradient, Part part, Parameters& parameters);

  const AdamOptions& options() const { return options_; }
  // INVALID_ARGUMENT unless it is above 0 and at most 1e30. A schedule may take it below the least
  // of the options.
  Status set_learning_rate(double learning_rate);

  // The state, for checkpoints: both moments and the number of steps so far.
  const Parameters& mean() const { return mean_; }
  const Parameters& square() const { return square_; }
  std::uint64_t step_count() const { return step_count_; }
  // Requires moments of the network's size.
  void restore(const Parameters& mean, const Parameters& square, std::uint64_t step_count);

 private:
  Adam(std::size_t float_count, const AdamOptions& options);

  AdamOptions options_;
  Parameters mean_;
  Parameters square_;
  std::uint64_t step_count_ = 0;
  AdamStep step_;  // the numbers of the step under way
};

// The Euclidean norm of a gradient. INVALID_ARGUMENT when an element is NaN or infinite, naming the
// layer: no step must be taken with it. Requires a gradient of the network's size.
Result<double> gradient_norm(const Mlp& mlp, const Parameters& gradient);
// The same where the sum of its squares is known, which is NaN or infinite if an element is.
Result<double> gradient_norm(const Mlp& mlp, const Parameters& gradient, double square_sum);
// The sum of the squares of a part.
double sum_of_squares(const Parameters& gradient, Part part = {});

// The scale that shortens a gradient of norm `norm` to `norm_max`: 1 for a shorter one. Requires
// norm_max > 0. Source: Pascanu et al. 2013, algorithm 1, as in torch.nn.utils.clip_grad_norm_.
double clip_scale(double norm, double norm_max);

}  // namespace reverie::nn
