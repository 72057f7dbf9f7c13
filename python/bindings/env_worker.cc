#include "python/bindings/env_worker.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <nanobind/stl/string.h>

#include "python/bindings/convert.h"
#include "python/bindings/numpy_api.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// The traceback of an exception, as Python prints it.
std::string traceback_text(const nb::python_error& error) {
  try {
    // Empty if our own code raised.
    const nb::object traceback =
        error.traceback().is_valid() ? nb::borrow(error.traceback()) : nb::none();
    const nb::object lines = nb::module_::import_("traceback")
                                 .attr("format_exception")(error.type(), error.value(), traceback);
    return str_of(nb::str("").attr("join")(lines));
  } catch (nb::python_error& again) {
    return str_of(error.type());
  }
}

// The items of a tuple that an environment returned.
template <std::size_t kCount>
std::array<PyObject*, kCount> items(nb::handle result, const char* call, const char* form) {
  if (!PyTuple_Check(result.ptr()) ||
      static_cast<std::size_t>(PyTuple_GET_SIZE(result.ptr())) != kCount) {
    const bool is_tuple = PyTuple_Check(result.ptr());
    raise_type_error(
        format("{} returned {}; it must return {}, as Gymnasium has it (wrap an environment of the "
               "old Gym in reverie.envs.OldGym)",
               call,
               is_tuple ? format("{} values", PyTuple_GET_SIZE(result.ptr()))
                        : format("a {}", type_name_of(result.ptr())),
               form));
  }
  std::array<PyObject*, kCount> found;
  for (std::size_t i = 0; i < kCount; ++i) {
    found[i] = PyTuple_GET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i));
  }
  return found;
}

float reward_of(PyObject* value) {
  const double reward = PyFloat_AsDouble(value);
  if (reward == -1.0 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
    PyErr_Clear();
    raise_type_error(format("the reward is a {}; it must be a number", type_name_of(value)));
  }
  return static_cast<float>(reward);
}

bool flag_of(PyObject* value) {
  if (value == Py_True) return true;
  if (value == Py_False) return false;
  const int is_true = PyObject_IsTrue(value);
  if (is_true < 0) raise_pending();
  return is_true != 0;
}

nb::object method_of(nb::handle object, const char* name) {
  nb::object found = nb::steal(PyObject_GetAttrString(object.ptr(), name));
  if (!found.is_valid()) {
    PyErr_Clear();
    raise_type_error(
        format("the environment is a {}, which has no {}()", type_name_of(object.ptr()), name));
  }
  return found;
}

// The value of a column if info has no such entry: NaN, or 0 for types without NaN.
void write_missing(const TensorSpec& spec, std::byte* to) {
  const auto count = static_cast<std::size_t>(element_count(spec.shape));
  std::memset(to, 0, count * dtype_size_bytes(spec.dtype));
  if (spec.dtype == DType::kFloat32) {
    std::fill_n(reinterpret_cast<float*>(to), count, std::numeric_limits<float>::quiet_NaN());
  } else if (spec.dtype == DType::kFloat64) {
    std::fill_n(reinterpret_cast<double*>(to), count, std::numeric_limits<double>::quiet_NaN());
  }
}

std::vector<nb::object> keys_of(const std::string& path) {
  std::vector<nb::object> keys;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    keys.push_back(nb::str(path.data() + begin, end - begin));
    begin = end + 1;
  }
  return keys;
}

}  // namespace

EnvWorker::EnvWorker(SharedMemory memory, SharedLayout layout, std::size_t worker, Duration spin,
                     EnvWorkerOptions options)
    : memory_(std::move(memory)),
      port_(SharedView(std::move(layout), memory_.bytes()), worker, spin),
      options_(std::move(options)),
      observations_("the observation", view().shape().observation, options_.structure) {
  const PoolShape& shape = view().shape();
  for (const TensorSpec& spec : shape.info) info_paths_.push_back(keys_of(spec.name));
  rows_.resize(shape.batch_count);
  for (std::size_t batch = 0; batch < shape.batch_count; ++batch) {
    const SharedLayout::Batch& arrays = view().layout().batch(batch);
    for (std::size_t env = port_.range().begin; env < port_.range().end; ++env) {
      Rows& rows = rows_[batch].emplace_back();
      for (const auto& column : arrays.observation) {
        rows.observation.push_back(view().row(column, env));
      }
      for (const auto& column : arrays.final_observation) {
        rows.final_observation.push_back(view().row(column, env));
      }
      for (const auto& column : arrays.info) rows.info.push_back(view().row(column, env));
    }
  }
}

