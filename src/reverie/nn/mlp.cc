#include "reverie/nn/mlp.h"

#include <algorithm>
#include <utility>

#include "reverie/nn/flush_denormals.h"

namespace reverie::nn {
namespace {

constexpr std::size_t kWidthMax = std::size_t{1} << 20;
constexpr std::size_t kFloatCountMax = std::size_t{1} << 30;

template <typename Float>
MatrixOf<Float> weight_of(const Mlp::Layer& layer, Float* parameters) {
  return {parameters + layer.weight, layer.inputs, layer.outputs, layer.stride};
}

template <typename Float>
MatrixOf<Float> bias_of(const Mlp::Layer& layer, Float* parameters) {
  return {parameters + layer.bias, 1, layer.outputs, layer.stride};
}

// Multiplies by the derivative of the activation that gave `outputs`.
void apply_derivative(Activation activation, ConstMatrix outputs, Matrix gradient) {
  if (activation == Activation::kNone) return;
  for (std::size_t r = 0; r < gradient.rows; ++r) {
    for (std::size_t c = 0; c < gradient.columns; ++c) {
      const float y = outputs(r, c);
      const float derivative =
          activation == Activation::kTanh ? 1.0f - y * y : (y > 0.0f ? 1.0f : 0.0f);
      gradient(r, c) *= derivative;
    }
  }
}

}  // namespace

std::string_view activation_name(Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return "relu";
    case Activation::kTanh:
      return "tanh";
    case Activation::kNone:
      break;
  }
  return "none";
}

Result<Activation> activation_named(std::string_view name) {
  for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kTanh}) {
    if (name == activation_name(activation)) return activation;
  }
  return invalid_argument("activation is '{}'; it must be 'none', 'relu' or 'tanh'", name);
}

Result<Mlp> Mlp::make(MlpSpec spec) {
  if (spec.widths.size() < 2) {
    return invalid_argument("widths has {} entries; a network needs at least 2, inputs and outputs",
                            spec.widths.size());
  }
  for (std::size_t i = 0; i < spec.widths.size(); ++i) {
    if (spec.widths[i] < 1 || spec.widths[i] > kWidthMax) {
      return invalid_argument("widths[{}] is {}; it must be between 1 and {}", i, spec.widths[i],
                              kWidthMax);
    }
  }
  Mlp mlp;
  for (std::size_t i = 0; i + 1 < spec.widths.size(); ++i) {
    Layer layer;
    layer.inputs = spec.widths[i];
    layer.outputs = spec.widths[i + 1];
    layer.stride = padded(layer.outputs);
    layer.weight = mlp.float_count_;
    layer.bias = layer.weight + layer.inputs * layer.stride;
    layer.activation = i + 2 == spec.widths.size() ? spec.output : spec.hidden;
    mlp.float_count_ = layer.bias + layer.stride;
    mlp.layers_.push_back(layer);
    if (mlp.float_count_ > kFloatCountMax) {
      return invalid_argument(
          "widths make more than {} parameters up to layer {}; choose smaller ones", kFloatCountMax,
          i);
    }
  }
  mlp.spec_ = std::move(spec);
  return mlp;
}

Matrix Mlp::weight(std::size_t layer, std::span<float> parameters) const {
  REVERIE_CHECK(parameters.size() == float_count_ && layer < layers_.size());
  return weight_of(layers_[layer], parameters.data());
}
ConstMatrix Mlp::weight(std::size_t layer, std::span<const float> parameters) const {
  REVERIE_CHECK(parameters.size() == float_count_ && layer < layers_.size());
  return weight_of(layers_[layer], parameters.data());
}
Matrix Mlp::bias(std::size_t layer, std::span<float> parameters) const {
  REVERIE_CHECK(parameters.size() == float_count_ && layer < layers_.size());
  return bias_of(layers_[layer], parameters.data());
}
ConstMatrix Mlp::bias(std::size_t layer, std::span<const float> parameters) const {
  REVERIE_CHECK(parameters.size() == float_count_ && layer < layers_.size());
  return bias_of(layers_[layer], parameters.data());
}

std::string Mlp::tensor_text(std::size_t index) const {
  std::size_t found = layers_.size();
  while (found > 1 && layers_[found - 1].weight > index) --found;
  return format("the {} of layer {}", index < layers_[found - 1].bias ? "weight" : "bias",
                found - 1);
}

MlpPass::MlpPass(const Mlp& mlp, std::size_t row_count_max)
    : mlp_(mlp), row_count_max_(row_count_max) {
  REVERIE_CHECK(row_count_max >= 1);
  std::size_t transposed = 0;
  for (const Mlp::Layer& layer : mlp_.layers()) {
    outputs_.emplace_back(row_count_max * layer.stride);
    deltas_.emplace_back(row_count_max * layer.stride);
    transposed = std::max(transposed, layer.stride * padded(layer.inputs));
  }
  transposed_ = Parameters(transposed);
}

