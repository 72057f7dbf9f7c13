// Networks as safetensors files that PyTorch reads, and back.
//
// A file contains the state of torch.nn.Sequential(Linear, ReLU, Linear, ...): "0.weight" of [out,
// in], "0.bias" of [out], then "2.weight", since activations are numbered too. So
//
//     torch_net.load_state_dict(safetensors.torch.load_file(path))
//
// loads a network of ours, and a file that PyTorch saved can be read here, given the activations,
// which only our own files name in their metadata ("hidden", "output").
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

// Requires parameters of the network's size. `metadata` is stored beside our own.
SafeTensors mlp_to_tensors(const Mlp& mlp, const Parameters& parameters,
                           std::map<std::string, std::string> metadata);
// Activations not given are taken from the metadata. INVALID_ARGUMENT if one is in neither, or in
// both and they differ; DATA_LOSS for tensors that are not a chain of dense layers.
Result<SavedMlp> mlp_from_tensors(const SafeTensors& tensors, std::optional<Activation> hidden,
                                  std::optional<Activation> output);

// The same to and from a file; for other errors see write_file() and read_file().
Status save_mlp(const std::string& path, const Mlp& mlp, const Parameters& parameters,
                std::map<std::string, std::string> metadata = {});
Result<SavedMlp> load_mlp(const std::string& path, std::optional<Activation> hidden = {},
                          std::optional<Activation> output = {});

}  // namespace reverie::nn