void EnvWorker::adopt(std::size_t batch, std::size_t env, nb::object object) {
  Env& place = env_at(batch, env);
  place.step = method_of(object, "step");
  place.reset = method_of(object, "reset");
  place.object = std::move(object);
}

void EnvWorker::run(nb::list envs, nb::object make) {
  make_ = std::move(make);
  envs_.assign(view().shape().batch_count, std::vector<Env>(port_.range().count()));
  for (std::size_t batch = 0; batch < envs_.size(); ++batch) {
    for (std::size_t i = 0; i < envs_[batch].size(); ++i) {
      adopt(batch, port_.range().begin + i, nb::borrow<nb::object>(envs[batch][i]));
    }
  }
  while (true) {
    // Python's own handlers for signals run at least this often.
    const std::optional<PoolCommand> command =
        without_gil([this] { return port_.next(std::chrono::seconds(1)); });
    if (PyErr_CheckSignals() != 0) raise_pending();
    if (!command) continue;
    if (command->op == PoolOp::kStop) break;
    serve(*command);
  }
  envs_.clear();
}

void EnvWorker::serve(const PoolCommand& command) {
  const std::size_t batch = command.batch;
  const EnvRange range = port_.range_of(command);
  for (std::size_t env = range.begin; env < range.end; ++env) {
    port_.begin(batch, env);
    try {
      if (command.op == PoolOp::kReset) {
        const BatchBlock& block = view().batch(batch);
        const nb::object seed = block.has_seed.load() == 0
                                    ? seed_of_reset(batch, env)
                                    : nb::int_(block.seed.load() + static_cast<std::int64_t>(env));
        reset(batch, env, seed);
      } else {
        step(command, env);
      }
      if (view().state(batch, env) != EnvState::kBroken) port_.complete(command, env);
    } catch (nb::python_error& error) {
      if (is_forked_child()) throw;
      port_.fail(batch, env, traceback_text(error));
    } catch (const std::exception& error) {
      port_.fail(batch, env, error.what());
    }
  }
  port_.finish(command);
}

void EnvWorker::leave_if_forked() const {
  if (!is_forked_child()) return;
  PyErr_SetNone(PyExc_SystemExit);
  raise_pending();
}

nb::object EnvWorker::action(std::size_t batch, std::size_t env) const {
  const std::byte* const row = view().row(view().layout().batch(batch).actions, env);
  if (!options_.is_discrete) return read_array(view().shape().action, row);
  std::int64_t number = 0;
  std::memcpy(&number, row, sizeof(number));
  return owned(PyLong_FromLongLong(number + options_.action_start));
}

void EnvWorker::set_outcome(std::size_t batch, std::size_t env, float reward, bool terminated,
                            bool truncated) const {
  view().reward(batch, env) = reward;
  view().terminated(batch, env) = terminated;
  view().truncated(batch, env) = truncated;
}

void EnvWorker::step(const PoolCommand& command, std::size_t env) {
  const std::size_t batch = command.batch;
  const EnvState state = view().state(batch, env);
  if (state == EnvState::kBroken) return;
  if (state == EnvState::kLost) {
    return port_.is_complete(command, env) ? keep_outcome(batch, env) : begin_anew(batch, env);
  }
  if (state == EnvState::kNew) return reset(batch, env, seed_of_reset(batch, env));
  Rows& rows = rows_at(batch, env);
  const nb::object taken = action(batch, env);
  const nb::object result = owned(PyObject_CallOneArg(env_at(batch, env).step.ptr(), taken.ptr()));
  leave_if_forked();
  const auto values =
      items<5>(result, "step", "five, (observation, reward, terminated, truncated, info)");
  const bool terminated = flag_of(values[2]);
  const bool truncated = flag_of(values[3]);
  set_outcome(batch, env, reward_of(values[1]), terminated, truncated);
  write_info(values[4], rows);
  if (!terminated && !truncated) return write_observation(values[0], rows.observation);
  write_observation(values[0], rows.final_observation);
  begin_episode(batch, env, nb::none());
}

