// Binds client/replay_buffer.h over a store of its own.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/nest.h"
#include "python/bindings/step_arguments.h"
#include "reverie/base/fork.h"
#include "reverie/base/format.h"
#include "reverie/base/random.h"
#include "reverie/client/replay_buffer.h"
#include "reverie/replay/local_service.h"

namespace reverie::python {
namespace {

constexpr const char* kTable = "replay buffer";
constexpr std::int64_t kBatchMax = std::int64_t{1} << 31;
// With fewer bytes to copy, handing the interpreter's lock over would cost more.
constexpr std::size_t kLargeStepBytes = 64 * 1024;

// The keys of a batch, in its order.
enum BatchKey : std::size_t {
  kObs,
  kAction,
  kReward,
  kNextObs,
  kTerminated,
  kDiscount,
  kMask,
  kWeights,
  kTickets,
  kKeyCount
};

// Interned, never destroyed.
nb::handle batch_key(BatchKey key) {
  static auto* const keys = [] {
    auto* const made = new std::vector<nb::object>;
    for (const char* name : {"obs", "action", "reward", "next_obs", "terminated", "discount",
                             "mask", "weights", "tickets"}) {
      made->push_back(owned(PyUnicode_InternFromString(name)));
    }
    return made;
  }();
  return (*keys)[key];
}

// The arrays of one batch while it is made: new ones, or those of an earlier batch.
class BatchArrays {
 public:
  BatchArrays(const TransitionPlan& plan, const std::string& obs_structure,
              const std::string& action_structure, std::size_t count)
      : plan_(plan), structures_{&obs_structure, &action_structure}, count_(count) {}

  // Raises when an array of `out` does not fit.
  void make(nb::handle out) {
    if (!out.is_none() && !PyDict_Check(out.ptr())) {
      raise_type_error(format("out is {}; it must be a batch of an earlier call, or None",
                              str_of(nb::repr(out))));
    }
    batch_ = out.is_none() ? owned(PyDict_New()) : nb::borrow(out);
    is_new_ = out.is_none();
    const TransitionOptions& options = plan_.options();
    const bool has_stack = options.frame_stack > 1;
    obs_ = leaves(kObs, plan_.obs(), has_stack, *structures_[0]);
    action_ = leaves(kAction, plan_.action(), false, *structures_[1]);
    TransitionTargets& to = targets_.transitions;
    to.reward = reinterpret_cast<float*>(flat(kReward, DType::kFloat32, true));
    next_obs_ = leaves(kNextObs, plan_.obs(), has_stack, *structures_[0]);
    to.terminated = reinterpret_cast<std::uint8_t*>(flat(kTerminated, DType::kBool, true));
    to.discount = reinterpret_cast<float*>(flat(kDiscount, DType::kFloat32, true));
    if (options.has_sequences()) {
      to.mask = reinterpret_cast<std::uint8_t*>(flat(kMask, DType::kBool, true));
    }
    targets_.weights = reinterpret_cast<float*>(flat(kWeights, DType::kFloat32, false));
    targets_.tickets = reinterpret_cast<std::uint64_t*>(flat(kTickets, DType::kUInt64, false));
    to.obs = obs_;
    to.action = action_;
    to.next_obs = next_obs_;
  }
  const ReplayBufferTargets& targets() const { return targets_; }
  nb::object batch() const { return batch_; }

 private:
  Shape shape_of(const TensorSpec& spec, bool has_stack) const {
    Shape shape{static_cast<std::int64_t>(count_)};
    const TransitionOptions& options = plan_.options();
    if (options.has_sequences()) shape.push_back(options.steps_max());
    if (has_stack) shape.push_back(options.frame_stack);
    shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
    return shape;
  }

