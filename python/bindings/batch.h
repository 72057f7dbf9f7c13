// A sampled batch as Python sees it: NumPy arrays, filled again when the batch is given as `out`.
#pragma once

#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/one_call.h"
#include "reverie/client/drawn_batch.h"
#include "reverie/service/blocking.h"

namespace reverie::python {

namespace nb = nanobind;

// Whether "weights" is "buffer", not "batch". Raises for anything else.
bool weights_argument(nb::handle weights);
// The arguments `beta` and `weights` as calls take them.
Weighing weighing_argument(nb::handle beta, nb::handle weights);

// Draws and gathers, with Python's lock; it is released where that is not brief (convert.h). What
// was drawn by the deadline is in `drawn` even if that was not all; what was drawn for a call that
// fails otherwise goes back to a table whose items leave it with their samples. `is_local`: the
// store is in this process.
Status draw_briefly(ReplayService& service, SampleRequest request, const Gathering& gathering,
                    const WaitOptions& wait, bool is_local, DrawnBatch& drawn);

class PyBatch {
 public:
  PyBatch() = default;
  PyBatch(const PyBatch&) = delete;
  PyBatch(PyBatch&&) = default;

  // The buffers of its arrays, to be filled in place. They are lent: the arrays own them, and the
  // caller has the batch in use until take().
  Batch lend();
  // Takes what was drawn over. Arrays whose buffers came back are kept.
  void take(DrawnBatch drawn);
  // Puts convert(array) in the place of each array of data, weights and lengths, text excepted.
  void convert(nb::handle convert);

  nb::object data = nb::none();
  nb::object keys = nb::none();
  nb::object tickets = nb::none();
  nb::object probabilities = nb::none();
  nb::object priorities = nb::none();
  nb::object times_sampled = nb::none();
  nb::object ages_s = nb::none();
  nb::object versions = nb::none();
  nb::object shards = nb::none();
  nb::object weights = nb::none();
  nb::object lengths = nb::none();
  std::int64_t table_size = 0;
  bool rate_limited = false;
  // The samples of the last call: their memory serves the next.
  SampleBatch samples;
  OneCallAtATime calls{"batch"};

 private:
  struct Column {
    TensorSpec spec;
    nb::object array;
  };

  std::vector<Column> columns_;
  std::string structure_;
};

// An array of one column's buffer; text becomes an array of objects.
nb::object column_array(DType dtype, std::span<const std::int64_t> shape, Buffer buffer);

void bind_batch(nb::module_& m);

}  // namespace reverie::python
