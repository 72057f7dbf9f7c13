#include "python/bindings/network.h"

#include <algorithm>
#include <cstring>

namespace reverie::python {

void Network::forward(std::span<const float> inputs, std::size_t rows, bool keeps,
                      std::span<float> outputs) {
  const std::size_t width = mlp_.input_width();
  if (pass_ == nullptr || rows > pass_rows_) {
    pass_ = std::make_unique<nn::MlpPass>(mlp_, rows);
    pass_rows_ = rows;
  }
  kept_rows_ = 0;
  if (keeps) {
    kept_inputs_.assign(inputs.begin(), inputs.end());
    inputs = kept_inputs_;
  }
  const nn::Matrix result = pass_->forward(parameters_, {inputs.data(), rows, width, width});
  if (keeps) kept_rows_ = rows;
  for (std::size_t r = 0; r < rows; ++r) {
    std::memcpy(outputs.data() + r * result.columns, result.row(r), result.columns * sizeof(float));
  }
}

Status Network::take_gradient(std::span<const float> output_gradient) {
  if (kept_rows_ == 0) {
    return failed_precondition("there is no forward pass to differentiate; call forward() first");
  }
  const nn::Matrix gradient = pass_->output_gradient();
  if (output_gradient.size() != gradient.rows * gradient.columns) {
    return invalid_argument(
        "output_gradient has {} elements; it must have those of the outputs, [{}, {}]",
        output_gradient.size(), gradient.rows, gradient.columns);
  }
  for (std::size_t r = 0; r < gradient.rows; ++r) {
    std::copy_n(output_gradient.data() + r * gradient.columns, gradient.columns, gradient.row(r));
  }
  return {};
}

Result<nn::Parameters> Network::backward(std::span<const float> output_gradient) {
  REVERIE_RETURN_IF_ERROR(take_gradient(output_gradient));
  nn::Parameters gradient = mlp_.make_parameters();
  pass_->backward(parameters_, gradient);
  return gradient;
}

Status Network::input_gradient(std::span<const float> output_gradient, std::span<float> gradient) {
  REVERIE_RETURN_IF_ERROR(take_gradient(output_gradient));
  const nn::Matrix result = pass_->input_gradient(parameters_);
  if (gradient.size() != result.rows * result.columns) {
    return failed_precondition("another forward() came between this one and its gradient");
  }
  for (std::size_t r = 0; r < result.rows; ++r) {
    std::copy_n(result.row(r), result.columns, gradient.data() + r * result.columns);
  }
  return {};
}

}  // namespace reverie::python
