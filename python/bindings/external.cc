#include "python/bindings/external.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/held_object.h"

namespace reverie::python {
namespace {

namespace nb = nanobind;

// Calls a function that returns the rows as an array, or why there are none:
// (is missing: bool, text). The Python clients, and what reads for them, hold the function, so that
// the collector of cycles sees it: it may lead back to them.
class PyExternalFiles final : public ExternalFiles {
 public:
  explicit PyExternalFiles(nb::handle function)
      : function_(owned(PyWeakref_NewRef(function.ptr(), nullptr))) {}

  Status read(std::span<const ExternalRead> reads) override {
    for (const ExternalRead& one : reads) {
      const GilAnywhere held;
      if (!held) return cancelled("the program ends");
      REVERIE_RETURN_IF_ERROR(read_one(one));
    }
    return {};
  }

 private:
  Status read_one(const ExternalRead& read) const {
    const nb::object function = function_.get()();
    if (function.is_none()) {
      return cancelled("the client that reads '{}' was dropped", read.range.file);
    }
    try {
      const nb::object answer = function(
          read.range.file, read.range.offset, read.range.size_bytes, read.first_row, read.row_count,
          numpy_dtype(read.spec->dtype), std::vector<std::int64_t>(read.spec->shape));
      if (nb::isinstance<nb::tuple>(answer)) {
        const bool is_missing = nb::cast<bool>(answer[0]);
        const auto why = nb::cast<std::string>(answer[1]);
        return is_missing ? data_loss("{}", why) : failed_precondition("{}", why);
      }
      const auto size = static_cast<std::size_t>(PyArray_NBYTES(as_array(answer)));
      REVERIE_CHECK(PyArray_Check(answer.ptr()) && size == read.out.size());
      std::memcpy(read.out.data(), array_data(answer), size);
      return {};
    } catch (nb::python_error& error) {
      // Ctrl-C, which the main thread raises later: exceptions of the user's function are
      // returned as results.
      error.restore();
      return cancelled("interrupted while '{}' was read", read.range.file);
    }
  }

  const HeldObject function_;  // a weak reference
};

}  // namespace

std::shared_ptr<ExternalFiles> external_files(nb::handle given) {
  if (given.is_none()) return nullptr;
  if (!nb::isinstance<nb::str>(given)) {
    return std::make_shared<PyExternalFiles>(given);
  }
  const auto folder = nb::cast<std::string>(given);
  return unwrap(without_gil([&] { return FileRoot::open(folder); }));
}

std::optional<RowsColumn> external_column(nb::handle leaf, nb::handle external_type,
                                          std::string_view name, std::vector<std::int64_t>& shape) {
  if (!nb::isinstance(leaf, external_type)) return std::nullopt;
  const nb::object descr = leaf.attr("dtype");
  const std::optional<DType> dtype = dtype_of(reinterpret_cast<const PyArray_Descr*>(descr.ptr()));
  if (!dtype) {
    raise_type_error(
        format("column '{}' is External of dtype {}, which cannot be stored", name, shown(descr)));
  }
  shape = nb::cast<std::vector<std::int64_t>>(leaf.attr("shape"));
  RowsColumn column{name, {*dtype, shape, {}}};
  column.external = ExternalRange{nb::cast<std::string>(leaf.attr("file")),
                                  nb::cast<std::uint64_t>(leaf.attr("offset")),
                                  nb::cast<std::uint64_t>(leaf.attr("size_bytes")), 0};
  return column;
}

}  // namespace reverie::python
