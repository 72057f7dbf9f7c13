// Interruption: a wish to end a long call that reads or writes files.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "reverie/base/status.h"

namespace reverie {

// `is_wanted` is asked several times a second, on the thread of the call; true ends the call with
// CANCELLED.
class Interruption {
 public:
  explicit Interruption(std::function<bool()> is_wanted = {}) : is_wanted_(std::move(is_wanted)) {}

  // Call it after every `size_bytes` more.
  Status check(std::size_t size_bytes) {
    bytes_ += size_bytes;
    if (!is_wanted_ || bytes_ < kBytes) return {};
    bytes_ = 0;
    return is_wanted_() ? cancelled("the call was interrupted") : Status();
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;  // between two checks

  std::function<bool()> is_wanted_;
  std::size_t bytes_ = 0;
};

}  // namespace reverie
