// Binds the errors and the log: what every other room needs.
#include <nanobind/nanobind.h>

#include "python/bindings/bind.h"
#include "python/bindings/convert.h"

namespace reverie::python {

void bind_base(nb::module_& m) {
  using namespace nb::literals;
  m.def("set_error_classes", &set_error_classes, "by_code"_a, "type_error"_a, "missing_package"_a,
        nb::sig("def set_error_classes(by_code: dict[int, type[Exception]], type_error: "
                "type[Exception], missing_package: type[Exception]) -> None"),
        "The exception class for each status code. Called once, by ``reverie.errors``.");
  set_log_sink([](LogLevel level, std::string_view text) { log_to_python(level, text); });
}

}  // namespace reverie::python
