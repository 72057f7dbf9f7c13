// Binds the batcher.
#include <string>

#include <nanobind/nanobind.h>

#include "python/bindings/batcher.h"
#include "python/bindings/bind.h"
#include "python/bindings/convert.h"

namespace reverie::python {
namespace {

Framework framework_named(const std::string& name) {
  if (name == "numpy") return Framework::kNumpy;
  if (name == "torch") return Framework::kTorch;
  return name == "jax" ? Framework::kJax : Framework::kNone;
}

}  // namespace

void bind_batcher(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Batcher>(m, "Batcher", nb::is_weak_referenceable(), "See ``reverie.Batcher``.")
      .def(
          "__init__",
          [](Batcher* self, nb::handle size, nb::handle dim, nb::handle queue_size,
             double timeout_s, nb::handle output, nb::object device) {
            Batcher::Options options;
            options.size = integer_argument<std::size_t>("size", size, 1, 1 << 30);
            options.dim = integer_argument<std::size_t>("dim", dim, 0, 63);
            options.queue_size =
                integer_argument<std::size_t>("queue_size", queue_size, 1, 1 << 30);
            options.timeout_s = timeout_s;
            options.output = framework_named(std::string(text_argument("output", output)));
            options.device = std::move(device);
            new (self) Batcher(std::move(options));
          },
          "size"_a.none(), "dim"_a.none(), "queue_size"_a.none(), "timeout_s"_a, "output"_a,
          "device"_a.none(),
          nb::sig("def __init__(self, size: int, dim: int, queue_size: int, timeout_s: float, "
                  "output: str, device: object) -> None"))
      .def("stack", &Batcher::stack, "nest"_a.none(),
           nb::sig("def stack(self, nest: object) -> None"))
      .def("cat", &Batcher::cat, "nest"_a.none(), nb::sig("def cat(self, nest: object) -> None"))
      .def("flush", &Batcher::flush)
      .def("get", &Batcher::get, "timeout_s"_a = nb::none(),
           nb::sig("def get(self, timeout_s: float | None = None) -> typing.Any"))
      .def("get_now", &Batcher::get_now, nb::sig("def get_now(self) -> typing.Any"))
      .def(
          "call_when_finished", &Batcher::call_when_finished, "callback"_a,
          nb::sig("def call_when_finished(self, callback: collections.abc.Callable[[], object]) -> "
                  "None"))
      .def("close", &Batcher::close)
      .def_prop_ro("is_closed", &Batcher::is_closed)
      .def_prop_ro("filled", &Batcher::filled)
      .def_prop_ro("finished_count", &Batcher::finished_count);
}

}  // namespace reverie::python