  void check(nb::handle array, DType dtype, std::span<const std::int64_t> shape,
             BatchKey key) const {
    auto* const given = reinterpret_cast<PyArrayObject*>(array.ptr());
    if (PyArray_Check(array.ptr()) && dtype_of(PyArray_DESCR(given)) == dtype &&
        PyArray_ISCARRAY(given) &&
        std::ranges::equal(std::span<const npy_intp>(PyArray_DIMS(given),
                                                     static_cast<std::size_t>(PyArray_NDIM(given))),
                           shape)) {
      return;
    }
    raise(invalid_argument(
        "out['{}'] is no writable, row-major {} array of shape {}, which this batch needs; give "
        "out=None for new arrays",
        str_of(batch_key(key)), dtype_name(dtype), shape_text(shape)));
  }

  nb::object given(BatchKey key) const {
    PyObject* const found = PyDict_GetItemWithError(batch_.ptr(), batch_key(key).ptr());
    if (found == nullptr) {
      if (PyErr_Occurred() != nullptr) raise_pending();
      raise(invalid_argument("out has no '{}'; give it a batch of this buffer, or None",
                             str_of(batch_key(key))));
    }
    return nb::borrow(found);
  }
  void set(BatchKey key, nb::handle value) {
    if (PyDict_SetItem(batch_.ptr(), batch_key(key).ptr(), value.ptr()) < 0) raise_pending();
  }

  std::byte* flat(BatchKey key, DType dtype, bool has_steps) {
    const TransitionOptions& options = plan_.options();
    std::array<std::int64_t, 2> extents{static_cast<std::int64_t>(count_), options.steps_max()};
    const std::span<const std::int64_t> shape =
        std::span(extents).first(has_steps && options.has_sequences() ? 2 : 1);
    nb::object array = is_new_ ? new_array(dtype, shape) : given(key);
    if (is_new_) {
      set(key, array);
    } else {
      check(array, dtype, shape, key);
    }
    keep_.push_back(array);
    return array_data(array);
  }

  std::vector<std::byte*> leaves(BatchKey key, std::span<const TensorSpec> specs, bool has_stack,
                                 const std::string& structure) {
    std::vector<nb::object> arrays;
    if (is_new_) {
      for (const TensorSpec& spec : specs) {
        arrays.push_back(new_array(spec.dtype, shape_of(spec, has_stack)));
      }
      set(key, fold(structure, arrays));
    } else {
      const nb::object nest = given(key);
      Leaves found;
      const auto taken = Nest::of(nest, found);
      if (taken->text() != structure) {
        raise(invalid_argument("out['{}'] has the structure {}, not {}; give out=None",
                               str_of(batch_key(key)), taken->text(), structure));
      }
      for (std::size_t i = 0; i < specs.size(); ++i) {
        nb::object array = nb::borrow(found[taken->leaf_of_column(i)]);
        check(array, specs[i].dtype, shape_of(specs[i], has_stack), key);
        arrays.push_back(std::move(array));
      }
    }
    std::vector<std::byte*> places;
    for (nb::object& array : arrays) {
      places.push_back(array_data(array));
      keep_.push_back(std::move(array));
    }
    return places;
  }

  const TransitionPlan& plan_;
  const std::string* structures_[2];
  std::size_t count_;
  bool is_new_ = true;
  nb::object batch_;
  std::vector<nb::object> keep_;
  std::vector<std::byte*> obs_;
  std::vector<std::byte*> action_;
  std::vector<std::byte*> next_obs_;
  ReplayBufferTargets targets_;
};

class PyReplayBuffer {
 public:
  PyReplayBuffer(TransitionOptions options, std::optional<double> alpha, nb::object beta,
                 std::optional<std::uint64_t> seed)
      : options_(options), is_prioritized_(alpha.has_value()), beta_(std::move(beta)) {
    unwrap(TransitionPlan::check(options));
    Random random(seed);
    TableOptions table = ReplayBuffer::table_options(options, kTable);
    table.sampler = alpha ? ComponentSpec{"Prioritized", {{"priority_exponent", *alpha}}}
                          : ComponentSpec{"Uniform", {}};
    table.sampler.options["seed"] = static_cast<std::int64_t>(random.next() >> 1);
    chunk_seed_ = random.next();
    service_ = unwrap(LocalService::open({std::move(table)}, {}));
    table_ = unwrap(service_->table(kTable));
  }
  PyReplayBuffer(const PyReplayBuffer&) = delete;
  PyReplayBuffer& operator=(const PyReplayBuffer&) = delete;

