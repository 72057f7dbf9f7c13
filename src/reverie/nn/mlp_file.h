// Networks as safetensors files that PyTorch reads, and back.
//
// A file holds what the state of torch.nn.Sequential(Linear, ReLU, Linear, ...) holds: "0.weight"
// of [out, in], "0.bias" of [out], then "2.weight", for activations take a number too. So
//
//     torch_net.load_state_dict(safetensors.torch.load_file(path))
//
// loads a network of ours, and a file that PyTorch saved is read here, once told the activations
// that only our own files name in their metadata ("hidden", "output").
#pragma once

#include <map>
#include <optional>
#include <string>

#include "reverie/base/status.h"
#include "reverie/nn/mlp.h"
#include "reverie/nn/safetensors.h"

namespace reverie::nn {

struct SavedMlp {
  Mlp mlp;
  Parameters parameters;
  std::map<std::string, std::string> metadata;  // with "hidden" and "output"
};

// Requires parameters of the network's size. `metadata` is kept beside our own.
SafeTensors mlp_to_tensors(const Mlp& mlp, const Parameters& parameters,
                           std::map<std::string, std::string> metadata);
// The activations are those of the metadata where they are not given. INVALID_ARGUMENT when neither
// has one, or both and they differ; DATA_LOSS for tensors that make no chain of dense layers.
Result<SavedMlp> mlp_from_tensors(const SafeTensors& tensors, std::optional<Activation> hidden,
                                  std::optional<Activation> output);

// The same to and from a file; write_file() and read_file() say what else can go wrong.
Status save_mlp(const std::string& path, const Mlp& mlp, const Parameters& parameters,
                std::map<std::string, std::string> metadata = {});
Result<SavedMlp> load_mlp(const std::string& path, std::optional<Activation> hidden = {},
                          std::optional<Activation> output = {});

}  // namespace reverie::nn