Matrix MlpPass::forward(const Parameters& parameters, ConstMatrix inputs) {
  REVERIE_CHECK(parameters.float_count() == mlp_.float_count());
  REVERIE_CHECK(inputs.columns == mlp_.input_width());
  REVERIE_CHECK(inputs.rows >= 1 && inputs.rows <= row_count_max_);
  const FlushDenormals flush;
  inputs_ = inputs;
  row_count_ = inputs.rows;
  Product product;
  product.a = inputs.data;
  product.a_row = inputs.stride;
  product.rows = inputs.rows;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Mlp::Layer& layer = mlp_.layers()[i];
    product.b = parameters.data() + layer.weight;
    product.bias = parameters.data() + layer.bias;
    product.c = outputs_[i].data();
    product.b_stride = product.c_stride = product.columns = layer.stride;
    product.depth = layer.inputs;
    product.activation = layer.activation;
    kernels().multiply(product);
    product.a = product.c;
    product.a_row = layer.stride;
  }
  return {outputs_.back().data(), row_count_, mlp_.output_width(), mlp_.layers().back().stride};
}

Matrix MlpPass::output_gradient() {
  return {deltas_.back().data(), row_count_, mlp_.output_width(), mlp_.layers().back().stride};
}

void MlpPass::finish_output_gradient() {
  const Mlp::Layer& last = mlp_.layers().back();
  apply_derivative(last.activation, {outputs_.back().data(), row_count_, last.outputs, last.stride},
                   output_gradient());
}

void MlpPass::send_back(const Parameters& parameters, std::size_t index, float* to,
                        std::size_t to_stride, bool apply_derivative) {
  const Mlp::Layer& layer = mlp_.layers()[index];
  // A block that ends in the padding of the inputs would read beyond the weight, from the bias or
  // the next layer: so the last rows are transposed one by one.
  const std::size_t stride = padded(layer.inputs);
  const std::size_t whole = layer.inputs / kPad * kPad;
  const float* weight = parameters.data() + layer.weight;
  if (whole > 0) {
    kernels().transpose(weight, layer.stride, whole, layer.stride, transposed_.data(), stride);
  }
  for (std::size_t c = 0; c < layer.outputs; ++c) {
    float* row = transposed_.data() + c * stride;
    for (std::size_t r = whole; r < stride; ++r) {
      row[r] = r < layer.inputs ? weight[r * layer.stride + c] : 0.0f;
    }
  }
  Product product;
  product.a = deltas_[index].data();
  product.a_row = layer.stride;
  product.b = transposed_.data();
  product.b_stride = stride;
  product.c = to;
  product.c_stride = to_stride;
  product.rows = row_count_;
  product.columns = stride;
  product.depth = layer.outputs;
  if (apply_derivative) {
    product.activation = mlp_.layers()[index - 1].activation;
    product.outputs = outputs_[index - 1].data();
  }
  kernels().multiply(product);
}

void MlpPass::backward(const Parameters& parameters, Parameters& gradient) {
  REVERIE_CHECK(row_count_ >= 1);
  REVERIE_CHECK(parameters.float_count() == mlp_.float_count());
  REVERIE_CHECK(gradient.float_count() == mlp_.float_count());
  const FlushDenormals flush;
  finish_output_gradient();
  for (std::size_t i = outputs_.size(); i-- > 0;) {
    const Mlp::Layer& layer = mlp_.layers()[i];
    const float* delta = deltas_[i].data();
    Product product;
    product.a = i == 0 ? inputs_.data : outputs_[i - 1].data();
    product.a_row = 1;
    product.a_depth = i == 0 ? inputs_.stride : mlp_.layers()[i - 1].stride;
    product.b = delta;
    product.c = gradient.data() + layer.weight;
    product.b_stride = product.c_stride = product.columns = layer.stride;
    product.rows = layer.inputs;
    product.depth = row_count_;
    kernels().multiply(product);
    kernels().sum_rows(delta, layer.stride, row_count_, layer.stride, gradient.data() + layer.bias);
    if (i > 0) {
      send_back(parameters, i, deltas_[i - 1].data(), mlp_.layers()[i - 1].stride, true);
    }
  }
}

Matrix MlpPass::input_gradient(const Parameters& parameters) {
  REVERIE_CHECK(row_count_ >= 1);
  REVERIE_CHECK(parameters.float_count() == mlp_.float_count());
  const std::size_t stride = padded(mlp_.input_width());
  if (input_delta_.float_count() == 0) input_delta_ = Parameters(row_count_max_ * stride);
  const FlushDenormals flush;
  finish_output_gradient();
  for (std::size_t i = outputs_.size(); i-- > 1;) {
    send_back(parameters, i, deltas_[i - 1].data(), mlp_.layers()[i - 1].stride, true);
  }
  send_back(parameters, 0, input_delta_.data(), stride, false);
  return {input_delta_.data(), row_count_, mlp_.input_width(), stride};
}

}  // namespace reverie::nn
