// Binds env/native_pool.h: native environments in this process.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/env_results.h"
#include "python/bindings/native_envs.h"
#include "reverie/base/format.h"
#include "reverie/env/native/classic_control.h"
#include "reverie/env/native_pool.h"
#include "reverie/env/native_registry.h"

namespace reverie::python {
namespace {

// A batch of fewer inline environments is stepped with the interpreter's lock held: that takes
// microseconds, while another thread would keep a released lock for milliseconds.
constexpr std::size_t kBriefEnvCount = 256;
constexpr const char* kLeafStructure = "\"*\"";  // the structure of a nest that is one array

std::shared_ptr<EnvResults> make_results(const NativePool& pool, nb::object batch_class,
                                         bool is_copied) {
  std::vector<EnvColumns> batches;
  for (std::size_t batch = 0; batch < pool.batch_count(); ++batch) {
    const std::shared_ptr<NativeArrays>& arrays = pool.arrays(batch);
    const NativeRows& rows = arrays->rows;
    const auto bytes = [](auto* data) { return reinterpret_cast<std::byte*>(data); };
    batches.push_back({bytes(rows.reward),
                       bytes(rows.terminated),
                       bytes(rows.truncated),
                       {},
                       {rows.observation},
                       {rows.final_observation},
                       arrays});
  }
  EnvResultSpec spec{
      std::move(batch_class), kLeafStructure, {pool.spec().observation}, {}, pool.env_count()};
  return std::make_shared<EnvResults>(std::move(spec), std::move(batches), is_copied);
}

nb::object float_array(const std::vector<float>& values, const Shape& shape) {
  if (values.empty()) return nb::none();
  return copy_to_array(std::span<const float>(values)).attr("reshape")(nb::cast(shape));
}

nb::dict spec_dict(const NativeSpec& spec) {
  nb::dict given;
  given["id"] = spec.id;
  given["observation_dtype"] = std::string(dtype_name(spec.observation.dtype));
  given["observation_shape"] = nb::tuple(nb::cast(spec.observation.shape));
  given["observation_low"] = float_array(spec.observation_low, spec.observation.shape);
  given["observation_high"] = float_array(spec.observation_high, spec.observation.shape);
  given["action_shape"] = nb::tuple(nb::cast(spec.action_shape));
  given["action_count"] = spec.action_count;
  given["action_low"] = float_array(spec.action_low, spec.action_shape);
  given["action_high"] = float_array(spec.action_high, spec.action_shape);
  given["max_episode_steps"] = spec.max_episode_steps;
  return given;
}

// Ctrl-C, among others.
bool signalled() {
  const GilHeld held;
  return PyErr_CheckSignals() != 0;
}

// The current or latest step or reset of one batch. One object serves all of them.
class Future {
 public:
  Future(std::shared_ptr<NativePool> pool, std::shared_ptr<EnvResults> results, std::size_t batch,
         double timeout_s)
      : pool_(std::move(pool)),
        results_(std::move(results)),
        batch_(batch),
        timeout_s_(timeout_s) {}

  bool done() const { return pool_->done(batch_); }

  nb::object result(nb::handle timeout_s) const {
    // Without a wait the lock is kept.
    const Status status =
        pool_->done(batch_) ? pool_->wait(batch_, TimePoint::max())
                            : wait(timeout_s.is_none() ? Clock::system().now() + seconds(timeout_s_)
                                                       : deadline(timeout_s));
    unwrap(status);
    return results_->of_batch(batch_);
  }

 private:
  Status wait(TimePoint until) const {
    return without_gil([&] { return pool_->wait(batch_, until, signalled); });
  }

