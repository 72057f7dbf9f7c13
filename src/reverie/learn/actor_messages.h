// Messages from a training to its actors in other processes; for the reverse see step_report.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"

namespace reverie {

// The function of the learner's peer that takes a StepReport; it answers once the actor may go on.
inline constexpr std::string_view kActorReportFunction = "reverie.train.report";
// The function of an actor's peer that the learner calls when the training is over: a Notice. So
// actors know that within a long step too.
inline constexpr std::string_view kTrainingEndFunction = "reverie.train.over";

struct ActorOrder {
  std::uint64_t steps = 0;   // of all actors
  std::uint64_t policy = 0;  // the newest version
  bool is_over = false;      // the training is over: nothing is left to do
};

Payload encode(const ActorOrder& order);
// DATA_LOSS for a malformed message.
Result<ActorOrder> decode_actor_order(const Payload& payload);

}  // namespace reverie
