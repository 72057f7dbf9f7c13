// WeightsSource: where an actor gets the policy's newest weights.
//
//     threads of one process      PublishedPolicy (parameter_server.h)
//     another process or host     PolicyChannel (policy_channel.h)
#pragma once

#include "reverie/base/status.h"
#include "reverie/nn/published_parameters.h"

namespace reverie {

// Not thread-safe: one for each actor.
class WeightsSource {
 public:
  virtual ~WeightsSource() = default;
  // The newest version that is available without waiting for a learner; valid until the next call.
  // UNAVAILABLE if no peer that has it can be reached.
  virtual Result<nn::PublishedParameters::Version> newest() = 0;
};

}  // namespace reverie
