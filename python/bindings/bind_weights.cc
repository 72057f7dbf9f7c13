// Binds weights, for reverie/weights.py.
#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/process_bound.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc.h"
#include "python/bindings/rpc_values.h"
#include "reverie/weights/weights.h"

namespace reverie::python {
namespace {

struct NativeWeights {
  ProcessBound<std::unique_ptr<Weights>> weights;
  Pickle pickle;  // of its peer
  LeafReader reader;
  std::weak_ptr<const WeightsVersion> given;  // by held()
};

// The version and its value, or None.
nb::object version_tuple(const Weights::VersionPtr& held, Pickle pickle) {
  if (!held) return nb::none();
  return nb::make_tuple(held->version, decode_value(held->value, pickle));
}

// Checks for Ctrl-C in a call that has released the interpreter's lock.
bool has_signal() {
  const GilHeld held;
  return PyErr_CheckSignals() != 0;
}

// An exception of a signal handler takes precedence.
void unwrap_unless_pending(const Status& status) {
  if (PyErr_Occurred() != nullptr) raise_pending();
  unwrap(status);
}

}  // namespace

void bind_weights(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<NativeWeights>(m, "Weights", nb::is_weak_referenceable(), "See ``reverie.Weights``.")
      .def(
          "__init__",
          [](NativeWeights* self, RpcPeer& rpc, const std::string& name,
             std::vector<std::string> sources, bool shared_memory) {
            Weights::Options options;
            options.name = name;
            options.sources = std::move(sources);
            options.uses_shared_memory = shared_memory;
            new (self) NativeWeights{
                {"weights channel", unwrap(Weights::make(rpc.shared_peer(), options))},
                rpc.pickle(),
                {},
                {}};
          },
          "rpc"_a, "name"_a, "sources"_a, "shared_memory"_a)
      .def(
          "publish",
          [](NativeWeights& self, std::uint64_t version, nb::handle value) {
            Payload payload;
            // Arrays are read in place, once, before this returns.
            ValueEncoder(payload, self.reader, /*lends=*/true, self.pickle).encode(value, "value");
            const Status status = without_gil(
                [&, &weights = *self.weights] { return weights.publish(version, payload); });
            payload = {};
            drop_lent_arrays();
            unwrap(status);
          },
          "version"_a, "value"_a.none(),
          nb::sig("def publish(self, version: int, value: object) -> None"))
      .def(
          "version",
          [](NativeWeights& self) -> nb::object {
            const Weights::VersionPtr held = self.weights->held();
            return held ? nb::cast(held->version) : nb::none();
          },
          nb::sig("def version(self) -> int | None"))
      .def(
          "held",
          [](NativeWeights& self) {
            self.given = self.weights->held();  // a newer one may come before the copy is made
            // The program may write to its arrays, and other peers must not see that.
            return version_tuple(
                unwrap(without_gil([&, &weights = *self.weights] { return weights.own_copy(); })),
                self.pickle);
          },
          nb::sig("def held(self) -> tuple[int, typing.Any] | None"))
      .def("is_given",
           [](NativeWeights& self) {
             const Weights::VersionPtr held = self.weights->held();
             return held && held == self.given.lock();
           })
      .def(
          "pull",
          [](NativeWeights& self, nb::handle timeout_s) {
            const TimePoint until = deadline(timeout_s);
            unwrap_unless_pending(without_gil([&, &weights = *self.weights] {
                                    return weights.pull(until, has_signal);
                                  }).status());
          },
          "timeout_s"_a.none(), nb::sig("def pull(self, timeout_s: float | None) -> None"))
      .def(
          "wait_for",
          [](NativeWeights& self, std::uint64_t at_least, nb::handle timeout_s) {
            const TimePoint until = deadline(timeout_s);
            unwrap_unless_pending(without_gil([&, &weights = *self.weights] {
                                    return weights.wait_for(at_least, until, has_signal);
                                  }).status());
          },
          "at_least"_a, "timeout_s"_a.none(),
          nb::sig("def wait_for(self, at_least: int, timeout_s: float | None) -> None"))
      .def("close", [](NativeWeights& self) {
        Weights* const weights = self.weights.here();
        if (weights != nullptr) without_gil([&] { weights->close(); });
      });
}

}  // namespace reverie::python
