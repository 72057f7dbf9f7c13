// StepSink: receives an actor's steps.
//
//     ReplaySink    into the replay buffer of this process
//     StepReport    into a message to the process that has it (step_report.h)
#pragma once

#include <memory>
#include <utility>

#include "reverie/base/status.h"
#include "reverie/transitions/replay_buffer.h"

namespace reverie {

// For one thread.
class StepSink {
 public:
  virtual ~StepSink() = default;
  // One step of each environment, as in ReplayBuffer::add(); the arrays are copied.
  virtual Status add(const StepArrays& step) = 0;
};

class ReplaySink final : public StepSink {
 public:
  explicit ReplaySink(std::shared_ptr<ReplayBuffer> replay) : replay_(std::move(replay)) {}
  Status add(const StepArrays& step) override { return replay_->add(step); }

 private:
  const std::shared_ptr<ReplayBuffer> replay_;
};

}  // namespace reverie
