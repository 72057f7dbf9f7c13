// The policy's parameters on a weights channel (weights/weights.h).
//
//     learner   publish_policy(channel, version, parameters)
//     actor     PolicyChannel(channel, network).newest()
//
// What is published is a dict, {"parameters": float32 [n]}: nn/parameters.h says how they lie. So a
// Python program reads it too, by reverie.Weights.
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

// What Weights::publish() says.
Status publish_policy(Weights& channel, std::uint64_t version, const nn::Parameters& parameters);

class PolicyChannel final : public WeightsSource {
 public:
  // For a policy of that many floats. `answer_within` is how long its source may take. `channel`
  // outlives it.
  PolicyChannel(Weights& channel, std::size_t float_count, Duration answer_within);

  // DATA_LOSS for what is no such policy; else what Weights::pull() says. NOT_FOUND before the
  // first version.
  Result<nn::PublishedParameters::Version> newest() override;

 private:
  Weights& channel_;
  const Duration answer_within_;
  nn::Parameters parameters_;
  Weights::VersionPtr taken_;
};

}  // namespace reverie
