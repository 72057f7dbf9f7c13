// Tested in continuous_agents_test.cc.
#include "reverie/agents/critic_pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace reverie {

Result<nn::Mlp> make_critic(const AgentSpec& spec, const std::vector<std::size_t>& hidden) {
  nn::MlpSpec shape;
  shape.widths.push_back(spec.obs_width + spec.action_width);
  shape.widths.insert(shape.widths.end(), hidden.begin(), hidden.end());
  shape.widths.push_back(1);
  return nn::Mlp::make(std::move(shape));
}

CriticPass::CriticPass(const nn::Mlp& critic, std::size_t action_width, std::size_t batch_size)
    : obs_width_(critic.input_width() - action_width),
      action_width_(action_width),
      pass_(critic, batch_size),
      inputs_(batch_size * critic.input_width()),
      values_(batch_size) {}

std::span<const float> CriticPass::values(const nn::Parameters& critic, nn::ConstMatrix obs,
                                          std::span<const float> actions) {
  const std::size_t width = obs_width_ + action_width_;
  for (std::size_t row = 0; row < obs.rows; ++row) {
    float* const to = inputs_.data() + row * width;
    std::copy_n(obs.row(row), obs_width_, to);
    std::copy_n(actions.data() + row * action_width_, action_width_, to + obs_width_);
  }
  const nn::Matrix outputs = pass_.forward(critic, {inputs_.data(), obs.rows, width, width});
  for (std::size_t row = 0; row < obs.rows; ++row) values_[row] = outputs(row, 0);
  return std::span(values_).first(obs.rows);
}

void CriticPass::put(std::span<const float> derivatives) {
  const nn::Matrix gradient = pass_.output_gradient();
  for (std::size_t row = 0; row < gradient.rows; ++row) gradient(row, 0) = derivatives[row];
}

void CriticPass::backward(const nn::Parameters& critic, std::span<const float> derivatives,
                          nn::Parameters& gradient) {
  put(derivatives);
  pass_.backward(critic, gradient);
}

void CriticPass::add_action_gradient(const nn::Parameters& critic,
                                     std::span<const float> derivatives,
                                     std::span<float> gradient) {
  put(derivatives);
  const nn::Matrix inputs = pass_.input_gradient(critic);
  for (std::size_t row = 0; row < inputs.rows; ++row) {
    for (std::size_t i = 0; i < action_width_; ++i) {
      gradient[row * action_width_ + i] += inputs(row, obs_width_ + i);
    }
  }
}

double regress(std::span<const float> values, std::span<const float> targets,
               std::span<const float> weights, float huber_delta, float share,
               std::span<float> derivatives, std::span<float> td_errors) {
  double loss = 0;
  const float part = 1.0f / static_cast<float>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float error = values[i] - targets[i];
    const float size = std::abs(error);
    const bool is_small = size <= huber_delta;
    const float huber = is_small ? 0.5f * error * error : huber_delta * (size - 0.5f * huber_delta);
    loss += static_cast<double>(weights[i] * huber * part);
    // NaN is passed on: the bound must not hide it.
    const float slope = size > huber_delta ? std::copysign(huber_delta, error) : error;
    derivatives[i] = weights[i] * slope * part;
    td_errors[i] += share * size;
  }
  return loss;
}

}  // namespace reverie
