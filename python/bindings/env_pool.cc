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
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

PyArrayObject* as_array(nb::handle array) {
  return reinterpret_cast<PyArrayObject*>(array.ptr());
}

Shape with_rows(std::size_t rows, const Shape& shape) {
  Shape all = {static_cast<std::int64_t>(rows)};
  all.insert(all.end(), shape.begin(), shape.end());
  return all;
}

// A tensor of torch, brought to the CPU; anything else as it is.
nb::object on_cpu(nb::handle actions) {
  if (!nb::hasattr(actions, "detach")) return nb::borrow(actions);
  return actions.attr("detach")().attr("cpu")().attr("numpy")();
}

}  // namespace

Result<int> Workers::start(std::size_t worker, const ChildProcess::Options& options) {
  MutexLock lock(mutex_);
  if (children_[worker]) children_[worker]->kill();
  children_[worker].reset();
  REVERIE_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::start(options));
  const int pid = child.pid();
  children_[worker].emplace(std::move(child));
  return pid;
}

std::optional<std::string> Workers::end_text(std::size_t worker) {
  MutexLock lock(mutex_);
  if (threads_[worker].is_there) return threads_[worker].end_text;
  if (!children_[worker]) return "was not started";
  if (!children_[worker]->has_ended()) return std::nullopt;
  return children_[worker]->end_text();
}

std::optional<int> Workers::pid(std::size_t worker) {
  MutexLock lock(mutex_);
  if (!children_[worker] || children_[worker]->has_ended()) return std::nullopt;
  return children_[worker]->pid();
}

void Workers::set_thread(std::size_t worker, std::optional<std::string> end_text) {
  MutexLock lock(mutex_);
  threads_[worker] = {true, std::move(end_text)};
}

void Workers::end_all(Duration at_most) {
  MutexLock lock(mutex_);
  const TimePoint end = Clock::system().now() + at_most;
  for (auto& child : children_) {
    if (child) child->wait(std::max(Duration(0), end - Clock::system().now()));
  }
  for (auto& child : children_) child.reset();
}

EnvPoolCore::EnvPoolCore(std::shared_ptr<Workers> workers, SharedMemory memory, SharedLayout layout,
                         Duration spin, PoolOptions options)
    : memory_(std::make_shared<SharedMemory>(std::move(memory))),
      pool_(SharedView(std::move(layout), memory_->bytes()), spin),
      workers_(std::move(workers)),
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
  return static_cast<std::size_t>(integer_argument(
      "batch", batch, 0, static_cast<std::int64_t>(view().shape().batch_count) - 1));
}

std::vector<std::int32_t> EnvPoolCore::env_argument(nb::handle env_ids) const {
  const nb::object array = nb::steal(PyArray_FromAny(
      env_ids.ptr(), PyArray_DescrFromType(NPY_INT32), 1, 1, NPY_ARRAY_CARRAY_RO, nullptr));
  if (!array.is_valid()) {
    PyErr_Clear();
    raise_type_error(
        format("env_ids is {}; it must be a flat array of integers", str_of(nb::repr(env_ids))));
  }
  const auto* const ids = reinterpret_cast<const std::int32_t*>(array_data(array));
  std::vector<std::int32_t> envs(ids, ids + PyArray_SIZE(as_array(array)));
  std::vector<bool> seen(view().shape().env_count);
  for (const std::int32_t env : envs) {
    if (env < 0 || static_cast<std::size_t>(env) >= seen.size()) {
      raise(invalid_argument("env_ids has {}; they are 0 to {}", env, seen.size() - 1));
    }
    if (seen[static_cast<std::size_t>(env)]) {
      raise(invalid_argument("env_ids has {} twice; give each environment one action", env));
    }
    seen[static_cast<std::size_t>(env)] = true;
  }
  return envs;
}

void EnvPoolCore::check_discrete(const std::int64_t* actions, std::size_t count) const {
  if (!options_.action_count) return;
  const auto bound = static_cast<std::uint64_t>(*options_.action_count);
  for (std::size_t i = 0; i < count; ++i) {
    if (static_cast<std::uint64_t>(actions[i]) < bound) continue;
    raise(invalid_argument("actions[{}] is {}; actions are 0 to {}", i, actions[i], bound - 1));
  }
}

// `envs` says whose rows they are; all of the batch in order if it is empty.
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
    if (!array.is_valid()) raise_pending();
    const nb::object dtype = numpy_dtype(spec.dtype);
    auto* const descr = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
    if (!PyArray_CanCastTypeTo(PyArray_DESCR(as_array(array)), descr, NPY_SAME_KIND_CASTING)) {
      raise_type_error(
          format("actions have dtype {}; the environments take {}",
                 str_of(nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(as_array(array))))),
                 dtype_name(spec.dtype)));
    }
    Py_INCREF(descr);
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
  check_discrete(reinterpret_cast<const std::int64_t*>(from), options_.action_count ? rows : 0);
  const SharedLayout::Column& column = view().layout().batch(batch).actions;
  if (envs.empty()) {
    std::memcpy(view().row(column, 0), from, rows * column.row_bytes);
    return;
  }
  for (std::size_t i = 0; i < rows; ++i) {
    std::memcpy(view().row(column, static_cast<std::size_t>(envs[i])), from + i * column.row_bytes,
                column.row_bytes);
  }
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
  const std::uint32_t sequence = unwrap(pool_.post(batch, PoolOp::kStep));
  results_->begin_step(batch);
  return sequence;
}

