// A dense network: layers of weights and biases, each followed by an activation.
//
//     inputs [B, in] -> x W0 + b0 -> relu or tanh -> x W1 + b1 -> ... -> outputs [B, out]
//
// An Mlp is only the shape. Its numbers are Parameters, which the caller owns, so that any thread
// may use any version of them; an MlpPass is the memory of one thread's forward and backward
// passes.
//
//     Result<Mlp> mlp = Mlp::make({.widths = {8, 256, 256, 4}});
//     Parameters parameters = mlp->make_parameters();
//     MlpPass pass(*mlp, /*row_count_max=*/64);
//     Matrix outputs = pass.forward(parameters, inputs);       // allocates nothing
//     ... fill pass.output_gradient() ...
//     pass.backward(parameters, gradient);
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/nn/kernels.h"
#include "reverie/nn/parameters.h"

namespace reverie::nn {

// "none", "relu", "tanh". INVALID_ARGUMENT for another name.
std::string_view activation_name(Activation activation);
Result<Activation> activation_named(std::string_view name);

struct MlpSpec {
  // From the inputs to the outputs; at least two, each in [1, 2^20].
  std::vector<std::size_t> widths;
  Activation hidden = Activation::kRelu;
  Activation output = Activation::kNone;

  friend bool operator==(const MlpSpec&, const MlpSpec&) = default;
};

// A value; immutable.
class Mlp {
 public:
  // The place of one layer in the parameters.
  struct Layer {
    std::size_t inputs = 0;
    std::size_t outputs = 0;
    std::size_t stride = 0;  // of the weight; also the padded length of the bias
    std::size_t weight = 0;  // index of the first float
    std::size_t bias = 0;
    Activation activation = Activation::kNone;
  };

  // INVALID_ARGUMENT for widths out of range, or more than 2^30 floats altogether.
  static Result<Mlp> make(MlpSpec spec);

  const MlpSpec& spec() const { return spec_; }
  std::span<const Layer> layers() const { return layers_; }
  std::size_t input_width() const { return spec_.widths.front(); }
  std::size_t output_width() const { return spec_.widths.back(); }
  // The number of floats in its parameters, with padding.
  std::size_t float_count() const { return float_count_; }
  Parameters make_parameters() const { return Parameters(float_count_); }

  // The matrices of a layer, [inputs, outputs], and its bias as one row. Require parameters of
  // float_count().
  Matrix weight(std::size_t layer, std::span<float> parameters) const;
  ConstMatrix weight(std::size_t layer, std::span<const float> parameters) const;
  Matrix bias(std::size_t layer, std::span<float> parameters) const;
  ConstMatrix bias(std::size_t layer, std::span<const float> parameters) const;

  // The tensor that holds the float at `index`, for messages: "layer 2's weight".
  std::string tensor_text(std::size_t index) const;

 private:
  MlpSpec spec_;
  std::vector<Layer> layers_;
  std::size_t float_count_ = 0;
};

// Not thread-safe. Keeps a copy of the Mlp, and the activations of the last forward().
class MlpPass {
 public:
  // Allocates the memory for batches of up to `row_count_max` rows. Requires row_count_max >= 1.
  MlpPass(const Mlp& mlp, std::size_t row_count_max);

  // [B, output_width()], valid until the next call. Allocates nothing. Requires inputs of [B,
  // input_width()] with 1 <= B <= row_count_max, which must not change until backward(), and
  // parameters of the Mlp's size.
  Matrix forward(const Parameters& parameters, ConstMatrix inputs);

  // [B, output_width()] of the last forward(): the caller stores the gradient of its loss in the
  // outputs (after the output's activation) here before backward(), which changes it.
  Matrix output_gradient();

  // The gradient of the loss in the parameters; overwrites `gradient`. Requires a forward() with
  // the same parameters just before. Allocates nothing except, the first time, memory for
  // input_gradient().
  void backward(const Parameters& parameters, Parameters& gradient);
  // Only the gradient in the inputs, [B, input_width()], as an actor needs it from a critic. Valid
  // until the next call. Same requirements; call it instead of backward(), or after it with
  // output_gradient() filled again.
  Matrix input_gradient(const Parameters& parameters);

 private:
  void finish_output_gradient();
  // Computes the delta of the layer before `layer` from that of `layer`.
  void send_back(const Parameters& parameters, std::size_t layer, float* to, std::size_t to_stride,
                 bool apply_derivative);

  Mlp mlp_;
  std::size_t row_count_max_;
  std::size_t row_count_ = 0;
  ConstMatrix inputs_;
  std::vector<Parameters> outputs_;  // of each layer, [row_count_max, padded outputs]
  std::vector<Parameters> deltas_;   // gradients in the pre-activations of each layer, same shape
  Parameters transposed_;            // the weights of one layer
  Parameters input_delta_;
};

}  // namespace reverie::nn