  std::shared_ptr<NativePool> pool_;
  std::shared_ptr<EnvResults> results_;
  std::size_t batch_;
  double timeout_s_;
};

class Pool {
 public:
  Pool(std::shared_ptr<NativePool> pool, nb::object batch_class, bool is_copied, double timeout_s)
      : pool_(std::move(pool)),
        results_(make_results(*pool_, std::move(batch_class), is_copied)),
        timeout_s_(timeout_s),
        is_brief_(pool_->thread_count() > 0 ||
                  (pool_->cost() == NativeCost::kInline && pool_->env_count() < kBriefEnvCount)),
        is_discrete_(pool_->spec().action_count > 0),
        shape_(pool_->spec().action_shape) {
    shape_.insert(shape_.begin(), static_cast<std::int64_t>(pool_->env_count()));
    if (is_discrete_) shape_.resize(1);
    for (std::size_t batch = 0; batch < pool_->batch_count(); ++batch) {
      futures_.push_back(nb::cast(Future(pool_, results_, batch, timeout_s)));
    }
  }

  const NativePool& pool() const { return *pool_; }

  nb::object reset(nb::handle seed, nb::handle batch) const {
    const std::size_t index = batch_index(batch);
    std::optional<std::uint64_t> given;
    if (!seed.is_none()) given = integer_argument<std::uint64_t>("seed", seed, 0);
    if (pool_->done(index)) {
      unwrap(briefly([&] { return pool_->reset(index, given); }));
    } else {
      const TimePoint until = Clock::system().now() + seconds(timeout_s_);
      unwrap(without_gil([&] { return pool_->reset(index, given, until, signalled); }));
    }
    results_->begin_step(index);
    return futures_[index];
  }

  // Each environment that `mask` chooses, with its entry of `seeds`: an integer, or None.
  nb::object reset_some(const std::vector<bool>& mask, nb::list seeds, nb::handle batch) const {
    const std::size_t index = batch_index(batch);
    NativeReset what{mask, std::vector<std::optional<std::uint64_t>>(pool_->env_count())};
    const std::size_t count = pool_->env_count();
    if (mask.size() != count || seeds.size() != count) {
      raise(invalid_argument("reset_mask has {} entries and there are {} seeds; both must be {}",
                             mask.size(), seeds.size(), count));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const nb::object seed = seeds[i];
      if (seed.is_none()) continue;
      what.seeds[i] = integer_argument<std::uint64_t>("seed", seed, 0);
    }
    const TimePoint until = Clock::system().now() + seconds(timeout_s_);
    unwrap(without_gil([&] { return pool_->reset_some(index, what, until, signalled); }));
    results_->begin_step(index);
    return futures_[index];
  }

  nb::object step(nb::handle actions, nb::handle batch) const {
    const std::size_t index = batch_index(batch);
    nb::object held;
    const std::span<const std::byte> given = action_bytes(actions, held);
    unwrap(briefly([&] { return pool_->step(index, given); }));
    results_->begin_step(index);
    return futures_[index];
  }

  nb::object get_state(nb::handle env, nb::handle batch) const {
    const std::vector<double> state = unwrap(pool_->get_state(batch_index(batch), env_index(env)));
    return copy_to_array(std::span<const double>(state));
  }

  void set_state(nb::handle env, const std::vector<double>& state, nb::handle batch) const {
    const std::size_t index = batch_index(batch);
    const std::size_t row = env_index(env);
    unwrap(without_gil([&] { return pool_->set_state(index, row, state); }));
  }

  nb::object render(nb::handle env, nb::handle batch) const {
    const std::size_t index = batch_index(batch);
    const std::size_t row = env_index(env);
    const Canvas canvas = unwrap(without_gil([&] { return pool_->draw(index, row); }));
    const Shape shape{static_cast<std::int64_t>(canvas.height()),
                      static_cast<std::int64_t>(canvas.width()), 3};
    nb::object picture = new_array(DType::kUInt8, shape);
    std::memcpy(array_data(picture), canvas.rgb().data(), canvas.rgb().size());
    return picture;
  }

  void close() const {
    without_gil([&] { pool_->close(); });
  }

 private:
  // Lets other threads run meanwhile, unless the step is too short for that.
  template <typename F>
  Status briefly(F&& f) const {
    return is_brief_ ? f() : without_gil(f);
  }