std::uint32_t EnvPoolCore::reset(nb::handle seed, nb::handle batch_index) {
  check();
  const std::size_t batch = batch_argument(batch_index);
  std::optional<std::int64_t> given;
  if (!seed.is_none()) given = integer_argument("seed", seed, 0);
  if (!options_.is_ready_mode) {
    const std::uint32_t sequence = unwrap(pool_.post(batch, PoolOp::kReset, given));
    results_->begin_step(batch);
    return sequence;
  }

  while (true) {
    const TimePoint until = Clock::system().now() + seconds(options_.timeout_s);
    const Status drained = without_gil([&] {
      return pool_.drain(until, [this] {
        const GilHeld held;
        return PyErr_CheckSignals() == 0 && !dead_worker(0);
      });
    });
    if (drained.ok()) break;
    const auto dead = dead_worker(0);
    if (!dead) unwrap(drained);
    handle_dead(*dead);
  }
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

std::optional<std::size_t> EnvPoolCore::dead_worker(std::size_t batch) {
  for (const std::size_t worker : pool_.late_workers(batch)) {
    if (workers_->end_text(worker)) return worker;
  }
  return std::nullopt;
}

nb::object EnvPoolCore::result(std::size_t batch, std::uint32_t sequence, nb::handle timeout_s) {
  const TimePoint until = timeout_s.is_none() ? Clock::system().now() + seconds(options_.timeout_s)
                                              : deadline(timeout_s);
  const SharedPool::Check go_on = [this, batch] {
    if (is_closed_ || dead_worker(batch)) return false;
    const GilHeld held;
    return PyErr_CheckSignals() == 0;
  };
  std::vector<std::int32_t> ready;
  while (true) {
    check();
    if (options_.is_ready_mode && pool_.in_flight_count() < options_.result_rows) {
      raise(failed_precondition(
          "{} environments are in flight and a result holds {}; step some more first",
          pool_.in_flight_count(), options_.result_rows));
    }
    const Status waited = without_gil([&] {
      return options_.is_ready_mode ? pool_.wait_ready(options_.result_rows, until, go_on, ready)
                                    : pool_.wait(batch, sequence, until, go_on);
    });
    if (!waited.ok()) {
      check();
      const auto dead = dead_worker(batch);
      if (!dead) unwrap(waited);
      handle_dead(*dead);
      continue;
    }
    const auto failure = pool_.failure(batch);
    if (failure && (!options_.is_ready_mode || ready.empty())) {
      handle_raised(*failure);
      continue;
    }
    check();
    const std::shared_ptr<EnvResults> results =
        results_;  // a close() may come while rows are copied
    return options_.is_ready_mode ? results->of_envs(ready) : results->of_batch(batch);
  }
}

bool EnvPoolCore::may_go_on(std::size_t worker) {
  return !on_failure_.is_none() && nb::cast<bool>(on_failure_(worker));
}

void EnvPoolCore::raise_env_error(const std::string& text, nb::object batch, nb::object env,
                                  std::size_t worker, const std::string& traceback) const {
  const nb::object type = nb::module_::import_("reverie.errors").attr("EnvError");
  nb::object error = type(text);
  error.attr("batch") = batch;
  error.attr("env_id") = env;
  error.attr("worker") = worker;
  error.attr("traceback_text") = traceback;
  raise_object(error);
}

void EnvPoolCore::handle_dead(std::size_t worker) {
  const std::string how = workers_->end_text(worker).value_or("ended");
  const auto at = pool_.position(worker);
  if (may_go_on(worker)) return;
  nb::object batch = nb::none();
  nb::object env = nb::none();
  std::string where;
  if (at) {
    batch = nb::int_(at->first);
    env = nb::int_(at->second);
    where = format(" while it stepped environment {} of batch {}", at->second, at->first);
  }
  raise_env_error(
      format("worker {} {}{}; pool.restart({}) replaces it, and the result can be taken "
             "then",
             worker, how, where, worker),
      batch, env, worker, "");
}

void EnvPoolCore::handle_raised(const EnvFailure& failure) {
  if (may_go_on(failure.worker)) return;
  const std::string text = failure.text.empty()
                               ? std::string("it raised earlier, and was not reset since")
                               : failure.text;
  raise_env_error(format("environment {} of batch {}, in worker {}, raised; pool.restart({}) or "
                         "pool.reset() makes it anew:\n{}",
                         failure.env, failure.batch, failure.worker, failure.worker, text),
                  nb::int_(failure.batch), nb::int_(failure.env), failure.worker, text);
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
