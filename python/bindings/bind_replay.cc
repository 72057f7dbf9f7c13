// Binds replay/local_service.h: the store in this process.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "python/bindings/bind.h"
#include "python/bindings/checkpoints.h"
#include "python/bindings/client.h"
#include "python/bindings/convert.h"
#include "python/bindings/native_envs.h"
#include "python/bindings/registry.h"
#include "python/bindings/table_info.h"
#include "reverie/base/plugin.h"
#include "reverie/env/native_registry.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"

namespace reverie::python {

// The included components, and those that plugins have added. Never destroyed: tables may outlive
// the interpreter.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

namespace {

class Store {
 public:
  Store(std::shared_ptr<LocalService> service, std::optional<std::uint64_t> seed)
      : service_(std::move(service)), seed_(seed) {}

  ClientHandle client(bool raises_corrupt) const {
    check();
    return ClientHandle(service_, service_, on_corrupt_of(raises_corrupt), seed_);
  }
  void close() const {
    check();
    without_gil([&] { service_->close(); });
  }
  nb::list info() const {
    check();
    return table_infos(*service_);
  }
  std::map<std::string, double> extension_summary(nb::handle table, std::size_t index) const {
    check();
    Table* const found = unwrap(service_->table(text_argument("table", table)));
    return without_gil([&] { return found->extension_summary(index); });
  }
  std::int64_t used_bytes() const { return service_->used_bytes(); }
  nb::object loaded() const {
    check();
    return loaded_checkpoint(service_->origin());
  }
  nb::object journal_error() const {
    check();
    return python::journal_error(*service_);
  }

 private:
  void check() const { unwrap(fork_guard_.check("Store")); }

  std::shared_ptr<LocalService> service_;
  std::optional<std::uint64_t> seed_;
  ForkGuard fork_guard_;
};

void init_store(Store* self, nb::list tables, nb::handle max_bytes, nb::handle memory,
                nb::handle seed, nb::handle checkpoints) {
  std::vector<TableOptions> options;
  for (nb::handle table : tables) options.push_back(table_options(nb::cast<nb::dict>(table)));
  StoreOptions store;
  if (!max_bytes.is_none()) store.max_bytes = integer_argument("max_bytes", max_bytes, 1);
  store.registry = &registry();
  store.memory = chunk_memory(memory);
  std::optional<std::uint64_t> given;
  if (!seed.is_none()) given = integer_argument<std::uint64_t>("seed", seed, 0);
  const std::optional<checkpoint::WorkerOptions> worker = checkpoint_options(checkpoints);
  new (self) Store(unwrap(without_gil([&] {
                     return worker
                                ? checkpoint::open_checkpointed(std::move(options), store, *worker)
                                : LocalService::open(std::move(options), store);
                   })),
                   given);
}

RateLimiter make_limiter(double samples_per_insert, std::int64_t min_size_to_sample,
                         double min_diff, double max_diff) {
  return unwrap(RateLimiter::make({samples_per_insert, min_size_to_sample, min_diff, max_diff}));
}

}  // namespace

void bind_replay(nb::module_& m) {
  using namespace nb::literals;
  bind_inspection(m);
  nb::class_<Store>(m, "Store", "See ``reverie.Store``.")
      .def(
          "__init__", &init_store, "tables"_a, "max_bytes"_a.none(), "memory"_a.none(),
          "seed"_a.none(), "checkpoints"_a.none(),
          nb::sig("def __init__(self, tables: list[dict[str, typing.Any]], "
                  "max_bytes: int | None, memory: tuple[str, int | None] | None, seed: int | None, "
                  "checkpoints: dict[str, typing.Any] | None) -> None"))
      .def("client", &Store::client, "raises_corrupt"_a = false,
           nb::sig("def client(self, raises_corrupt: bool = False) -> Client"))
      .def("close", &Store::close)
      .def("loaded_checkpoint", &Store::loaded,
           nb::sig("def loaded_checkpoint(self) -> tuple[str, bytes] | None"))
      .def("journal_error", &Store::journal_error, nb::sig("def journal_error(self) -> str | None"))
      .def("info", &Store::info, nb::sig("def info(self) -> list[dict[str, typing.Any]]"))
      .def("extension_summary", &Store::extension_summary, "table"_a, "index"_a,
           nb::sig("def extension_summary(self, table: str, index: int) -> dict[str, float]"))
      .def_prop_ro("used_bytes", &Store::used_bytes);
  m.def(
      "check_rate_limiter",
      [](double samples_per_insert, std::int64_t min_size_to_sample, double min_diff,
         double max_diff) {
        make_limiter(samples_per_insert, min_size_to_sample, min_diff, max_diff);
      },
      "samples_per_insert"_a, "min_size_to_sample"_a, "min_diff"_a, "max_diff"_a,
      "Raises InvalidArgumentError for numbers that make no rate limiter.");
  m.def(
      "empty_table_allows",
      [](double samples_per_insert, std::int64_t min_size_to_sample, double min_diff,
         double max_diff, std::int64_t count) {
        const RateLimiter limiter =
            make_limiter(samples_per_insert, min_size_to_sample, min_diff, max_diff);
        return std::pair(limiter.can_insert(count), limiter.can_sample(count));
      },
      "samples_per_insert"_a, "min_size_to_sample"_a, "min_diff"_a, "max_diff"_a, "count"_a,
      "Whether so many inserts, and so many samples, may go through before all others.");
  m.def(
      "load_plugin",
      [](nb::handle path) {
        const std::string given(text_argument("path", path));
        PluginHost host;
        host.offer<ComponentRegistry>(registry());
        host.offer<NativeEnvAdder>(native_registry());
        unwrap(without_gil([&] { return load_plugin(given, host); }));
      },
      "path"_a.none(), nb::sig("def load_plugin(path: str) -> None"),
      R"(Loads a shared library with selectors, extensions or native environments of your own.

``Custom`` makes the selectors and extensions by name, ``envs.native.NativePool`` the environments.

Args:
    path: a library built with ``REVERIE_PLUGIN``. It stays loaded until the process ends.

Raises:
    NotFoundError: it cannot be opened.
    FailedPreconditionError: it is not a plugin, or was built for another version.
    AlreadyExistsError: a name that it adds is taken.)");
}

}  // namespace reverie::python