  std::size_t batch_index(nb::handle batch) const {
    return integer_argument<std::size_t>("batch", batch, 0, pool_->batch_count() - 1);
  }
  std::size_t env_index(nb::handle env) const {
    return integer_argument<std::size_t>("env_index", env, 0, pool_->env_count() - 1);
  }

  bool has_right_layout(PyArrayObject* array, DType dtype) const {
    if (dtype_of(PyArray_DESCR(array)) != dtype || !PyArray_ISCARRAY_RO(array)) return false;
    const auto rank = static_cast<std::size_t>(PyArray_NDIM(array));
    return rank == shape_.size() && std::equal(shape_.begin(), shape_.end(), PyArray_DIMS(array));
  }

  // The actions in the pool's form: in place, or as a copy in `held`.
  std::span<const std::byte> action_bytes(nb::handle actions, nb::object& held) const {
    const DType dtype = is_discrete_ ? DType::kInt64 : DType::kFloat32;
    PyObject* given = actions.ptr();
    if (!PyArray_CheckExact(given) ||
        !has_right_layout(reinterpret_cast<PyArrayObject*>(given), dtype)) [[unlikely]] {
      held = converted(actions, dtype);
      given = held.ptr();
    }
    auto* const array = reinterpret_cast<PyArrayObject*>(given);
    return {static_cast<const std::byte*>(PyArray_DATA(array)),
            static_cast<std::size_t>(PyArray_NBYTES(array))};
  }

  // Accepts integers of any type for discrete actions, real numbers of any type for others.
  nb::object converted(nb::handle actions, DType dtype) const {
    const nb::object array = owned(PyArray_FROM_O(actions.ptr()));
    const int number = PyArray_TYPE(reinterpret_cast<PyArrayObject*>(array.ptr()));
    const bool is_right = is_discrete_ ? PyTypeNum_ISINTEGER(number)
                                       : PyTypeNum_ISINTEGER(number) || PyTypeNum_ISFLOAT(number);
    if (!is_right) {
      raise_type_error(format("actions are {}; {} takes {}", str_of(array.attr("dtype")),
                              pool_->spec().id, is_discrete_ ? "integers" : "float32 numbers"));
    }
    nb::object made = owned(PyArray_FROM_OTF(
        array.ptr(), is_discrete_ ? NPY_INT64 : NPY_FLOAT32,
        NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED | NPY_ARRAY_FORCECAST));
    if (!has_right_layout(reinterpret_cast<PyArrayObject*>(made.ptr()), dtype)) {
      raise(invalid_argument("actions have the shape {}; {} environments of {} take {}",
                             str_of(array.attr("shape")), pool_->env_count(), pool_->spec().id,
                             shape_text(shape_)));
    }
    return made;
  }

