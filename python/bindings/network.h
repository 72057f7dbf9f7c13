// A dense network, its parameters and the memory of its passes, as one object for Python.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "python/bindings/one_call.h"
#include "reverie/base/status.h"
#include "reverie/nn/mlp.h"

namespace reverie::python {

// Only one call at a time, enforced by InUse(calls).
class Network {
 public:
  Network(nn::Mlp mlp, nn::Parameters parameters)
      : mlp_(std::move(mlp)), parameters_(std::move(parameters)) {}

  const nn::Mlp& mlp() const { return mlp_; }
  nn::Parameters& parameters() { return parameters_; }
  const nn::Parameters& parameters() const { return parameters_; }
  Network copy() const { return {mlp_, parameters_.copy()}; }
  OneCallAtATime& calls() { return calls_; }

  // Outputs of [rows, output_width] without padding. With `keeps`, backward() can follow: the
  // inputs are copied. Requires inputs of [rows, input_width], rows >= 1.
  void forward(std::span<const float> inputs, std::size_t rows, bool keeps,
               std::span<float> outputs);

  // The gradient in the parameters, or in the inputs, of a loss whose gradient in the outputs is
  // given. FAILED_PRECONDITION without a forward() that keeps; INVALID_ARGUMENT if the number of
  // elements differs from its outputs'.
  Result<nn::Parameters> backward(std::span<const float> output_gradient);
  Status input_gradient(std::span<const float> output_gradient, std::span<float> gradient);
  // Rows of the last forward() that keeps; 0 if there was none.
  std::size_t kept_rows() const { return kept_rows_; }

 private:
  Status take_gradient(std::span<const float> output_gradient);

  nn::Mlp mlp_;
  nn::Parameters parameters_;
  std::unique_ptr<nn::MlpPass> pass_;
  std::size_t pass_rows_ = 0;
  std::size_t kept_rows_ = 0;
  std::vector<float> kept_inputs_;
  OneCallAtATime calls_{"network"};
};

}  // namespace reverie::python
