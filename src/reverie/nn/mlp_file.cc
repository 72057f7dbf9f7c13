#include "reverie/nn/mlp_file.h"

#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/nn/file.h"

namespace reverie::nn {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{5} << 30;  // 2^30 floats and a header

// PyTorch's weight is the transpose of ours.
NamedTensor transposed(std::string name, ConstMatrix weight) {
  NamedTensor tensor{std::move(name), {weight.columns, weight.rows}, {}};
  tensor.values.reserve(weight.rows * weight.columns);
  for (std::size_t c = 0; c < weight.columns; ++c) {
    for (std::size_t r = 0; r < weight.rows; ++r) tensor.values.push_back(weight(r, c));
  }
  return tensor;
}

// One layer of a file: the tensors "<number>.weight" and "<number>.bias".
struct FileLayer {
  const NamedTensor* weight = nullptr;
  const NamedTensor* bias = nullptr;
};

Result<std::vector<FileLayer>> layers_of(const SafeTensors& tensors) {
  std::map<std::uint32_t, FileLayer> by_number;
  for (const NamedTensor& tensor : tensors.tensors) {
    const std::string_view name = tensor.name;
    std::uint32_t number = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
    const std::string_view rest = name.substr(static_cast<std::size_t>(parsed.ptr - name.data()));
    const bool is_weight = rest == ".weight";
    if (parsed.ec != std::errc() || (!is_weight && rest != ".bias")) {
      return data_loss("tensor '{}' belongs to no dense layer, which has '0.weight' and '0.bias'",
                       tensor.name);
    }
    if (tensor.shape.size() != (is_weight ? 2u : 1u)) {
      return data_loss("tensor '{}' has {} dimensions, not {}", tensor.name, tensor.shape.size(),
                       is_weight ? 2 : 1);
    }
    FileLayer& layer = by_number[number];
    (is_weight ? layer.weight : layer.bias) = &tensor;
  }
  std::vector<FileLayer> layers;
  for (const auto& [number, layer] : by_number) {
    if (layer.weight == nullptr || layer.bias == nullptr) {
      return data_loss("layer {} has no {}", number, layer.weight == nullptr ? "weight" : "bias");
    }
    if (layer.bias->shape[0] != layer.weight->shape[0]) {
      return data_loss("layer {} has {} outputs by its weight and {} by its bias", number,
                       layer.weight->shape[0], layer.bias->shape[0]);
    }
    if (!layers.empty() && layers.back().weight->shape[0] != layer.weight->shape[1]) {
      return data_loss("layer {} has {} inputs after {} outputs", number, layer.weight->shape[1],
                       layers.back().weight->shape[0]);
    }
    layers.push_back(layer);
  }
  if (layers.empty()) return data_loss("there are no layers");
  return layers;
}

Result<Activation> activation_of(const SafeTensors& tensors, const std::string& key,
                                 std::optional<Activation> given) {
  const auto stored = tensors.metadata.find(key);
  if (stored == tensors.metadata.end()) {
    if (given) return *given;
    return invalid_argument("the file does not name its {} activation; give it as an argument",
                            key);
  }
  REVERIE_ASSIGN_OR_RETURN(const Activation activation, activation_named(stored->second));
  if (given && *given != activation) {
    return invalid_argument("the {} activation is '{}', and '{}' in the file; leave it out", key,
                            activation_name(*given), stored->second);
  }
  return activation;
}

}  // namespace

SafeTensors mlp_to_tensors(const Mlp& mlp, const Parameters& parameters,
                           std::map<std::string, std::string> metadata) {
  SafeTensors tensors;
  tensors.metadata = std::move(metadata);
  tensors.metadata["hidden"] = activation_name(mlp.spec().hidden);
  tensors.metadata["output"] = activation_name(mlp.spec().output);
  tensors.metadata["format"] = "pt";
  const std::size_t modules = mlp.spec().hidden == Activation::kNone ? 1 : 2;
  for (std::size_t i = 0; i < mlp.layers().size(); ++i) {
    const ConstMatrix bias = mlp.bias(i, parameters.span());
    tensors.tensors.push_back(
        transposed(format("{}.weight", modules * i), mlp.weight(i, parameters.span())));
    tensors.tensors.push_back(
        {format("{}.bias", modules * i), {bias.columns}, {bias.data, bias.data + bias.columns}});
  }
  return tensors;
}

Result<SavedMlp> mlp_from_tensors(const SafeTensors& tensors, std::optional<Activation> hidden,
                                  std::optional<Activation> output) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<FileLayer> layers, layers_of(tensors));
  MlpSpec spec;
  spec.widths.push_back(layers.front().weight->shape[1]);
  for (const FileLayer& layer : layers) spec.widths.push_back(layer.weight->shape[0]);
  REVERIE_ASSIGN_OR_RETURN(spec.hidden, activation_of(tensors, "hidden", hidden));
  REVERIE_ASSIGN_OR_RETURN(spec.output, activation_of(tensors, "output", output));
  REVERIE_ASSIGN_OR_RETURN(Mlp mlp, Mlp::make(std::move(spec)));
  Parameters parameters = mlp.make_parameters();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Matrix weight = mlp.weight(i, parameters.span());
    const float* value = layers[i].weight->values.data();
    for (std::size_t c = 0; c < weight.columns; ++c) {
      for (std::size_t r = 0; r < weight.rows; ++r) weight(r, c) = *value++;
    }
    const Matrix bias = mlp.bias(i, parameters.span());
    for (std::size_t c = 0; c < bias.columns; ++c) bias(0, c) = layers[i].bias->values[c];
  }
  SavedMlp saved{std::move(mlp), std::move(parameters), tensors.metadata};
  saved.metadata["hidden"] = activation_name(saved.mlp.spec().hidden);
  saved.metadata["output"] = activation_name(saved.mlp.spec().output);
  return saved;
}

Status save_mlp(const std::string& path, const Mlp& mlp, const Parameters& parameters,
                std::map<std::string, std::string> metadata) {
  return write_file(path, encode_safetensors(mlp_to_tensors(mlp, parameters, std::move(metadata))));
}

Result<SavedMlp> load_mlp(const std::string& path, std::optional<Activation> hidden,
                          std::optional<Activation> output) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, read_file(path, kFileBytesMax));
  Result<SafeTensors> tensors = decode_safetensors(bytes);
  if (!tensors.ok()) return tensors.status().with_context(path);
  Result<SavedMlp> saved = mlp_from_tensors(*tensors, hidden, output);
  if (!saved.ok()) return saved.status().with_context(path);
  return saved;
}

}  // namespace reverie::nn
