// Binds nests and element types: what signatures and their tests need.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/nest.h"
#include "python/bindings/values.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

nb::tuple flatten(nb::handle nest) {
  Leaves leaves;
  const auto made = Nest::of(nest, leaves);
  nb::list paths;
  nb::list values;
  for (std::size_t i = 0; i < made->leaf_count(); ++i) {
    const std::size_t leaf = made->leaf_of_column(i);
    paths.append(made->path(leaf));
    values.append(nb::borrow(leaves[leaf]));
  }
  return nb::make_tuple(paths, values, made->text());
}

nb::tuple describe(nb::handle value, const std::string& path) {
  Values values;
  values.begin(1);
  values.add_any(0, path, value);
  const TensorView& view = values.values()[0].value;
  nb::list shape;
  for (const std::int64_t extent : view.shape) shape.append(extent);
  return nb::make_tuple(std::string(dtype_name(view.dtype)), nb::tuple(shape));
}

nb::object dtype_by_name(const std::string& name) {
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype) raise_type_error(format("there is no element type called '{}'", name));
  return numpy_dtype(*dtype);
}

nb::object fold_list(const std::string& text, const std::vector<nb::object>& leaves) {
  return fold(text, leaves);
}

}  // namespace

void bind_tensor(nb::module_& m) {
  using namespace nb::literals;
  m.def("flatten", &flatten, "nest"_a.none(),
        nb::sig("def flatten(nest: object) -> tuple[list[str], list[typing.Any], str]"),
        "The paths and leaves of a nest in canonical order, and the text that folds them back.");
  m.def(
      "fold", &fold_list, "text"_a, "leaves"_a,
      nb::sig("def fold(text: str, leaves: collections.abc.Sequence[object]) -> typing.Any"),
      "The nest that ``flatten`` took apart.\n\nRaises:\n    DataLossError: ``text`` is none that "
      "``flatten`` gave, or describes another number of leaves.");
  m.def("describe", &describe, "value"_a.none(), "path"_a = "",
        nb::sig("def describe(value: object, path: str = '') -> tuple[str, tuple[int, ...]]"),
        "The name of the element type and the shape with which a value is stored.");
  m.def("numpy_dtype", &dtype_by_name, "name"_a,
        nb::sig("def numpy_dtype(name: str) -> numpy.dtype"),
        "NumPy's element type by our name; ml_dtypes is imported if it is one of its own.");
}

}  // namespace reverie::python
