// The arrays of a replay buffer's batch, and the dict that holds them.
//
//     {"obs": nest, "action": nest, "reward": [B], "next_obs": nest, "terminated": [B],
//      "discount": [B], ("mask": [B, T],) "weights": [B], "tickets": [B], ("hindsight": [B],)
//      (added columns)}
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "reverie/tensor/tensor.h"
#include "reverie/transitions/replay_batch_layout.h"

namespace reverie::python {

namespace nb = nanobind;

// Whether a batch has an array of that name.
bool is_batch_name(std::string_view name);

// Describes the arrays of a batch of some size, in the order of the dict, nests leaf by leaf.
class ReplayArrays {
 public:
  explicit ReplayArrays(ReplayBatchLayout layout) : layout_(std::move(layout)) {}

  const ReplayBatchLayout& layout() const { return layout_; }
  std::size_t count() const { return layout_.count(); }
  std::span<const TensorSpec> specs() const { return layout_.specs(); }

  // New arrays, and the dict around them.
  std::vector<nb::object> make() const;
  nb::object fold(const ReplayStructures& structures, std::span<const nb::object> arrays) const;
  // The arrays of a dict from an earlier call. If one does not match, raises; or, if `has_made` is
  // given, for batches that transforms may have changed, makes a new one and sets it.
  std::vector<nb::object> find(nb::handle dict, const ReplayStructures& structures,
                               bool* has_made = nullptr) const;

 private:
  ReplayBatchLayout layout_;
};

}  // namespace reverie::python
