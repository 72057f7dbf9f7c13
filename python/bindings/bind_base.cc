// Binds the errors and the log: what every other room needs.
#include <nanobind/nanobind.h>

#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/log_lines.h"
#include "reverie/base/machine.h"

namespace reverie::python {

void bind_base(nb::module_& m) {
  using namespace nb::literals;
  m.def("set_error_classes", &set_error_classes, "by_code"_a, "type_error"_a, "missing_package"_a,
        nb::sig("def set_error_classes(by_code: dict[int, type[Exception]], type_error: "
                "type[Exception], missing_package: type[Exception]) -> None"),
        "The exception class for each status code. Called once, by ``reverie.errors``.");
  m.def(
      "measure_memory",
      [](std::size_t size_bytes) {
        const MemoryLimits limits = unwrap(without_gil([&] { return measure_memory(size_bytes); }));
        return nb::make_tuple(limits.copy_bytes_per_s, limits.load_ns);
      },
      "size_bytes"_a, nb::sig("def measure_memory(size_bytes: int) -> tuple[float, float]"),
      "Bytes a second that memcpy copies, and nanoseconds of a load that waits for the one "
      "before.");
  log_to_python();
  m.def("want_log_lines", &LogQueue::want, "level"_a);
}

}  // namespace reverie::python