  void add(nb::handle obs, nb::handle action, nb::handle reward, nb::handle next_obs,
           nb::handle terminated, nb::handle truncated, nb::handle mask) {
    check();
    if (in_add_) {
      raise(failed_precondition(
          "this replay buffer is in use by another add() or clear(), in another thread or around "
          "this one; give each thread a buffer of its own, or a lock"));
    }
    const AddMark mark(*this);
    const bool is_first = buffer_ == nullptr;
    obs_.read(obs, is_first ? nullptr : &obs_structure_);
    action_.read(action, is_first ? nullptr : &action_structure_);
    next_obs_.read(next_obs, is_first ? &obs_.structure() : &obs_structure_);
    reward_.read("reward", reward);
    terminated_.read("terminated", terminated);
    truncated_.read("truncated", truncated);
    if (truncated_.is_scalar) truncated_.values.resize(options_.env_count, truncated_.values[0]);
    StepArrays step;
    if (!mask.is_none()) {
      mask_.read("mask", mask);
      step.mask = mask_.values;
    }
    step.obs = obs_.leaves();
    step.action = action_.leaves();
    step.next_obs = next_obs_.leaves();
    step.reward = reward_.values;
    step.terminated = terminated_.values;
    step.truncated = truncated_.values;
    step.has_env_axis = !reward_.is_scalar || options_.env_count > 1;
    const std::shared_ptr<ReplayBuffer> buffer = is_first ? open(step) : buffer_;
    const std::size_t step_bytes = buffer->plan().schema()->step_bytes() * options_.env_count;
    unwrap(step_bytes < kLargeStepBytes ? buffer->add(step)
                                        : without_gil([&] { return buffer->add(step); }));
    if (!is_first) return;
    buffer_ = buffer;
    obs_structure_ = obs_.structure();
    action_structure_ = action_.structure();
  }

  nb::object sample(nb::handle batch_size, nb::handle beta, bool distinct, nb::handle timeout_s,
                    nb::handle out) {
    check();
    ReplayBufferDraw draw;
    draw.count = static_cast<std::size_t>(integer_argument("batch_size", batch_size, 1, kBatchMax));
    draw.distinct = distinct;
    draw.deadline = deadline(timeout_s);
    if (is_prioritized_) draw.beta = exponent(beta.is_none() ? nb::handle(beta_) : beta);
    const std::shared_ptr<ReplayBuffer> buffer = buffer_;
    if (!buffer) {
      raise(failed_precondition(
          "the replay buffer has no items to sample, and learns what they are from the first "
          "add(); add steps first"));
    }
    BatchArrays arrays(buffer->plan(), obs_structure_, action_structure_, draw.count);
    arrays.make(out);
    Waiting waiting(*service_, kTable);
    const WaitOptions wait = waiting.options();
    unwrap(without_gil([&] { return buffer->sample(draw, arrays.targets(), wait); }));
    return arrays.batch();
  }

  std::size_t update_priorities(nb::handle tickets, nb::handle priorities) {
    check();
    nb::object keep_tickets;
    nb::object keep_priorities;
    std::vector<double> scratch;
    const auto given = read_tickets(tickets, keep_tickets);
    const auto values = read_priorities(priorities, scratch, keep_priorities);
    const std::shared_ptr<ReplayBuffer> buffer = buffer_;
    if (!buffer) raise(failed_precondition("the replay buffer has no items yet; add steps first"));
    Waiting waiting(*service_, kTable);
    const WaitOptions wait = waiting.options();
    const std::size_t updated =
        unwrap(without_gil([&] { return buffer->update(given, values, wait); }));
    ++update_count_;
    return updated;
  }

