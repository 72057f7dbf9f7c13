#include "python/bindings/env_pool.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/env_rows.h"
#include "python/bindings/gil.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"
#include "reverie/env/action_rows.h"

namespace reverie::python {
namespace {

// A torch tensor, copied to the CPU; anything else unchanged.
nb::object on_cpu(nb::handle actions) {
  if (!nb::hasattr(actions, "detach")) return nb::borrow(actions);
  return actions.attr("detach")().attr("cpu")().attr("numpy")();
}

}  // namespace

EnvPoolCore::EnvPoolCore(std::shared_ptr<PoolWorkers> workers, SharedMemory memory,
                         SharedLayout layout, Duration spin, PoolOptions options)
    : memory_(std::make_shared<SharedMemory>(std::move(memory))),
      pool_(SharedView(std::move(layout), memory_->bytes()), spin),
      workers_(std::move(workers)),
      watched_(pool_, *workers_, options.is_ready_mode ? options.result_rows : 0),
      options_(options) {}

EnvPoolCore::~EnvPoolCore() {
  if (!is_closed_ && fork_guard_.check("EnvPool").ok()) pool_.stop();
}

void EnvPoolCore::check() const {
  unwrap(fork_guard_.check("EnvPool"));
  if (!is_closed_) return;
  if (ending_thread_ && *ending_thread_ != std::this_thread::get_id()) sleep_until_the_end();
  raise(failed_precondition("{}", closed_text_));
}

void EnvPoolCore::set_results(nb::object batch_class, std::string structure, bool is_copied) {
  const PoolShape& shape = view().shape();
  std::vector<EnvColumns> batches;
  for (std::size_t batch = 0; batch < shape.batch_count; ++batch) {
    const SharedLayout::Batch& places = view().layout().batch(batch);
    const auto begin = [&](const SharedLayout::Column& column) { return view().row(column, 0); };
    const auto begins = [&](const auto& columns) {
      std::vector<std::byte*> all;
      for (const SharedLayout::Column& column : columns) all.push_back(begin(column));
      return all;
    };
    batches.push_back({begin(places.rewards), begin(places.terminated), begin(places.truncated),
                       begins(places.info), begins(places.observation),
                       begins(places.final_observation), memory_});
  }
  EnvResultSpec spec{std::move(batch_class), std::move(structure), shape.observation, shape.info,
                     options_.is_ready_mode ? options_.result_rows : shape.env_count};
  results_ = std::make_shared<EnvResults>(std::move(spec), std::move(batches),
                                          is_copied || options_.is_ready_mode);
}

std::size_t EnvPoolCore::batch_argument(nb::handle batch) const {
  return integer_argument<std::size_t>("batch", batch, 0, view().shape().batch_count - 1);
}

std::vector<std::int32_t> EnvPoolCore::env_argument(nb::handle env_ids) const {
  const nb::object array = nb::steal(PyArray_FromAny(
      env_ids.ptr(), PyArray_DescrFromType(NPY_INT32), 1, 1, NPY_ARRAY_CARRAY_RO, nullptr));
  if (!array.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
    PyErr_Clear();
    raise_type_error(format("env_ids is {}; it must be a flat array of integers", shown(env_ids)));
  }
  const auto* const ids = reinterpret_cast<const std::int32_t*>(array_data(array));
  std::vector<std::int32_t> envs(ids, ids + PyArray_SIZE(as_array(array)));
  unwrap(check_env_ids(envs, view().shape().env_count));
  return envs;
}

// The rows belong to `envs`, or to all environments of the batch in order if it is empty.
void EnvPoolCore::write_actions(nb::handle actions, std::size_t batch,
                                std::span<const std::int32_t> envs) {
  const TensorSpec& spec = view().shape().action;
  const std::size_t rows = envs.empty() ? view().shape().env_count : envs.size();
  const Shape wanted = with_rows(rows, spec.shape);
  nb::object array = nb::borrow(actions);
  const auto fits = [&] {
    PyArrayObject* const given = as_array(array);
    return dtype_of(PyArray_DESCR(given)) == spec.dtype && PyArray_ISCARRAY_RO(given);
  };
  if (!PyArray_CheckExact(array.ptr()) || !fits()) {
    array = nb::steal(PyArray_FromAny(on_cpu(actions).ptr(), nullptr, 0, 0, 0, nullptr));
    if (!array.is_valid()) {
      if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
      nb::python_error error;
      raise_type_error(format("actions is a {} that NumPy cannot read: {}",
                              type_name_of(actions.ptr()), str_of(error.value())));
    }
    refuse_masked("actions", array);
    const nb::object dtype = numpy_dtype(spec.dtype);
    auto* const descr = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
    if (!PyArray_CanCastTypeTo(PyArray_DESCR(as_array(array)), descr, NPY_SAME_KIND_CASTING)) {
      raise_type_error(
          format("actions have dtype {}; the environments take {}",
                 str_of(nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(as_array(array))))),
                 dtype_name(spec.dtype)));
    }
    Py_INCREF(reinterpret_cast<PyObject*>(descr));
    array =
        owned(PyArray_FromArray(as_array(array), descr, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
  }
  const std::span<const std::int64_t> shape(
      PyArray_DIMS(as_array(array)), static_cast<std::size_t>(PyArray_NDIM(as_array(array))));
  if (!std::ranges::equal(shape, wanted)) {
    raise(invalid_argument("actions have shape {}; {} environments take {}", shape_text(shape),
                           rows, shape_text(wanted)));
  }
  const std::byte* const from = array_data(array);
  if (options_.action_count) {
    unwrap(check_discrete_actions({reinterpret_cast<const std::int64_t*>(from), rows},
                                  *options_.action_count));
  }
  write_action_rows(view(), batch, envs, from);
}

std::uint32_t EnvPoolCore::step(nb::handle actions, nb::handle batch_index, nb::handle env_ids) {
  check();
  const std::size_t batch = batch_argument(batch_index);
  if (options_.is_ready_mode) {
    std::vector<std::int32_t> envs;
    if (env_ids.is_none()) {
      for (std::size_t env = 0; env < view().shape().env_count; ++env) {
        envs.push_back(static_cast<std::int32_t>(env));
      }
    } else {
      envs = env_argument(env_ids);
    }
    if (envs.empty()) raise(invalid_argument("env_ids is empty; step at least one environment"));
    // Before the actions are written: an environment in flight may still read its own.
    unwrap(pool_.check_idle(envs));
    write_actions(actions, batch, envs);
    check();  // reading the actions may have let another thread close the pool
    unwrap(pool_.post_envs(envs, PoolOp::kStep));
    return 0;
  }
  if (!env_ids.is_none()) {
    raise(invalid_argument(
        "env_ids is for a pool with batch_size, whose results hold the environments that are ready "
        "first; this one steps all {} of a batch",
        view().shape().env_count));
  }
  unwrap(pool_.check_idle(batch));
  write_actions(actions, batch, {});
  check();  // as above
  const std::uint32_t sequence = unwrap(pool_.post(batch, PoolOp::kStep));
  results_->begin_step(batch);
  return sequence;
}

std::uint32_t EnvPoolCore::reset(nb::handle seed, nb::handle batch_index) {
  const std::size_t batch = batch_argument(batch_index);
  std::optional<std::int64_t> given;
  if (!seed.is_none()) given = integer_argument("seed", seed, 0);
  check();  // reading the seed may have let another thread close the pool
  if (!options_.is_ready_mode) {
    const std::uint32_t sequence = unwrap(pool_.post(batch, PoolOp::kReset, given));
    results_->begin_step(batch);
    return sequence;
  }

  const Duration limit = seconds(options_.timeout_s);
  std::exception_ptr raised;
  const WatchedPool::WaitResult drained =
      without_gil([&] { return watched_.drain(limit, waiter(raised)); });
  unwrap_wait(drained, raised);
  std::vector<std::int32_t> envs(view().shape().env_count);
  for (std::size_t env = 0; env < envs.size(); ++env) envs[env] = static_cast<std::int32_t>(env);
  unwrap(pool_.post_envs(envs, PoolOp::kReset, given));
  return 0;
}

bool EnvPoolCore::is_done(std::size_t batch, std::uint32_t sequence) {
  check();
  if (options_.is_ready_mode) return pool_.are_ready(options_.result_rows);
  return pool_.is_done(batch, sequence);
}

// A callback that raises must not unwind the library's frames: it ends the wait.
WatchedPool::Waiter EnvPoolCore::waiter(std::exception_ptr& raised) {
  WatchedPool::Waiter waiter;
  waiter.may_go_on = [this] {
    if (is_closed_) return false;
    const GilHeld held;
    return PyErr_CheckSignals() == 0;
  };
  waiter.replaced = [this, &raised](std::size_t worker) {
    const GilHeld held;
    try {
      return !on_failure_.is_none() && nb::cast<bool>(on_failure_(worker));
    } catch (...) {
      raised = std::current_exception();
      return false;
    }
  };
  return waiter;
}

void EnvPoolCore::unwrap_wait(const WatchedPool::WaitResult& waited,
                              const std::exception_ptr& raised) const {
  if (raised) std::rethrow_exception(raised);
  check();
  if (waited.failure) raise_env_error(*waited.failure);
  unwrap(waited.status);
}

nb::object EnvPoolCore::result(std::size_t batch, std::uint32_t sequence, nb::handle timeout_s) {
  const TimePoint until = timeout_s.is_none() ? Clock::system().now() + seconds(options_.timeout_s)
                                              : deadline(timeout_s);
  check();
  std::exception_ptr raised;
  std::vector<std::int32_t> ready;
  const WatchedPool::WaitResult waited =
      without_gil([&] { return watched_.wait(batch, sequence, until, waiter(raised), ready); });
  unwrap_wait(waited, raised);
  const std::shared_ptr<EnvResults> results =
      results_;  // close() may be called while rows are copied
  return options_.is_ready_mode ? results->of_envs(ready) : results->of_batch(batch);
}

void EnvPoolCore::raise_env_error(const PoolFailure& failure) const {
  const auto number = [](const std::optional<std::size_t>& value) {
    return value ? nb::object(nb::int_(*value)) : nb::object(nb::none());
  };
  const nb::object type = nb::module_::import_("reverie.errors").attr("EnvError");
  nb::object error = type(failure.text);
  error.attr("batch") = number(failure.batch);
  error.attr("env_id") = number(failure.env);
  error.attr("worker") = failure.worker;
  error.attr("traceback_text") = failure.traceback;
  raise_object(error);
}

void EnvPoolCore::restart(std::size_t worker) {
  check();
  pool_.restart(worker);
}

void EnvPoolCore::close(double timeout_s, bool at_exit) {
  unwrap(fork_guard_.check("EnvPool"));
  if (is_closed_) return;
  if (at_exit) ending_thread_ = std::this_thread::get_id();
  is_closed_ = true;
  pool_.stop();
  without_gil([&] { workers_->end_all(seconds(timeout_s)); });
  results_.reset();
  on_failure_ = nb::none();
}

}  // namespace reverie::python
