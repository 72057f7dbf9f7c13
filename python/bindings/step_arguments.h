// The arguments of one step of a replay buffer: nests of arrays, numbers, flags.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/nest.h"
#include "python/bindings/values.h"
#include "reverie/tensor/tensor.h"

namespace reverie::python {

namespace nb = nanobind;

// A nest of arrays of one structure, as tensors in canonical order. It reuses its memory; results
// are valid until the next call.
class NestArgument {
 public:
  // `name` is for messages.
  explicit NestArgument(const char* name) : name_(name) {}

  // Raises for another structure than `structure`, unless that is null. Until release() it holds
  // what lies in the nest, which other threads may change.
  void read(nb::handle nest, const std::string* structure);
  // leaves() are invalid from now on.
  void release();

  // Casts leaves whose type differs from the first step's, if NumPy considers that safe (int32 to
  // int64, float32 to float64), and Python numbers if the value is preserved. Others are unchanged,
  // and the buffer refuses them.
  void cast_to(std::span<const TensorSpec> specs);

  std::span<const TensorView> leaves() const { return views_; }
  const std::string& structure() const { return nest_->text(); }
  // The path of column i.
  const std::string& path(std::size_t i) const { return nest_->path(nest_->leaf_of_column(i)); }

 private:
  struct Note {};

  const char* name_;
  NestCache<Note> cache_;
  const Nest* nest_ = nullptr;
  Leaves leaves_;
  Values values_;
  Values cast_;                          // leaves that cast_to() has cast
  std::vector<nb::object> cast_arrays_;  // and their memory
  std::vector<TensorView> views_;
};

// One or more numbers, in any form that NumPy converts to an array; `[B]`, or `[B, 1]` as from some
// learners. Refuses numbers that are finite but not as float32.
struct FloatArgument {
  std::vector<float> values;
  bool is_scalar = false;

  void read(std::string_view name, nb::handle given);
};

// Flags: bool, or the numbers 0 and 1.
struct FlagArgument {
  std::vector<std::uint8_t> values;
  bool is_scalar = false;

  void read(std::string_view name, nb::handle given);
};

// Priorities or tickets of an update, copied, since the caller may write to the arrays
// meanwhile.
std::vector<double> read_priorities(nb::handle given);
std::vector<std::uint64_t> read_tickets(nb::handle given);

}  // namespace reverie::python
