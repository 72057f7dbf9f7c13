// Binds pools of worker processes: the owner's side, the worker's side, and their shared memory.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/env_pool.h"
#include "python/bindings/env_results.h"
#include "python/bindings/env_rows.h"
#include "python/bindings/env_worker.h"
#include "reverie/os/child_process.h"

namespace reverie::python {
namespace {

// A step in progress.
struct PyEnvFuture {
  nb::object pool;
  EnvPoolCore* core = nullptr;
  std::size_t batch = 0;
  std::uint32_t sequence = 0;
};

// The layout from "(path, dtype, shape)" columns and counts, the same for both sides of a pool.
SharedLayout layout_of(nb::dict shape) {
  PoolShape made;
  made.observation = columns_argument(shape["observation"]);
  nb::list action;
  action.append(shape["action"]);
  made.action = columns_argument(action).front();
  made.info = columns_argument(shape["info"]);
  made.env_count = nb::cast<std::size_t>(shape["num_envs"]);
  made.batch_count = nb::cast<std::size_t>(shape["num_batches"]);
  made.worker_count = nb::cast<std::size_t>(shape["num_workers"]);
  return unwrap(SharedLayout::make(std::move(made)));
}

void init_core(EnvPoolCore* self, std::shared_ptr<PoolWorkers> workers, nb::dict shape,
               double spin_s, double timeout_s, std::optional<std::int64_t> action_count,
               std::optional<std::size_t> result_rows) {
  SharedLayout layout = layout_of(shape);
  SharedMemory memory = unwrap(SharedMemory::create("reverie-env-pool", layout.size_bytes()));
  const PoolOptions options{timeout_s, action_count, result_rows.has_value(),
                            result_rows.value_or(0)};
  new (self) EnvPoolCore(std::move(workers), std::move(memory), std::move(layout), seconds(spin_s),
                         options);
}

void init_worker(EnvWorker* self, int memory_fd, nb::dict shape, std::size_t worker, double spin_s,
                 std::string structure, bool is_discrete, std::int64_t action_start,
                 bool refuses_nan, nb::object seed) {
  SharedLayout layout = layout_of(shape);
  SharedMemory memory = unwrap(SharedMemory::open(memory_fd));
  if (memory.bytes().size() < layout.size_bytes()) {
    raise(
        failed_precondition("the pool's memory has {} bytes where {} were expected; its owner runs "
                            "another version of the library",
                            memory.bytes().size(), layout.size_bytes()));
  }
  new (self) EnvWorker(std::move(memory), std::move(layout), worker, seconds(spin_s),
                       {std::move(structure), is_discrete, action_start, refuses_nan, seed});
}

nb::object future_of(nb::handle pool, nb::handle batch, std::uint32_t sequence) {
  return nb::cast(PyEnvFuture{nb::borrow(pool), &nb::cast<EnvPoolCore&>(pool),
                              nb::cast<std::size_t>(batch), sequence});
}

void bind_core(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PyEnvFuture>(m, "EnvFuture", nb::is_final(), "A step or reset under way.")
      .def("__iter__", &refuse_unpacking, nb::sig("def __iter__(self) -> typing.NoReturn"))
      .def(
          "done",
          [](const PyEnvFuture& self) { return self.core->is_done(self.batch, self.sequence); },
          "Whether ``result`` would return at once.")
      .def(
          "result",
          [](const PyEnvFuture& self, nb::handle timeout_s) {
            return self.core->result(self.batch, self.sequence, timeout_s);
          },
          "timeout_s"_a = nb::none(),
          nb::sig("def result(self, timeout_s: float | None = None) -> typing.Any"),
          R"(Wait for the batch.

Raises:
    DeadlineExceededError: the step takes longer than ``timeout_s``, or than the pool's own limit
        where that is None. Names the worker that is late. It may be waited for again.
    EnvError: an environment raised or its worker died.
    FailedPreconditionError: another step or reset of the batch came after this one.)");
  nb::class_<PoolWorkers>(m, "WorkerProcesses", "The processes of ``reverie.EnvPool``.")
      .def(nb::init<std::size_t>(), "count"_a)
      .def(
          "start",
          [](PoolWorkers& self, std::size_t worker, std::vector<std::string> command,
             std::vector<int> descriptors) {
            const ChildProcess::Options options{std::move(command), std::move(descriptors)};
            return unwrap(without_gil([&] { return self.start(worker, options); }));
          },
          "worker"_a, "command"_a, "descriptors"_a,
          "Starts one, in the place of an earlier one, which is killed. Gives its process id.")
      .def("end_text", &PoolWorkers::end_text, "worker"_a, "How it ended, or None while it lives.")
      .def("set_thread", &PoolWorkers::set_thread, "worker"_a, "end_text"_a.none(),
           "Says that a worker is a thread of this process: it lives, or has ended as told.")
      .def("pid", &PoolWorkers::pid, "worker"_a, "Its process id, or None where it has ended.")
      .def(
          "end_all",
          [](PoolWorkers& self, double at_most_s) {
            without_gil([&] { self.end_all(seconds(at_most_s)); });
          },
          "at_most_s"_a, "Waits for all to end, then kills those that have not.");
  nb::class_<EnvPoolCore>(m, "EnvPoolCore", "The owner's side of ``reverie.EnvPool``.")
      .def("__init__", &init_core, "workers"_a, "shape"_a, "spin_s"_a, "timeout_s"_a,
           "action_count"_a.none(), "result_rows"_a.none(),
           nb::sig("def __init__(self, workers: WorkerProcesses, shape: dict[str, typing.Any], "
                   "spin_s: float, timeout_s: float, action_count: int | None, result_rows: int | "
                   "None) -> None"))
      .def_prop_ro("memory_fd", &EnvPoolCore::memory_fd)
      .def("set_results", &EnvPoolCore::set_results, "batch_class"_a, "structure"_a, "copy"_a,
           nb::sig("def set_results(self, batch_class: type, structure: str, copy: bool) -> None"),
           "How ``result`` gives the rows. To be called before the first step.")
      .def("set_on_failure", &EnvPoolCore::set_on_failure, "callback"_a.none())
      .def("restart", &EnvPoolCore::restart, "worker"_a)
      .def(
          "step",
          [](nb::handle self, nb::handle actions, nb::handle batch, nb::handle env_ids) {
            const auto sequence = nb::cast<EnvPoolCore&>(self).step(actions, batch, env_ids);
            return future_of(self, batch, sequence);
          },
          "actions"_a.none(), "batch"_a.none() = 0, nb::kw_only(), "env_ids"_a = nb::none(),
          nb::sig("def step(self, actions: typing.Any, batch: int = 0, *, env_ids: typing.Any = "
                  "None) -> EnvFuture"))
      .def(
          "reset",
          [](nb::handle self, nb::handle seed, nb::handle batch) {
            const auto sequence = nb::cast<EnvPoolCore&>(self).reset(seed, batch);
            return future_of(self, batch, sequence);
          },
          "seed"_a = nb::none(), nb::kw_only(), "batch"_a.none() = 0,
          nb::sig("def reset(self, seed: int | None = None, *, batch: int = 0) -> EnvFuture"))
      .def("close", &EnvPoolCore::close, "timeout_s"_a, "at_exit"_a = false)
      .def("set_closed_text", &EnvPoolCore::set_closed_text, "text"_a)
      .def_prop_ro("is_closed", &EnvPoolCore::is_closed);
}

}  // namespace

void bind_env_pool(nb::module_& m) {
  using namespace nb::literals;
  bind_core(m);
  nb::class_<EnvWorker>(m, "EnvWorker", "The loop of a worker process of ``reverie.EnvPool``.")
      .def("__init__", &init_worker, "memory_fd"_a, "shape"_a, "worker"_a, "spin_s"_a,
           "structure"_a, "is_discrete"_a, "action_start"_a, "refuses_nan"_a, "seed"_a.none(),
           nb::sig("def __init__(self, memory_fd: int, shape: dict[str, typing.Any], worker: int, "
                   "spin_s: float, structure: str, is_discrete: bool, action_start: int, "
                   "refuses_nan: bool, seed: int | None) -> None"))
      .def("run", &EnvWorker::run, "envs"_a, "make"_a,
           nb::sig(
               "def run(self, envs: list[list[typing.Any]], make: collections.abc.Callable[[int, "
               "int], typing.Any]) -> None"));
  m.def(
      "exit_with_parent",
      [](int parent_pid) {
        unwrap(exit_with_parent(parent_pid));
        ignore_interrupts();
      },
      "parent_pid"_a,
      "Ends this process when its parent is gone, and leaves Ctrl-C to the parent.");
}

}  // namespace reverie::python
