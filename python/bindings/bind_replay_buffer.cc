// Binds transitions/replay_buffer.h over its own store.
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <string_view>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python/bindings/batch.h"
#include "python/bindings/bind.h"
#include "python/bindings/collected.h"
#include "python/bindings/convert.h"
#include "python/bindings/replay_buffer.h"
#include "python/bindings/writer_support.h"

namespace reverie::python {
namespace {

std::uint32_t small_integer(const char* name, nb::handle value, std::int64_t least) {
  return integer_argument<std::uint32_t>(name, value, least,
                                         std::numeric_limits<std::int32_t>::max());
}

// (strategy, share, achieved, desired), which the package has checked, or None.
std::optional<HindsightOptions> hindsight_argument(nb::handle given) {
  if (given.is_none()) return std::nullopt;
  HindsightOptions options;
  const std::string_view strategy = text_argument("strategy", given[0]);
  if (strategy == "final") options.strategy = HindsightStrategy::kFinal;
  if (strategy == "episode") options.strategy = HindsightStrategy::kEpisode;
  options.share = number_argument("share", given[1]);
  options.achieved = text_argument("achieved", given[2]);
  options.goal = text_argument("desired", given[3]);
  return options;
}

void init(PyReplayBuffer* self, nb::handle capacity, nb::handle num_envs, nb::handle frame_stack,
          nb::handle n_step, nb::handle gamma, nb::handle alpha, nb::handle beta,
          nb::handle weights, nb::handle seed, nb::handle sequence_length, nb::handle period,
          nb::handle burn_in, bool pad_sequences, nb::handle hindsight, nb::handle codec,
          bool is_finished) {
  TransitionOptions options;
  options.capacity = integer_argument<std::size_t>("capacity", capacity, 1);
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
  options.hindsight = hindsight_argument(hindsight);
  options.codec = codec_argument(codec);
  std::optional<double> exponent;
  if (!alpha.is_none()) exponent = number_argument("alpha", alpha);
  std::optional<std::uint64_t> given_seed;
  if (!seed.is_none()) given_seed = integer_argument<std::uint64_t>("seed", seed, 0);
  new (self) PyReplayBuffer(options, exponent, nb::borrow(beta), weights_argument(weights),
                            given_seed, is_finished);
}

}  // namespace

void bind_replay_buffer(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PyReplayBuffer>(m, "ReplayBuffer", nb::type_slots(kCollected<PyReplayBuffer>),
                             "See ``reverie.ReplayBuffer``.")
      .def("__init__", &init, "capacity"_a, "num_envs"_a, "frame_stack"_a, "n_step"_a, "gamma"_a,
           "alpha"_a.none(), "beta"_a.none(), "weights"_a, "seed"_a.none(),
           "sequence_length"_a.none(), "period"_a.none(), "burn_in"_a, "pad_sequences"_a,
           "hindsight"_a.none(), "codec"_a, "finished"_a,
           nb::sig("def __init__(self, capacity: int, num_envs: int, frame_stack: int, n_step: "
                   "int, gamma: float, alpha: float | None, beta: float | "
                   "collections.abc.Callable[[int], float], weights: str, seed: int | None, "
                   "sequence_length: int "
                   "| None, period: int | None, burn_in: int, pad_sequences: bool, hindsight: "
                   "tuple[str, float, str, str] | None, codec: str, finished: bool) -> None"))
      .def("_save", &PyReplayBuffer::save, "path"_a, "attached"_a = nb::bytes("", 0))
      .def("_load", &PyReplayBuffer::load, "folder"_a)
      .def_static("_arguments_of", &PyReplayBuffer::arguments_of, "path"_a,
                  nb::sig("def _arguments_of(path: str) -> dict[str, typing.Any]"))
      .def("add", &PyReplayBuffer::add, "obs"_a.none(), "action"_a.none(), "reward"_a.none(),
           "next_obs"_a.none(), "terminated"_a = nb::none(), "truncated"_a.none() = false,
           nb::kw_only(), "mask"_a = nb::none(), "extra"_a,
           nb::sig("def add(self, obs: typing.Any, action: typing.Any, reward: typing.Any, "
                   "next_obs: typing.Any, terminated: typing.Any, truncated: typing.Any = False, "
                   "*, mask: typing.Any = None, **extra: typing.Any) -> None"),
           R"(Stores one step of each environment.

The first call says what the columns are: arrays keep their types from then on, a Python ``int``
is int64 and a ``float`` float64; rewards are stored as float32, whatever they come as. Later calls
may bring types that NumPy casts to these without loss, such as int32 where int64 came first.

Args:
    obs: a nest of arrays, ``[num_envs, ...]`` each; without the leading axis where ``num_envs``
        is 1 and ``reward`` is a single number. With ``frame_stack`` the newest frame alone.
    action: a nest of arrays, in the same way.
    reward: ``[num_envs]`` numbers.
    next_obs: what the step led to, as ``obs``; at an episode's end its last observation, not
        the first of the next episode.
    terminated: ``[num_envs]`` bool, or 0 and 1: the episode ended, and nothing is to be had
        after it.
    truncated: ``[num_envs]`` bool: it was cut short; what was to come still counts.
    mask: ``[num_envs]`` bool: False for environments that made no step, which are left out.
    extra: columns of your own, as ``action``: ``log_prob=``, ``action_mask=``. Given with each
        step; a batch has them by the same names, of the first of n steps.

Rewards and flags may have a last axis of 1, ``[num_envs, 1]``.

Raises:
    InvalidArgumentError: another shape, dtype, structure or number of environments than in the
        first call, a reward that float32 cannot hold, or a flag that is neither 0 nor 1: nothing
        is stored.
    UnsupportedTypeError: what is given is no array of numbers, or is a masked array.
    CancelledError: the buffer is closed.)")
      .def("sample", &PyReplayBuffer::sample, "batch_size"_a.none(), nb::kw_only(),
           "beta"_a = nb::none(), "distinct"_a.none() = false, "timeout_s"_a.none() = 0.0,
           "out"_a = nb::none(), "output"_a = nb::none(), "device"_a = nb::none(),
           "pin_memory"_a.none() = false,
           nb::sig("def sample(self, batch_size: int, *, beta: float | None = None, distinct: bool "
                   "= False, timeout_s: float | None = 0.0, out: dict[str, typing.Any] | None = "
                   "None, output: str | None = None, device: typing.Any = None, pin_memory: bool = "
                   "False) -> dict[str, typing.Any]"),
           R"(Draws a batch; with replacement unless ``distinct``.

Args:
    batch_size: B, >= 1; may exceed the number of items unless ``distinct``.
    beta: instead of the buffer's.
    distinct: no item twice in the batch.
    timeout_s: how long to wait for the first item, which another thread adds; None without
        limit.
    out: a batch of an earlier call of the same size, whose arrays are filled again.
    output: ``"torch"`` or ``"jax"``: whose arrays the batch holds, over the same memory on the
        CPU. JAX holds 64-bit numbers in 32 bits unless told otherwise, which is said once;
        ``tickets`` stay NumPy's there.
    device: a device of torch or JAX, to which the arrays are copied.
    pin_memory: for torch: gives arrays in locked memory, or copies through it to ``device``
        without waiting.

Returns:
    A dict of arrays: ``obs`` and ``next_obs`` ``[B, ...]`` (``[B, frame_stack, ...]`` with
    stacks), ``action`` ``[B, ...]``, ``reward`` ``[B]`` float32, summed over n steps,
    ``terminated`` ``[B]`` bool, ``discount`` ``[B]`` float32, what the value of ``next_obs`` is
    to be multiplied with (``gamma ** steps``, 0 where the episode terminated), ``weights``
    ``[B]`` float32, at most 1 (see ``weights`` of the class), ``tickets`` ``[B]`` uint64 for :meth:`update_priorities`, and the
    columns that were added.
    With sequences an axis ``[T]`` follows ``[B]``, weights and tickets excepted, and ``mask``
    ``[B, T]`` bool is True for steps that count: neither burn-in nor padding. With hindsight
    ``hindsight`` ``[B]`` bool is True where the goal is another than the episode's. Transforms of
    the buffer have been applied.

Raises:
    FailedPreconditionError: there is no item, and ``timeout_s`` has passed.
    InvalidArgumentError: an argument is out of range, an array of ``out`` does not fit, or there are
        fewer items than distinct ones were asked for.)")
      .def("read", &PyReplayBuffer::read, "begin"_a.none(), "count"_a.none(),
           nb::sig("def read(self, begin: int, count: int) -> dict[str, ArrayNest] | None"),
           R"(Items by their age, as a batch of :meth:`sample`; no draw, which nothing counts.

Args:
    begin: the first, counted from the oldest, 0.
    count: how many at most.

Returns:
    A batch with weights of 1, as it was stored; None where there is no such item.

Raises:
    FailedPreconditionError: nothing was added yet.)")
      .def("update_priorities", &PyReplayBuffer::update_priorities, "tickets"_a.none(),
           "priorities"_a.none(),
           nb::sig("def update_priorities(self, tickets: typing.Any, priorities: typing.Any) -> "
                   "int"),
           R"(Gives sampled items new priorities; those that are gone are ignored, and counted.

Args:
    tickets: those of a batch.
    priorities: one for each, finite and >= 0: absolute TD errors, say.

Returns:
    How many items were updated. The others add to ``stale_updates``.

Raises:
    InvalidArgumentError: the lengths differ, or a priority is negative or not finite: nothing was updated.)")
      .def("clear", &PyReplayBuffer::clear,
           "Drops all items. The streams begin again; shapes, dtypes, counts and the largest "
           "priority "
           "so far stay.")
      .def("close", &PyReplayBuffer::close,
           "Ends calls that wait, with ``CancelledError``; those to come end so too.")
      .def("__len__", &PyReplayBuffer::size, "How many items can be drawn.")
      .def_prop_ro(
          "capacity", [](const PyReplayBuffer& self) { return self.options().capacity; },
          "How many items the buffer holds at most.")
      .def_prop_ro(
          "num_envs", [](const PyReplayBuffer& self) { return self.options().env_count; },
          "How many environments add steps.")
      .def_prop_ro("prioritized", &PyReplayBuffer::is_prioritized,
                   "Whether items are drawn by their priorities.")
      .def_prop_ro("max_priority", &PyReplayBuffer::max_priority,
                   "The largest priority so far, which new items get; 1 before the first update.")
      .def_prop_ro(
          "update_count",
          [](const PyReplayBuffer& self) {
            unwrap(self.check());
            return self.update_count();
          },
          "Calls of ``update_priorities`` so far: what a ``beta`` schedule is given.")
      .def_prop_ro("stale_updates", &PyReplayBuffer::stale_updates,
                   "Priorities that came for items that were gone.")
      .def_prop_ro("stats", &PyReplayBuffer::stats, nb::sig("def stats(self) -> dict[str, int]"),
                   R"(How the buffer stands: counts since it was made, except for ``items``.

``items`` that can be drawn now; ``steps`` that were added, one for each environment; ``episodes`` that
were terminated or truncated; ``cuts`` where a stream went on with another observation than the step
before had announced; ``updates``, the calls of ``update_priorities``; ``stale_updates``,
the priorities among them that came for items that were gone.)")
      .def_prop_ro("memory_bytes", &PyReplayBuffer::memory_bytes,
                   "What the items take, their steps included.");
}

}  // namespace reverie::python
