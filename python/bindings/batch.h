// A sampled batch in Python: NumPy arrays, which are filled again when the batch is given as `out`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/one_call.h"
#include "reverie/client/drawn_batch.h"
#include "reverie/service/blocking.h"

namespace reverie::python {

namespace nb = nanobind;

// Whether "weights" is "buffer", not "batch". Raises for anything else.
bool weights_argument(nb::handle weights);
// The arguments `beta` and `weights` of calls.
Weighing weighing_argument(nb::handle beta, nb::handle weights);

// Draws and gathers. Requires the interpreter's lock, and releases it unless the call is brief
// (convert.h). Samples drawn by the deadline are in `drawn` even if some are missing; if the call
// fails otherwise, they are handed back to a table whose samples remove items. `is_local`: the
// store is in this process.
Status draw_briefly(ReplayService& service, SampleRequest request, const Gathering& gathering,
                    const WaitOptions& wait, bool is_local, DrawnBatch& drawn);

class PyBatch {
 public:
  PyBatch() = default;
  PyBatch(const PyBatch&) = delete;
  PyBatch(PyBatch&&) = default;

  // The buffers of its arrays, to fill in place. They are borrowed from the arrays, and the batch
  // counts as in use until take().
  Batch lend();
  // Takes over what was drawn. Keeps arrays whose buffers were filled in place. If it raises, as
  // code of the nest's classes may, the samples are still in `drawn`.
  void take(DrawnBatch& drawn);
  // Replaces each array of data, weights and lengths, except text, by convert(array).
  void convert(nb::handle convert);

  nb::object data = nb::none();
  nb::object keys = nb::none();
  nb::object tickets = nb::none();
  nb::object probabilities = nb::none();
  nb::object priorities = nb::none();
  nb::object times_sampled = nb::none();
  nb::object ages_s = nb::none();
  nb::object versions = nb::none();
  nb::object redelivered = nb::none();  // none: no item is
  nb::object shards = nb::none();
  nb::object weights = nb::none();
  nb::object lengths = nb::none();
  std::int64_t table_size = 0;
  bool rate_limited = false;
  // The samples of the last call, whose memory the next reuses.
  SampleBatch samples;
  OneCallAtATime calls{"batch"};

 private:
  struct Column {
    TensorSpec spec;
    nb::object array;
  };

  std::vector<Column> columns_;
  std::string structure_;
  // convert() may have replaced `weights` and `lengths`, so they cannot be filled in place.
  bool is_converted_ = false;
};

// batch.take(drawn). If that raises, except for a corrupt structure, the samples are handed back as
// by draw_briefly().
void take_or_hand_back(PyBatch& batch, ReplayService& service, std::string_view table,
                       DrawnBatch& drawn);

// An array of one column's buffer; text becomes an array of objects.
nb::object column_array(DType dtype, std::span<const std::int64_t> shape, Buffer buffer);

void bind_batch(nb::module_& m);

}  // namespace reverie::python
