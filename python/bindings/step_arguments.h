// The arguments of one step as a replay buffer takes them: nests of arrays, numbers, flags.
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

// A nest of arrays of one structure, as tensors in canonical order. Its memory serves call after
// call; what it gives is valid until the next one.
class NestArgument {
 public:
  // `name` is for messages.
  explicit NestArgument(const char* name) : name_(name) {}

  // Raises for another structure than `structure`, unless that is null.
  void read(nb::handle nest, const std::string* structure);

  // Casts leaves of another type than the first step's, where NumPy calls that safe (int32 to
  // int64, float32 to float64), and Python's own numbers where the value survives. Others stay as
  // they are, for the buffer to refuse.
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
  Values cast_;                          // those that cast_to() has cast
  std::vector<nb::object> cast_arrays_;  // and whose memory it is
  std::vector<TensorView> views_;
};

// Numbers, one or many: Python's, NumPy's, and whatever NumPy makes an array of; `[B]`, or `[B, 1]`
// as some learners have it. Refuses what is finite but not as float32.
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

// Priorities or tickets of an update. Copies: the arrays are the caller's, who may write to them
// while the update reads.
std::vector<double> read_priorities(nb::handle given);
std::vector<std::uint64_t> read_tickets(nb::handle given);

}  // namespace reverie::python
