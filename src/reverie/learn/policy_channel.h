// The policy's parameters on a weights channel (weights/weights.h).
//
//     learner   publish_policy(channel, version, parameters)
//     actor     PolicyChannel(channel, network).newest()
//
// The published value is a dict, {"parameters": float32 [n]}, in the layout of nn/parameters.h. So
// a Python program can read it too, with reverie.Weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/learn/weights_source.h"
#include "reverie/nn/parameters.h"
#include "reverie/weights/weights.h"

namespace reverie {

// The name of the channel that a training's actors take their policy from.
inline constexpr std::string_view kPolicyWeights = "policy";

// Errors as Weights::publish().
Status publish_policy(Weights& channel, std::uint64_t version, const nn::Parameters& parameters);

class PolicyChannel final : public WeightsSource {
 public:
  // For a policy of `float_count` floats. `answer_within` is how long a source may take. `channel`
  // outlives it.
  PolicyChannel(Weights& channel, std::size_t float_count, Duration answer_within);

  // DATA_LOSS for another kind of value; else errors as Weights::pull(). NOT_FOUND before the first
  // version.
  Result<nn::PublishedParameters::Version> newest() override;

 private:
  Weights& channel_;
  const Duration answer_within_;
  nn::Parameters parameters_;
  Weights::VersionPtr taken_;
};

}  // namespace reverie