  void clear() {
    check();
    if (in_add_) raise(failed_precondition("this replay buffer is in use by another add()"));
    const AddMark mark(*this);
    const std::shared_ptr<ReplayBuffer> buffer = buffer_;
    if (!buffer) return;
    Waiting waiting(*service_, kTable);
    const WaitOptions wait = waiting.options();
    unwrap(without_gil([&] { return buffer->clear(wait); }));
  }

  void close() {
    check();
    without_gil([&] { service_->close(); });
  }

  std::size_t size() const {
    check();
    return table_->size();
  }
  std::int64_t stale_updates() const {
    check();
    return table_->info().missing_updates;
  }
  double max_priority() const {
    check();
    return table_->info().max_priority;
  }
  std::size_t memory_bytes() const {
    check();
    return table_->memory_bytes() + static_cast<std::size_t>(service_->used_bytes());
  }
  std::size_t update_count() const { return update_count_; }
  const TransitionOptions& options() const { return options_; }
  bool is_prioritized() const { return is_prioritized_; }

 private:
  // Marks the buffer as being added to.
  class AddMark {
   public:
    explicit AddMark(PyReplayBuffer& buffer) : buffer_(buffer) { buffer.in_add_ = true; }
    AddMark(const AddMark&) = delete;
    AddMark& operator=(const AddMark&) = delete;
    ~AddMark() { buffer_.in_add_ = false; }

   private:
    PyReplayBuffer& buffer_;
  };

  void check() const { unwrap(fork_guard_.check("ReplayBuffer")); }

  // The first step tells what the columns are.
  std::shared_ptr<ReplayBuffer> open(const StepArrays& step) {
    const auto specs = [&](const char* what, const NestArgument& argument) {
      std::vector<TensorSpec> made;
      for (std::size_t i = 0; i < argument.leaves().size(); ++i) {
        const TensorView& leaf = argument.leaves()[i];
        Shape shape(leaf.shape.begin(), leaf.shape.end());
        if (step.has_env_axis) {
          if (shape.empty() || shape[0] != options_.env_count) {
            raise(invalid_argument("{} has the shape {}; its first axis must be num_envs={}",
                                   argument.path(i).empty()
                                       ? std::string(what)
                                       : format("{} column '{}'", what, argument.path(i)),
                                   shape_text(leaf.shape), options_.env_count));
          }
          shape.erase(shape.begin());
        }
        made.push_back({argument.path(i), leaf.dtype, std::move(shape)});
      }
      return made;
    };
    return unwrap(ReplayBuffer::open(service_, kTable, options_, specs("obs", obs_),
                                     specs("action", action_), chunk_seed_));
  }

  // A number, or a function of the number of updates so far.
  double exponent(nb::handle beta) const {
    double value = 0;
    if (PyFloat_Check(beta.ptr()) || PyCallable_Check(beta.ptr()) == 0) {
      value = number_argument("beta", beta);
    } else {
      value = number_argument("beta(update_count)", beta(update_count_));
    }
    if (!std::isfinite(value) || value < 0) {
      raise(invalid_argument("beta is {}; it must be finite and >= 0", value));
    }
    return value;
  }

  const TransitionOptions options_;
  const bool is_prioritized_;
  const nb::object beta_;
  std::uint64_t chunk_seed_ = 0;
  ForkGuard fork_guard_;
  std::shared_ptr<LocalService> service_;
  Table* table_ = nullptr;