  std::shared_ptr<NativePool> pool_;
  std::shared_ptr<EnvResults> results_;
  double timeout_s_;
  bool is_brief_;
  bool is_discrete_;
  Shape shape_;  // of actions
  std::vector<nb::object> futures_;
};

void init_pool(Pool* self, nb::handle id, nb::handle num_envs, nb::handle num_batches,
               nb::handle num_threads, nb::handle seed, bool first_step_resets,
               const std::string& autoreset, const Options& options, double timeout_s,
               nb::object batch_class, bool copy) {
  NativePoolOptions pool;
  pool.env_count = integer_argument<std::size_t>("num_envs", num_envs, 1, NativePool::kEnvCountMax);
  pool.batch_count =
      integer_argument<std::size_t>("num_batches", num_batches, 1, NativePool::kBatchCountMax);
  if (!num_threads.is_none()) {
    pool.thread_count =
        integer_argument<std::size_t>("num_threads", num_threads, 0, NativePool::kThreadCountMax);
  }
  if (!seed.is_none()) pool.seed = integer_argument<std::uint64_t>("seed", seed, 0);
  pool.first_step_resets = first_step_resets;
  pool.autoreset = autoreset == "NextStep"   ? NativeAutoreset::kNextStep
                   : autoreset == "Disabled" ? NativeAutoreset::kDisabled
                                             : NativeAutoreset::kSameStep;
  const std::string name(text_argument("id", id));
  auto made = without_gil([&] { return NativePool::open(native_registry(), name, options, pool); });
  new (self) Pool(unwrap(std::move(made)), std::move(batch_class), copy, timeout_s);
}

}  // namespace

NativeRegistry& native_registry() {
  static auto* const instance = [] {
    auto* const made = new NativeRegistry;
    REVERIE_CHECK(add_classic_control(*made).ok());
    return made;
  }();
  return *instance;
}

void bind_env(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<Future>(m, "NativeFuture", nb::is_final(),
                     "The step or reset of a batch that is under way, or was last.")
      .def("__iter__", &refuse_unpacking, nb::sig("def __iter__(self) -> typing.NoReturn"))
      .def("done", &Future::done, "Whether ``result`` would return at once.")
      .def("result", &Future::result, "timeout_s"_a.none() = nb::none(),
           nb::sig("def result(self, timeout_s: float | None = None) -> typing.Any"),
           R"(Waits for the batch.

Args:
    timeout_s: how long at most; None is the pool's own limit.

Raises:
    DeadlineExceededError: the step takes longer; it goes on.)");
  nb::class_<Pool>(m, "NativePool", "See ``reverie.envs.native.NativePool``.")
      .def(
          "__init__", &init_pool, "id"_a.none(), "num_envs"_a.none(), "num_batches"_a.none(),
          "num_threads"_a.none(), "seed"_a.none(), "first_step_resets"_a, "autoreset"_a,
          "options"_a, "timeout_s"_a, "batch_class"_a, "copy"_a,
          nb::sig("def __init__(self, id: str, num_envs: int, num_batches: int, "
                  "num_threads: int | None, seed: int | None, first_step_resets: bool, "
                  "autoreset: str, options: dict[str, bool | int | float | str], timeout_s: float, "
                  "batch_class: type, copy: bool) -> None"))
      .def(
          "spec", [](const Pool& self) { return spec_dict(self.pool().spec()); },
          nb::sig("def spec(self) -> dict[str, typing.Any]"))
      .def_prop_ro("num_threads", [](const Pool& self) { return self.pool().thread_count(); })
      .def("reset", &Pool::reset, "seed"_a.none(), "batch"_a.none(),
           nb::sig("def reset(self, seed: int | None, batch: int) -> NativeFuture"))
      .def("reset_some", &Pool::reset_some, "mask"_a, "seeds"_a, "batch"_a.none(),
           nb::sig("def reset_some(self, mask: collections.abc.Sequence[bool], "
                   "seeds: list[int | None], batch: int) -> NativeFuture"))
      .def("step", &Pool::step, "actions"_a.none(), "batch"_a.none(),
           nb::sig("def step(self, actions: typing.Any, batch: int) -> NativeFuture"))
      .def("get_state", &Pool::get_state, "env_index"_a.none(), "batch"_a.none(),
           nb::sig("def get_state(self, env_index: int, batch: int) -> numpy.ndarray"))
      .def("set_state", &Pool::set_state, "env_index"_a.none(), "state"_a, "batch"_a.none(),
           nb::sig("def set_state(self, env_index: int, "
                   "state: collections.abc.Sequence[float], batch: int) -> None"))
      .def("render", &Pool::render, "env_index"_a.none(), "batch"_a.none(),
           nb::sig("def render(self, env_index: int, batch: int) -> numpy.ndarray"))
      .def("close", &Pool::close);
  m.def(
      "native_env_ids", [] { return native_registry().ids(); },
      "The names of the native environments, in alphabetical order.");
  m.def(
      "native_env_spec",
      [](nb::handle id, const Options& options) {
        const std::string name(text_argument("id", id));
        return spec_dict(unwrap(native_registry().make(name, options, 0))->spec());
      },
      "id"_a.none(), "options"_a,
      nb::sig("def native_env_spec(id: str, options: dict[str, bool | int | float | str]) -> "
              "dict[str, typing.Any]"));
}

}  // namespace reverie::python
