// Binds the learning rules. Shapes are checked by reverie/rl.py, which is the only caller.
#include <cstdint>
#include <span>
#include <tuple>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "reverie/rl/action_noise.h"
#include "reverie/rl/advantages.h"
#include "reverie/rl/categorical_projection.h"
#include "reverie/rl/clipped_double_q.h"
#include "reverie/rl/exploration.h"
#include "reverie/rl/huber.h"
#include "reverie/rl/importance_weights.h"
#include "reverie/rl/n_step_return.h"
#include "reverie/rl/q_target.h"
#include "reverie/rl/squashed_gaussian.h"
#include "reverie/rl/td_target.h"
#include "reverie/rl/v_trace.h"

namespace reverie::python {
namespace {

template <typename T>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
using In = Array<const float>;
using Out = Array<float>;

template <typename T>
std::span<T> span(const Array<T>& array) {
  return {array.data(), array.size()};
}

Rollout rollout(const In& rewards, const In& discounts, const In& values, const In& next_values,
                const Array<const std::uint8_t>& ends) {
  return {span(rewards),     span(discounts), span(values),
          span(next_values), span(ends),      rewards.shape(1)};
}

void bind_targets(nb::module_& m) {
  m.def("rl_td_targets", [](In rewards, In discounts, In next_values, Out targets) {
    td_targets(span(rewards), span(discounts), span(next_values), span(targets));
  });
  m.def("rl_n_step_returns", [](In rewards, In discounts, In bootstrap, Out returns) {
    n_step_returns(span(rewards), span(discounts), span(bootstrap), span(returns));
  });
  m.def("rl_double_q_targets", [](In rewards, In discounts, In online, In target, Out targets) {
    double_q_targets(span(rewards), span(discounts), span(online), span(target), span(targets));
  });
  m.def("rl_soft_double_q_targets", [](In rewards, In discounts, In first, In second,
                                       In log_probabilities, double temperature, Out targets) {
    soft_double_q_targets(span(rewards), span(discounts), span(first), span(second),
                          span(log_probabilities), static_cast<float>(temperature), span(targets));
  });
  m.def("rl_categorical_projection", [](In rewards, In discounts, In probabilities,
                                        double value_min, double value_max, Out projected) {
    unwrap(categorical_projection(span(rewards), span(discounts), span(probabilities),
                                  static_cast<float>(value_min), static_cast<float>(value_max),
                                  span(projected)));
  });
  m.def("rl_importance_weights", [](Array<const double> probabilities, std::uint64_t item_count,
                                    double beta, bool by_maximum, Out weights) {
    unwrap(importance_weights(span(probabilities), item_count, beta,
                              by_maximum ? WeightScale::kBatchMaximum : WeightScale::kNone,
                              span(weights)));
  });
}

void bind_trajectories(nb::module_& m) {
  m.def("rl_generalized_advantages",
        [](In rewards, In discounts, In values, In next_values, Array<const std::uint8_t> ends,
           double lambda, Out advantages) {
          unwrap(generalized_advantages(rollout(rewards, discounts, values, next_values, ends),
                                        static_cast<float>(lambda), span(advantages)));
        });
  m.def("rl_v_trace",
        [](In rewards, In discounts, In values, In next_values, Array<const std::uint8_t> ends,
           In ratios, std::tuple<float, float, float> options, Out targets, Out advantages) {
          const auto [lambda, rho_max, advantage_rho_max] = options;
          unwrap(v_trace(rollout(rewards, discounts, values, next_values, ends), span(ratios),
                         {lambda, rho_max, advantage_rho_max}, span(targets), span(advantages)));
        });
}

void bind_losses(nb::module_& m) {
  m.def("rl_huber_losses", [](In errors, double delta, Out losses) {
    unwrap(huber_losses(span(errors), static_cast<float>(delta), span(losses)));
  });
  m.def("rl_huber_derivatives", [](In errors, double delta, Out derivatives) {
    unwrap(huber_derivatives(span(errors), static_cast<float>(delta), span(derivatives)));
  });
  m.def("rl_squashed_gaussian",
        [](In mean, In log_std, In noise, Out actions, Out log_probabilities) {
          squashed_gaussian(span(mean), span(log_std), span(noise), span(actions),
                            span(log_probabilities));
        });
  m.def("rl_squashed_gaussian_log_probabilities",
        [](In mean, In log_std, In actions, Out log_probabilities) {
          squashed_gaussian_log_probabilities(span(mean), span(log_std), span(actions),
                                              span(log_probabilities));
        });
  m.def("rl_squashed_gaussian_gradient",
        [](In log_std, In noise, In actions, In action_gradient, In log_probability_gradient,
           Out mean_gradient, Out log_std_gradient) {
          squashed_gaussian_gradient(span(log_std), span(noise), span(actions),
                                     span(action_gradient), span(log_probability_gradient),
                                     span(mean_gradient), span(log_std_gradient));
        });
}

void bind_exploration(nb::module_& m) {
  m.def("rl_epsilon_at", [](std::uint64_t step, double first, double last, std::uint64_t step_count,
                            bool is_exponential) {
    const EpsilonSchedule schedule{first, last, step_count,
                                   is_exponential ? Decay::kExponential : Decay::kLinear};
    unwrap(check_schedule(schedule));
    return epsilon_at(schedule, step);
  });
  m.def("rl_actor_epsilon", &actor_epsilon);
  m.def("rl_epsilon_greedy", [](In values, double epsilon, Array<const double> explore,
                                Array<const double> choice, Array<std::int32_t> actions) {
    epsilon_greedy(span(values), epsilon, span(explore), span(choice), span(actions));
  });
  m.def("rl_add_gaussian_noise",
        [](In actions, In normals, double sigma, double noise_max, In low, In high, Out noisy) {
          const GaussianNoise noise{static_cast<float>(sigma), static_cast<float>(noise_max)};
          unwrap(add_gaussian_noise(span(actions), span(normals), noise, span(low), span(high),
                                    span(noisy)));
        });
  m.def("rl_ornstein_uhlenbeck_step",
        [](std::tuple<float, float, float, float> options, In normals, Out state) {
          const auto [theta, sigma, dt, mean] = options;
          unwrap(ornstein_uhlenbeck_step({theta, sigma, dt, mean}, span(normals), span(state)));
        });
}

}  // namespace

void bind_rl(nb::module_& m) {
  bind_targets(m);
  bind_trajectories(m);
  bind_losses(m);
  bind_exploration(m);
}

}  // namespace reverie::python