  // The interpreter's lock guards these.
  std::shared_ptr<ReplayBuffer> buffer_;  // null before the first step
  std::string obs_structure_;
  std::string action_structure_;
  bool in_add_ = false;
  std::size_t update_count_ = 0;
  NestArgument obs_{"obs"};
  NestArgument action_{"action"};
  NestArgument next_obs_{"next_obs"};
  FloatArgument reward_;
  FlagArgument terminated_;
  FlagArgument truncated_;
  FlagArgument mask_;
};

std::uint32_t small_integer(const char* name, nb::handle value, std::int64_t least) {
  return static_cast<std::uint32_t>(
      integer_argument(name, value, least, std::numeric_limits<std::int32_t>::max()));
}

void init(PyReplayBuffer* self, nb::handle capacity, nb::handle num_envs, nb::handle frame_stack,
          nb::handle n_step, nb::handle gamma, nb::handle alpha, nb::handle beta, nb::handle seed,
          nb::handle sequence_length, nb::handle period, nb::handle burn_in, bool pad_sequences) {
  TransitionOptions options;
  options.capacity = static_cast<std::size_t>(integer_argument("capacity", capacity, 1));
  options.env_count = small_integer("num_envs", num_envs, 1);
  options.frame_stack = small_integer("frame_stack", frame_stack, 1);
  options.n_step = small_integer("n_step", n_step, 1);
  options.gamma = number_argument("gamma", gamma);
  if (!sequence_length.is_none()) {
    options.sequence_length = small_integer("sequence_length", sequence_length, 1);
    options.period =
        period.is_none() ? options.sequence_length : small_integer("period", period, 1);
    options.burn_in = small_integer("burn_in", burn_in, 0);
    options.pad_sequences = pad_sequences;
  }
  std::optional<double> exponent;
  if (!alpha.is_none()) exponent = number_argument("alpha", alpha);
  std::optional<std::uint64_t> given_seed;
  if (!seed.is_none()) given_seed = static_cast<std::uint64_t>(integer_argument("seed", seed, 0));
  new (self) PyReplayBuffer(options, exponent, nb::borrow(beta), given_seed);
}

}  // namespace

void bind_replay_buffer(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PyReplayBuffer>(m, "ReplayBuffer", "See ``reverie.ReplayBuffer``.")
      .def("__init__", &init, "capacity"_a, "num_envs"_a, "frame_stack"_a, "n_step"_a, "gamma"_a,
           "alpha"_a.none(), "beta"_a, "seed"_a.none(), "sequence_length"_a.none(),
           "period"_a.none(), "burn_in"_a, "pad_sequences"_a,
           nb::sig("def __init__(self, capacity: int, num_envs: int, frame_stack: int, n_step: "
                   "int, gamma: float, alpha: float | None, beta: float | "
                   "collections.abc.Callable[[int], float], seed: int | None, sequence_length: int "
                   "| None, period: int | None, burn_in: int, pad_sequences: bool) -> None"))
      .def("add", &PyReplayBuffer::add, "obs"_a.none(), "action"_a.none(), "reward"_a.none(),
           "next_obs"_a.none(), "terminated"_a.none(), "truncated"_a.none() = false, nb::kw_only(),
           "mask"_a = nb::none(),
           nb::sig("def add(self, obs: typing.Any, action: typing.Any, reward: typing.Any, "
                   "next_obs: typing.Any, terminated: typing.Any, truncated: typing.Any = False, "
                   "*, mask: typing.Any = None) -> None"),
           R"(Stores one step of each environment.

The first call says what the columns are: arrays keep their types from then on, a Python ``int``
is int64 and a ``float`` float64; rewards are stored as float32, whatever they come as.

Args:
    obs: a nest of arrays, ``[num_envs, ...]`` each; without the leading axis where ``num_envs``
        is 1 and ``reward`` is a single number. With ``frame_stack`` the newest frame alone.
    action: a nest of arrays, in the same way.
    reward: ``[num_envs]`` numbers.
    next_obs: what the step led to, as ``obs``; at an episode's end its last observation, not
        the first of the next episode.
    terminated: ``[num_envs]`` bool: the episode ended, and nothing is to be had behind it.
    truncated: ``[num_envs]`` bool: it was cut short; what was to come still counts.
    mask: ``[num_envs]`` bool: False for environments that made no step, which are left out.

Raises:
    InvalidArgumentError: another shape, dtype, structure or number of environments than in the
        first call: nothing is stored.
    UnsupportedTypeError: what is given is no array of numbers.
    CancelledError: the buffer is closed.)")
      .def("sample", &PyReplayBuffer::sample, "batch_size"_a, nb::kw_only(), "beta"_a = nb::none(),
           "distinct"_a = false, "timeout_s"_a = 0.0, "out"_a = nb::none(),
           nb::sig("def sample(self, batch_size: int, *, beta: float | None = None, distinct: bool "
                   "= False, timeout_s: float | None = 0.0, out: dict[str, typing.Any] | None = "
                   "None) -> dict[str, typing.Any]"),
           R"(Draws a batch; with replacement unless ``distinct``.

Args:
    batch_size: B, >= 1; may exceed the number of items unless ``distinct``.
    beta: instead of the buffer's.
    distinct: no item twice in the batch.
    timeout_s: how long to wait for the first item; None without limit.
    out: a batch of an earlier call of the same size, whose arrays are filled again.

Returns:
    A dict of arrays: ``obs`` and ``next_obs`` ``[B, ...]`` (``[B, frame_stack, ...]`` with
    stacks), ``action`` ``[B, ...]``, ``reward`` ``[B]`` float32, summed over n steps,
    ``terminated`` ``[B]`` bool, ``discount`` ``[B]`` float32, what the value of ``next_obs`` is
    to be multiplied with (``gamma ** steps``, 0 where the episode terminated), ``weights``
    ``[B]`` float32, at most 1, and ``tickets`` ``[B]`` uint64 for :meth:`update_priorities`.
    With sequences an axis ``[T]`` follows ``[B]``, weights and tickets excepted, and ``mask``
    ``[B, T]`` bool is True for steps that count: neither burn-in nor padding.

Raises:
    FailedPreconditionError: there is no item, and ``timeout_s`` has passed.
    InvalidArgumentError: a number lies outside, an array of ``out`` does not fit, or there are
        fewer items than distinct ones were asked for.)")
      .def("update_priorities", &PyReplayBuffer::update_priorities, "tickets"_a.none(),
           "priorities"_a.none(),
           nb::sig("def update_priorities(self, tickets: typing.Any, priorities: typing.Any) -> "
                   "int"),
           R"(Gives sampled items new priorities; those that are gone are ignored, and counted.

Args:
    tickets: of a batch.
    priorities: one for each, finite and >= 0: absolute TD errors, say.

Returns:
    How many items were updated. The others add to ``stale_updates``.

Raises:
    InvalidArgumentError: the lengths differ, or a priority is none: nothing was updated.)")
      .def("clear", &PyReplayBuffer::clear,
           "Drops all items. The streams begin anew; shapes and dtypes stay.")
      .def("close", &PyReplayBuffer::close,
           "Ends calls that wait, with ``CancelledError``; those to come end so too.")
      .def("__len__", &PyReplayBuffer::size)
      .def_prop_ro("capacity", [](const PyReplayBuffer& self) { return self.options().capacity; })
      .def_prop_ro("num_envs", [](const PyReplayBuffer& self) { return self.options().env_count; })
      .def_prop_ro("prioritized", &PyReplayBuffer::is_prioritized)
      .def_prop_ro("max_priority", &PyReplayBuffer::max_priority,
                   "The largest priority so far, which new items get; 1 before the first update.")
      .def_prop_ro("update_count", &PyReplayBuffer::update_count,
                   "Calls of ``update_priorities`` so far: what a ``beta`` schedule is given.")
      .def_prop_ro("stale_updates", &PyReplayBuffer::stale_updates,
                   "Priorities that came for items that were gone.")
      .def_prop_ro("memory_bytes", &PyReplayBuffer::memory_bytes,
                   "What the items take, their steps included.");
}

}  // namespace reverie::python