// Begins an episode in place of the last worker's, which is truncated after its last observation.
void EnvWorker::begin_anew(std::size_t batch, std::size_t env) {
  copy_to_final_observation(batch, env);
  write_info(begin_episode(batch, env, nb::none()), rows_at(batch, env));
  set_outcome(batch, env, 0.0f, false, true);
  view().set_state(batch, env, EnvState::kRunning);
}

// For a step that the last worker had taken before it ended. Its outcome stays. The old episode, if
// it was not over, is truncated, since its environment is gone. If this worker ends meanwhile, too,
// the next one can continue from the same row.
void EnvWorker::keep_outcome(std::size_t batch, std::size_t env) {
  if (!view().terminated(batch, env) && !view().truncated(batch, env)) {
    copy_to_final_observation(batch, env);
    std::atomic_ref(view().truncated(batch, env)).store(true, std::memory_order_release);
  }
  begin_episode(batch, env, nb::none());
  view().set_state(batch, env, EnvState::kRunning);
}

void EnvWorker::copy_to_final_observation(std::size_t batch, std::size_t env) {
  const Rows& rows = rows_at(batch, env);
  const SharedLayout::Batch& arrays = view().layout().batch(batch);
  for (std::size_t i = 0; i < arrays.observation.size(); ++i) {
    std::memcpy(rows.final_observation[i], rows.observation[i], arrays.observation[i].row_bytes);
  }
}

void EnvWorker::reset(std::size_t batch, std::size_t env, nb::handle seed) {
  if (view().state(batch, env) == EnvState::kBroken) {
    adopt(batch, env, make_(batch, env));
  }
  const nb::object info = begin_episode(batch, env, seed);
  write_info(info, rows_at(batch, env));
  set_outcome(batch, env, 0.0f, false, false);
  view().set_state(batch, env, EnvState::kRunning);
}

nb::object EnvWorker::seed_of_reset(std::size_t batch, std::size_t env) const {
  if (options_.seed.is_none() || view().state(batch, env) != EnvState::kNew) return nb::none();
  return options_.seed + nb::int_(batch * view().shape().env_count + env);
}

nb::object EnvWorker::begin_episode(std::size_t batch, std::size_t env, nb::handle seed) {
  const nb::object& reset = env_at(batch, env).reset;
  const nb::object result =
      seed.is_none() ? owned(PyObject_CallNoArgs(reset.ptr())) : reset(nb::arg("seed") = seed);
  leave_if_forked();
  const auto values = items<2>(result, "reset", "two, (observation, info)");
  write_observation(values[0], rows_at(batch, env).observation);
  return nb::borrow(values[1]);
}

void EnvWorker::write_observation(nb::handle observation, std::span<std::byte* const> rows) {
  observations_.write(observation, rows);
  if (!options_.refuses_nan) return;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TensorSpec& spec = observations_.columns()[i];
    if (!has_nan(spec, rows[i])) continue;
    raise(invalid_argument("the observation{} holds a NaN, which the pool was told to refuse",
                           spec.name.empty() ? "" : format(" '{}'", spec.name)));
  }
}

void EnvWorker::write_info(nb::handle info, const Rows& rows) const {
  for (std::size_t i = 0; i < rows.info.size(); ++i) {
    const TensorSpec& spec = view().shape().info[i];
    PyObject* found = info.ptr();
    for (const nb::object& key : info_paths_[i]) {
      found = PyDict_Check(found) ? PyDict_GetItemWithError(found, key.ptr()) : nullptr;
      if (found == nullptr) break;
    }
    if (found == nullptr) {
      if (PyErr_Occurred() != nullptr) raise_pending();
      write_missing(spec, rows.info[i]);
    } else {
      write_value("info", spec, found, rows.info[i]);
    }
  }
}

}  // namespace reverie::python
