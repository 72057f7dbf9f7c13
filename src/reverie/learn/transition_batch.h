// TransitionBatch: the arrays that one learner samples into, of one batch size.
//
//     TransitionBatch batch(obs_width, action_spec, 64);
//     replay.sample(draw, batch.targets(), wait);
//     ... batch.obs(), batch.rewards(), batch.weights() ...
//
// Observations are one flat float32 array; actions are integers or one float32 array.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reverie/nn/parameters.h"
#include "reverie/transitions/replay_buffer.h"

namespace reverie {

// The sizes of an agent's observations and actions.
struct AgentSpec {
  std::size_t obs_width = 0;     // elements of an observation
  std::size_t action_count = 0;  // discrete actions; 0 if continuous
  std::size_t action_width = 0;  // elements of a continuous action; 0 if discrete
  std::vector<float> action_low;
  std::vector<float> action_high;

  bool is_discrete() const { return action_count > 0; }
  std::size_t action_bytes() const {
    return is_discrete() ? sizeof(std::int64_t) : action_width * sizeof(float);
  }
  friend bool operator==(const AgentSpec&, const AgentSpec&) = default;
};

// Not thread-safe.
class TransitionBatch {
 public:
  TransitionBatch(const AgentSpec& spec, std::size_t size);

  std::size_t size() const { return rewards_.size(); }
  // Valid as long as the batch, which must not move.
  ReplayBufferTargets targets();

  nn::ConstMatrix obs() const { return rows(obs_); }
  nn::ConstMatrix next_obs() const { return rows(next_obs_); }
  // Discrete actions, [B]; or continuous ones, [B, action_width].
  std::span<const std::int64_t> actions() const { return actions_; }
  nn::ConstMatrix continuous_actions() const;
  // Sums of up to n_step discounted rewards, and the factor of the value after them: 0 if the
  // episode terminated.
  std::span<const float> rewards() const { return rewards_; }
  std::span<float> rewards() { return rewards_; }
  std::span<const float> discounts() const { return discounts_; }
  // Importance weights.
  std::span<const float> weights() const { return weights_; }
  std::span<const std::uint64_t> tickets() const { return tickets_; }

  // The arrays to fill, for tests and other sources of batches.
  std::span<float> mutable_obs() { return obs_; }
  std::span<float> mutable_next_obs() { return next_obs_; }
  std::span<std::int64_t> mutable_actions() { return actions_; }
  std::span<float> mutable_continuous_actions() { return continuous_actions_; }
  std::span<float> mutable_discounts() { return discounts_; }
  std::span<float> mutable_weights() { return weights_; }

 private:
  nn::ConstMatrix rows(const std::vector<float>& values) const {
    return {values.data(), size(), obs_width_, obs_width_};
  }

  std::size_t obs_width_;
  std::vector<float> obs_;
  std::vector<float> next_obs_;
  std::vector<std::int64_t> actions_;
  std::vector<float> continuous_actions_;
  std::vector<float> rewards_;
  std::vector<float> discounts_;
  std::vector<float> weights_;
  std::vector<std::uint8_t> terminated_;
  std::vector<std::uint64_t> tickets_;
  std::array<std::byte*, 1> obs_place_{};
  std::array<std::byte*, 1> next_obs_place_{};
  std::array<std::byte*, 1> action_place_{};
};

}  // namespace reverie
