// Tested in parameter_server_test.cc.
#include "reverie/learn/agent.h"

#include "reverie/nn/adam.h"

namespace reverie {

std::vector<double> square_sums(const Gradients& gradients, nn::Part part) {
  std::vector<double> sums(gradients.networks.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (gradients.is_present[i] != 0) sums[i] = nn::sum_of_squares(gradients.networks[i], part);
  }
  return sums;
}

Status Agent::step(const Gradients& gradients, double progress, double step_scale) {
  REVERIE_RETURN_IF_ERROR(begin_step(gradients, square_sums(gradients), progress, step_scale));
  step_part(gradients, {});
  return {};
}

}  // namespace reverie
