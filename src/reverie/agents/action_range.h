// ActionRange: converts actions between the environment's [low, high] and the networks' [-1, 1].
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/learn/transition_batch.h"
#include "reverie/nn/parameters.h"

namespace reverie {

// A value. Rows of width() elements.
class ActionRange {
 public:
  // INVALID_ARGUMENT for discrete actions, naming the algorithms for these, and for bounds that are
  // not finite or whose difference is not finite and above 0.
  static Result<ActionRange> make(const AgentSpec& spec, std::string_view algorithm);

  std::size_t width() const { return middle_.size(); }
  // `from` has rows of network outputs; `to` gets the environment's bytes.
  void to_env(std::span<const float> from, std::span<std::byte> to) const;
  // `to` gets the rows without gaps.
  void from_env(nn::ConstMatrix from, std::span<float> to) const;

 private:
  std::vector<float> middle_;
  std::vector<float> half_range_;
};

}  // namespace reverie
