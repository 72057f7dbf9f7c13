// The peer in gradient_step_bench: one double-DQN step written with Eigen.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <Eigen/Dense>

namespace reverie {

class EigenLearner {
 public:
  explicit EigenLearner(int hidden)
      : online_(hidden), target_(hidden), gradient_(hidden), mean_(online_.flat), square_(mean_) {
    mean_.setZero();
    square_.setZero();
  }

  void step(const float* obs, const float* next_obs, const float* rewards, const float* discounts,
            const std::size_t* actions) {
    const Rows inputs(obs, kBatch, kInputs);
    const Rows next_inputs(next_obs, kBatch, kInputs);
    forward(online_, next_inputs, next_first_, next_second_, chosen_);
    forward(target_, next_inputs, next_first_, next_second_, valued_);
    forward(online_, inputs, first_, second_, values_);
    output_gradient_.setZero(kBatch, kActions);
    for (int i = 0; i < kBatch; ++i) {
      int best = 0;
      chosen_.row(i).maxCoeff(&best);
      const auto action = static_cast<int>(actions[i]);
      const float error = values_(i, action) - (rewards[i] + discounts[i] * valued_(i, best));
      output_gradient_(i, action) = std::clamp(error, -1.0f, 1.0f) / kBatch;
    }
    backward(inputs);
    adam();
  }

 private:
  static constexpr int kBatch = 64;
  static constexpr int kInputs = 8;
  static constexpr int kActions = 4;
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Rows = Eigen::Map<const Matrix>;

  // All parameters are in one array, as in ours.
  struct Network {
    explicit Network(int hidden) {
      const int widths[] = {kInputs, hidden, hidden, kActions};
      int count = 0;
      for (int i = 0; i < 3; ++i) count += (widths[i] + 1) * widths[i + 1];
      flat = 0.05f * Eigen::ArrayXf::Random(count);
      float* at = flat.data();
      for (int i = 0; i < 3; ++i) {
        weights.emplace_back(at, widths[i], widths[i + 1]);
        at += widths[i] * widths[i + 1];
        biases.emplace_back(at, widths[i + 1]);
        at += widths[i + 1];
      }
    }
    Eigen::ArrayXf flat;
    std::vector<Eigen::Map<Matrix>> weights;
    std::vector<Eigen::Map<Eigen::RowVectorXf>> biases;
  };

  static void forward(const Network& net, const Rows& inputs, Matrix& first, Matrix& second,
                      Matrix& outputs) {
    first.noalias() = inputs * net.weights[0];
    first = (first.rowwise() + net.biases[0]).cwiseMax(0.0f);
    second.noalias() = first * net.weights[1];
    second = (second.rowwise() + net.biases[1]).cwiseMax(0.0f);
    outputs.noalias() = second * net.weights[2];
    outputs.rowwise() += net.biases[2];
  }

  void backward(const Rows& inputs) {
    gradient_.weights[2].noalias() = second_.transpose() * output_gradient_;
    gradient_.biases[2] = output_gradient_.colwise().sum();
    second_delta_.noalias() = output_gradient_ * online_.weights[2].transpose();
    second_delta_ = (second_.array() > 0.0f).select(second_delta_, 0.0f);
    gradient_.weights[1].noalias() = first_.transpose() * second_delta_;
    gradient_.biases[1] = second_delta_.colwise().sum();
    first_delta_.noalias() = second_delta_ * online_.weights[1].transpose();
    first_delta_ = (first_.array() > 0.0f).select(first_delta_, 0.0f);
    gradient_.weights[0].noalias() = inputs.transpose() * first_delta_;
    gradient_.biases[0] = first_delta_.colwise().sum();
  }

  void adam() {
    ++step_count_;
    const float correction = std::sqrt(1.0f - std::pow(0.999f, step_count_));
    const float step_size = 5e-4f * correction / (1.0f - std::pow(0.9f, step_count_));
    mean_ = mean_ * 0.9f + gradient_.flat * 0.1f;
    square_ = square_ * 0.999f + gradient_.flat.square() * 0.001f;
    online_.flat -= step_size * mean_ / (square_.sqrt() + 1e-8f * correction);
  }

  Network online_;
  Network target_;
  Network gradient_;
  Eigen::ArrayXf mean_;
  Eigen::ArrayXf square_;
  float step_count_ = 0;
  Matrix first_, second_, values_, next_first_, next_second_, chosen_, valued_;
  Matrix first_delta_, second_delta_, output_gradient_;
};

}  // namespace reverie
