// The results of a pool of environments: an ``EnvBatch`` around arrays.
//
//     copies   the rows are copied from the pool's memory; the arrays are the program's own
//     views    the arrays lie over the pool's memory, and know when a later step overwrites it
//
// An array is reused once only this refers to it, so a program that keeps no old results needs no
// new memory; arrays that it keeps do not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>

#include "reverie/tensor/tensor.h"

namespace reverie::python {

namespace nb = nanobind;

// The contents of a pool's rows, and the class of results.
struct EnvResultSpec {
  nb::object batch_class;               // called with observation, reward, terminated, truncated,
                                        // final_observation, env_ids, info
  std::string structure;                // of the observation's columns
  std::vector<TensorSpec> observation;  // of one row
  std::vector<TensorSpec> info;
  std::size_t row_count = 1;  // of a result
};

// The base of an array that is a view.
struct EnvView {
  std::shared_ptr<const void> memory;
  bool is_overwritten = false;
};

// Where one batch's columns begin, in memory that `keeper` keeps.
struct EnvColumns {
  std::byte* reward = nullptr;
  std::byte* terminated = nullptr;
  std::byte* truncated = nullptr;
  std::vector<std::byte*> info;
  std::vector<std::byte*> observation;
  std::vector<std::byte*> final_observation;
  std::shared_ptr<const void> keeper;
};

// Raises, for a program that unpacks a future as Gymnasium's tuple.
nb::object refuse_unpacking(nb::handle future);

// The interpreter's lock guards it, except while many rows are copied.
class EnvResults {
 public:
  EnvResults(EnvResultSpec spec, std::vector<EnvColumns> batches, bool is_copied);

  bool is_copied() const { return is_copied_; }

  // All rows of a batch.
  nb::object of_batch(std::size_t batch);
  // Copies of some rows of batch 0: as many as a result has.
  nb::object of_envs(std::span<const std::int32_t> envs);
  // A step or reset of the batch begins: its earlier views are outdated.
  void begin_step(std::size_t batch);

 private:
  struct Place;  // the arrays of one result

  using PlacePtr = std::shared_ptr<Place>;

  PlacePtr take_place(std::size_t batch);
  PlacePtr make_place(std::size_t batch) const;
  nb::object batch_of(const Place& place) const;
  void copy_rows(const Place& place, std::size_t batch, std::span<const std::int32_t> envs) const;

  EnvResultSpec spec_;
  std::vector<EnvColumns> batches_;
  bool is_copied_;
  std::vector<std::int32_t> all_envs_;
  std::vector<TensorSpec> columns_;               // of one row: all but env_ids, in a place's order
  std::vector<std::vector<std::byte*>> sources_;  // by batch, in that order
  std::size_t first_final_ = 0;
  std::size_t copied_bytes_ = 0;  // without final observations
  std::vector<PlacePtr> places_;
  std::size_t next_replaced_ = 0;
  std::vector<PlacePtr> current_;  // by batch: places with views since its last step
};

// Whether an array is a view of a pool's memory that a later step has overwritten. Requires a NumPy
// array that has a base.
bool is_overwritten_view(nb::handle array);

// Raises for such an array, with its name.
[[noreturn, gnu::cold]] void refuse_overwritten_view(std::string_view name);

}  // namespace reverie::python
