// StepReport: the message of an actor in another process to its training: its steps, and the
// episodes that ended in them.
//
//     obs of step 0, 1, ... n      n steps and the observation after them; the last observation of
//     actions, rewards, ends       an episode beside, since the next one's first is in its place
//
// Received reports are checked: an invalid action, or a number that is not finite, would harm the
// learner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/learn/return_log.h"
#include "reverie/learn/step_sink.h"
#include "reverie/learn/transition_batch.h"
#include "reverie/tensor/payload.h"

namespace reverie {

class StepReport final : public StepSink {
 public:
  // The most steps of one report; an actor sends it earlier.
  static constexpr std::size_t kStepsMax = 1024;
  static constexpr std::size_t kEpisodesMax = std::size_t{1} << 16;

  StepReport(const AgentSpec& spec, std::size_t env_count) : spec_(spec), env_count_(env_count) {}

  // How many times each environment was stepped.
  std::size_t count() const { return count_; }
  // RESOURCE_EXHAUSTED beyond kStepsMax.
  Status add(const StepArrays& step) override;
  // Returns the report as a message, and starts a new one.
  struct Sender {
    std::uint64_t actor = 0;
    std::uint64_t run = 0;  // of the learner (served_actors.h); 0: from a version that has none
  };
  Payload take(const Sender& sender, std::span<const EpisodeRecord> episodes);

  // The receiver's side. DATA_LOSS if it is not a report for such environments.
  struct Read {
    Sender sender;
    std::vector<EpisodeRecord> episodes;  // `step` is not set
  };
  static Result<Sender> sender_of(const Payload& payload);
  // Passes each step to `sink`, and returns its error.
  static Result<Read> read(const Payload& payload, const AgentSpec& spec, std::size_t env_count,
                           StepSink& sink);

 private:
  const AgentSpec spec_;
  const std::size_t env_count_;
  std::size_t count_ = 0;
  std::vector<std::byte> actions_;
  std::vector<float> obs_;        // of each step
  std::vector<float> last_next_;  // of the last step
  std::vector<float> finals_;     // of rows that ended an episode
  std::vector<float> rewards_;
  std::vector<std::uint8_t> ends_;  // 1: terminated, 2: truncated
};

}  // namespace reverie
