"""Native half of the reverie package; import reverie instead."""

from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence
)
from typing import Annotated, Any, Generic, Literal, NoReturn, overload
from typing_extensions import TypeVar

import numpy
from numpy.typing import NDArray

from reverie.nests import ArrayNest, HistoryNest, TensorNest

# The nest of a batch, of NumPy arrays unless the program asked for others.
DataT = TypeVar("DataT", default=ArrayNest)


def version() -> str:
    """The version of the native library, as "1.2.3"."""

def set_error_classes(by_code: dict[int, type[Exception]], type_error: type[Exception], missing_package: type[Exception]) -> None:
    """
    The exception class for each status code. Called once, by ``reverie.errors``.
    """

def measure_memory(size_bytes: int) -> tuple[float, float]:
    """
    Bytes a second that memcpy copies, and nanoseconds of a load that waits for the one before.
    """

def want_log_lines(level: int) -> None: ...

def flatten(nest: object) -> tuple[list[str], list[Any], str]:
    """
    The paths and leaves of a nest in canonical order, and the text that folds them back.
    """

def fold(text: str, leaves: Sequence[object]) -> Any:
    """
    The nest that ``flatten`` took apart.

    Raises:
        DataLossError: ``text`` is none that ``flatten`` gave, or describes another number of leaves.
    """

def describe(value: object, path: str = '') -> tuple[str, tuple[int, ...]]:
    """
    The name of the element type and the shape with which a value is stored.
    """

def numpy_dtype(name: str) -> numpy.dtype:
    """
    NumPy's element type by our name; ml_dtypes is imported if it is one of its own.
    """

class ColumnHistory:
    """
    The steps of one column since the episode began.

    ``history[-1]`` is the newest step as a squeezed column, ``history[-3:]`` the last three as a
    column of three rows, ``history[[0, 2]]`` any rows; the rules are those of a Python list. Only the
    last ``num_keep_alive_refs`` steps can be referred to.
    """

    def __len__(self) -> int:
        """Return len(self)."""

    def __getitem__(self, key: int | slice | Sequence[int]) -> TrajectoryColumn:
        """Return self[key]."""

    def __iter__(self) -> Iterator[TrajectoryColumn | None]:
        """The cells, oldest first; None where a step has none or it has expired."""

    def __repr__(self) -> str: ...

class TrajectoryColumn:
    """
    Rows of one column, to make an item of.

    Comes from indexing a column of ``writer.history``. Refers to the writer's rows and copies nothing,
    except in :meth:`numpy`.
    """

    def __init__(self, data_references: Iterable[TrajectoryColumn], *, squeeze: bool = False, path: object = None) -> None:
        """One column from cells of a history."""

    def __getitem__(self, key: int | slice | Sequence[int]) -> TrajectoryColumn:
        """Return self[key]."""

    def __len__(self) -> int:
        """How many rows there are."""

    def __iter__(self) -> Iterator[TrajectoryColumn]:
        """The rows, each a column of one."""

    @property
    def is_squeezed(self) -> bool:
        """Whether this is one row without its leading axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``(rows, ...)``, or the shape of the row when squeezed."""

    @property
    def dtype(self) -> numpy.dtype:
        """The element type of the rows."""

    @property
    def expired(self) -> bool:
        """
        Whether a row can no longer be referred to: see ``num_keep_alive_refs``.
        """

    def numpy(self) -> numpy.ndarray:
        """
        A copy of the rows.

        Raises:
            FailedPreconditionError: a row has expired.
        """

    def __repr__(self) -> str: ...

class Batch(Generic[DataT]):
    """
    Sampled items as arrays, B of them.

    The arrays own their memory and may be written to. Given as ``out`` to another ``sample_batch`` they
    are filled again; until that returns the batch is in use, and other threads are refused.
    """

    @property
    def data(self) -> DataT:
        """
        The nest that was written, of arrays ``[B, T, ...]``; ``[B, ...]`` where the column was a single row.
        """

    @property
    def keys(self) -> numpy.ndarray:
        """``[B]`` uint64, of the items."""

    @property
    def tickets(self) -> numpy.ndarray:
        """``[B]`` uint64: where the items lie, for ``update_priorities``."""

    @property
    def probabilities(self) -> numpy.ndarray:
        """``[B]`` float64, with which each item was drawn."""

    @property
    def priorities(self) -> numpy.ndarray:
        """``[B]`` float64."""

    @property
    def times_sampled(self) -> numpy.ndarray:
        """``[B]`` int32, these draws included."""

    @property
    def ages_s(self) -> numpy.ndarray:
        """``[B]`` float64, seconds since each item was inserted."""

    @property
    def versions(self) -> numpy.ndarray:
        """``[B]`` int64, of the weights that acted."""

    @property
    def redelivered(self) -> numpy.ndarray:
        """
        ``[B]`` bool: whether an earlier draw of the item was undone because its reader went away; see ``Table(undo_unsent=)``.
        """

    @property
    def shards(self) -> numpy.ndarray | None:
        """
        ``[B]`` uint16, where each item lies, counted as the client's addresses; None for a client of one server.
        """

    @property
    def weights(self) -> numpy.ndarray | None:
        """``[B]`` float32 importance weights; None unless ``beta`` was given."""

    @property
    def lengths(self) -> numpy.ndarray | None:
        """``[B]`` int64, of each item's longest column; None without ``pad``."""

    @property
    def table_size(self) -> int:
        """Items in the table at the last draw."""

    @property
    def rate_limited(self) -> bool:
        """Whether the call had to wait for the rate limiter."""

    def convert(self, function: Callable[[Any], Any]) -> None:
        """
        Puts ``function(array)`` in the place of each array of ``data``, ``weights`` and ``lengths``; text stays.
        """

    def as_dict(self) -> dict[str, Any]:
        """All that there is by name: ``data``, ``keys``, ``tickets`` and so on."""

    def items(self) -> ItemsView[str, Any]:
        """The items of ``as_dict``."""

    @overload
    def to(self, device: Any, *, output: Literal["torch"] = "torch") -> Batch[TensorNest]: ...
    @overload
    def to(self, device: Any, *, output: str = 'torch') -> Batch:
        """
        Copies ``data``, ``weights`` and ``lengths`` to a device; gives this batch.

        Args:
            device: a device of torch (``"cuda"``) or JAX.
            output: ``"torch"`` or ``"jax"``.

        Raises:
            InvalidArgumentError: there is no such device.
            MissingPackageError: the library is not installed.
        """

    def __repr__(self) -> str: ...

    def names(self) -> list[str]:
        """What ``as_dict`` has. (``keys`` are the keys of the items.)"""

    def __getitem__(self, name: str, /) -> Any:
        """``batch["weights"]`` is ``batch.weights``."""

    def __iter__(self) -> Iterator[Any]:
        """``data, weights, tickets = batch``: what a learner needs."""

    def __len__(self) -> int:
        """How many items there are."""

    def __reduce__(self) -> Any: ...

class BlockedSide:
    """The requests of one kind that wait."""

    @property
    def waiting(self) -> int:
        """How many."""

    @property
    def longest_wait_s(self) -> float:
        """For how long the one that waits longest has."""

    @property
    def longest_request(self) -> str:
        """What that one is."""

    @property
    def reason(self) -> str:
        """Which bound holds, at which value and by how much; empty if none does."""

class BlockedReport:
    """Why requests of a table wait."""

    @property
    def table(self) -> str:
        """The name of the table."""

    @property
    def inserts(self) -> BlockedSide:
        """The inserts that wait."""

    @property
    def samples(self) -> BlockedSide:
        """The samples that wait."""

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

class Client:
    """See ``reverie.Client``."""

    def insert(self, data: Any, priorities: dict[str, float | None], timeout_s: float | None) -> None: ...

    def insert_rows(self, data: Any, table: str, begins: numpy.ndarray, ends: numpy.ndarray, priorities: numpy.ndarray | None, external_type: type, timeout_s: float | None) -> numpy.ndarray: ...

    def set_files(self, files: str | Callable[..., Any] | None) -> None:
        """Where external columns are. Before the client is used."""

    def sample_batch(self, table: str, batch_size: int, timeout_s: float | None, beta: float | None, weights: str, distinct: bool, pad: bool, out: Batch | None) -> Batch: ...

    def sample_one(self, table: str, timeout_s: float | None) -> tuple[tuple[int, float, int, float, int], list[numpy.ndarray], list[str], list[bool], str]: ...

    def mutate(self, table: str, deletes: numpy.ndarray, tickets: numpy.ndarray, ticket_priorities: numpy.ndarray, keys: numpy.ndarray, key_priorities: numpy.ndarray, timeout_s: float | None) -> tuple[int, int, int]:
        """How many items were updated, deleted, and not found."""

    def update(self, table: str, tickets: numpy.ndarray, ticket_priorities: numpy.ndarray, keys: numpy.ndarray, key_priorities: numpy.ndarray, timeout_s: float | None) -> None:
        """
        As mutate, but does not wait for the store: the error of one comes with the next, or with flush.
        """

    def close(self) -> None:
        """
        Ends the connections, and every call that waits. Not of a store in this process.
        """

    def flush(self, timeout_s: float | None) -> None:
        """Waits for the updates that are under way."""

    def lookup(self, table: str, keys: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        """The priorities of items, and their tickets."""

    def reset(self, table: str, timeout_s: float | None) -> None: ...

    def info(self, timeout_s: float | None) -> list[dict[str, Any]]: ...

    def checkpoint(self, payload: bytes, timeout_s: float | None) -> str: ...

    def loaded_checkpoint(self, timeout_s: float | None) -> tuple[str, bytes] | None: ...

    def can_sample(self, table: str, num_samples: int) -> bool: ...

    def can_insert(self, table: str, num_inserts: int) -> bool: ...

    def why_blocked(self, table: str) -> BlockedReport: ...

class TrajectoryWriter:
    """See ``reverie.TrajectoryWriter``."""

    def __init__(self, client: Client, num_keep_alive_refs: int, *, validate_items: bool = True, chunk_length: int | None = None, max_in_flight_items: int = 1000, codec: str = 'auto', explain: Callable[[BaseException, Any], BaseException] | None = None) -> None: ...

    def append(self, data: Any, *, partial_step: bool = False) -> None:
        """
        Appends one step, or a part of it.

        Args:
            data: a nest of arrays. Columns may be left out, or be None; new ones may come later.
            partial_step: leave the step open: the next append fills the same one, with other columns.

        Raises:
            InvalidArgumentError: a column has another shape or dtype than before, came in this step
                already, or the step has another structure. Nothing was written; the writer stays usable.
            UnsupportedTypeError: a value of a type that cannot be stored.
            FailedPreconditionError: the writer is closed.
        """

    def append_whole(self, data: Any) -> None:
        """Appends one step, which must have the structure of the first."""

    def create_item(self, table: str, priority: float | None, trajectory: Any, *, version: int = 0, timeout_s: float | None = None) -> None:
        """
        Makes an item of rows that were appended.

        It is in its table on return, unless the rate limiter holds it back; then it is queued, in order.
        The call only waits when ``max_in_flight_items`` are queued already, and, for the first item of
        a table, for the table's signature.

        Args:
            table: its name.
            priority: the item's; None for the largest that the table has seen, or for 1 over gRPC.
            trajectory: a nest of columns picked from ``history``.
            version: that of the weights that acted, int64: it comes back as ``Batch.versions``.
            timeout_s: how long to wait: None without limit, 0 not at all.

        Raises:
            InvalidArgumentError: no rows, an expired or missing one, a priority that is no number, or
                another signature than the table's.
            NotFoundError: there is no such table.
            DeadlineExceededError: the queue stayed full, or no server sent the signature; the item was
                not made.
            FailedPreconditionError: the writer is closed.
        """

    def create_whole_item(self, table: str, num_timesteps: int, priority: float | None, *, timeout_s: float | None = None) -> None:
        """Makes an item of the last steps, all columns of them."""

    @property
    def history(self) -> HistoryNest:
        """
        A new nest of ``ColumnHistory``: every column of any step so far.

        Raises:
            FailedPreconditionError: nothing was appended yet.
        """

    @property
    def episode_steps(self) -> int:
        """Complete steps since the episode began."""

    def configure(self, path: str | tuple[str | int, ...], *, num_keep_alive_refs: int, max_chunk_length: int | None, codec: str | None = None) -> None:
        """
        Sets how one column is kept, known or to come.

        Args:
            path: ``("obs", "position")``, or ``"obs/position"``.
            num_keep_alive_refs: steps that items can refer back to; >= 1.
            max_chunk_length: steps that share a chunk, at most ``num_keep_alive_refs``; None tunes it.
            codec: how full chunks of it are kept, as ``trajectory_writer`` takes it; None for what the
                writer was given.

        Raises:
            InvalidArgumentError: an argument is out of range, or there is no such codec.
            FailedPreconditionError: the column has steps that were not flushed.
        """

    def flush(self, block_until_num_items: int = 0, timeout_ms: float | None = None, *, timeout_s: float | None = None) -> None:
        """
        Waits until at most ``block_until_num_items`` items are not in their table.

        Args:
            block_until_num_items: >= 0.
            timeout_ms: how long to wait, as Reverb counts it; 0 and less is without limit.
            timeout_s: the same in seconds; 0 does not wait.

        Raises:
            InvalidArgumentError: an argument is out of range.
            NotFoundError: there is no such table; its items are lost.
            DeadlineExceededError: the time is up; the message says how many items wait.
        """

    def end_episode(self, clear_buffers: bool = True, timeout_ms: float | None = None, *, timeout_s: float | None = None) -> None:
        """
        Makes the items that wait for the end, flushes, and begins the next episode.

        Args:
            clear_buffers: forget the steps so far; else items may span both episodes.
            timeout_ms: how long to wait, as Reverb counts it; 0 and less is without limit.
            timeout_s: the same in seconds; 0 does not wait.

        Raises:
            DeadlineExceededError: the time is up; the episode goes on as it was. Call it again: no item is
                made twice.
        """

    @property
    def pending_items(self) -> int:
        """Items that are not in their table yet."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""

    def close(self) -> None:
        """
        Ends the writer: what is queued is dropped. Closing again does nothing.

        From any thread, even while another waits in this writer.
        """

class StructuredWriter:
    """See ``reverie.structured``."""

    def __init__(self, client: Client, configs: Sequence[tuple[Any, ...]], *, chunk_length: int | None = None, max_in_flight_items: int = 1000, codec: str = 'auto', explain: Callable[[BaseException, Any], BaseException] | None = None) -> None: ...

    def append(self, data: Any, *, partial_step: bool = False, timeout_s: float | None = None) -> None:
        """
        Appends one step, or a part of it, and makes the items that the patterns say.

        Args:
            data: a nest of arrays with as many leaves as the first one; None where a leaf has no value.
            partial_step: leave the step open: the next append fills the same one, with other leaves.
            timeout_s: how long to wait where ``max_in_flight_items`` wait already: None without limit.

        Raises:
            InvalidArgumentError: another number of leaves, a leaf of another shape or dtype than before,
                one that a condition or a priority cannot use, or an item that its table refuses. An item
                that was queued and is refused later is reported by the next call: an append then says
                that its step was not written, and may be repeated.
            UnsupportedTypeError: a value of a type that cannot be stored.
            NotFoundError: there is no such table; the step was written.
            DeadlineExceededError: the queue stayed full: nothing was written.
            FailedPreconditionError: a leaf came in this open step already, or the writer is closed.
        """

    @property
    def step_is_open(self) -> bool:
        """Whether the last append was a partial step."""

    def flush(self, block_until_num_items: int = 0, timeout_ms: float | None = None, *, timeout_s: float | None = None) -> None:
        """
        Waits until at most ``block_until_num_items`` items are not in their table.

        Args:
            block_until_num_items: >= 0.
            timeout_ms: how long to wait, as Reverb counts it; 0 and less is without limit.
            timeout_s: the same in seconds; 0 does not wait.

        Raises:
            InvalidArgumentError: an argument is out of range.
            NotFoundError: there is no such table; its items are lost.
            DeadlineExceededError: the time is up; the message says how many items wait.
        """

    def end_episode(self, clear_buffers: bool = True, timeout_ms: float | None = None, *, timeout_s: float | None = None) -> None:
        """
        Makes the items that wait for the end, flushes, and begins the next episode.

        Args:
            clear_buffers: forget the steps so far; else items may span both episodes.
            timeout_ms: how long to wait, as Reverb counts it; 0 and less is without limit.
            timeout_s: the same in seconds; 0 does not wait.

        Raises:
            DeadlineExceededError: the time is up; the episode goes on as it was. Call it again: no item is
                made twice.
        """

    @property
    def pending_items(self) -> int:
        """Items that are not in their table yet."""

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""

    def close(self) -> None:
        """
        Ends the writer: what is queued is dropped. Closing again does nothing.

        From any thread, even while another waits in this writer.
        """

def inspect_checkpoint(folder: str, verifies: bool) -> dict[str, Any]: ...

def compare_checkpoints(one: str, other: str) -> list[tuple[str, str, str, str]]: ...

def convert_checkpoint(source: str, target: str) -> tuple[str, str, str, int, int]: ...

def inspect_journal(root: str) -> dict[str, Any]: ...

class Store:
    """See ``reverie.Store``."""

    def __init__(self, tables: list[dict[str, Any]], max_bytes: int | None, memory: tuple[str, int | None] | None, seed: int | None, checkpoints: dict[str, Any] | None) -> None: ...

    def client(self, raises_corrupt: bool = False) -> Client: ...

    def close(self) -> None: ...

    def loaded_checkpoint(self) -> tuple[str, bytes] | None: ...

    def journal_error(self) -> str | None: ...

    def info(self) -> list[dict[str, Any]]: ...

    def extension_summary(self, table: str, index: int) -> dict[str, float]: ...

    @property
    def used_bytes(self) -> int: ...

def check_rate_limiter(samples_per_insert: float, min_size_to_sample: int, min_diff: float, max_diff: float) -> None:
    """Raises InvalidArgumentError for numbers that make no rate limiter."""

def empty_table_allows(samples_per_insert: float, min_size_to_sample: int, min_diff: float, max_diff: float, count: int) -> tuple[bool, bool]:
    """
    Whether so many inserts, and so many samples, may go through before all others.
    """

def load_plugin(path: str) -> None:
    """
    Loads a shared library with selectors, extensions or native environments of your own.

    ``Custom`` makes the selectors and extensions by name, ``envs.native.NativePool`` the environments.

    Args:
        path: a library built with ``REVERIE_PLUGIN``. It stays loaded until the process ends.

    Raises:
        NotFoundError: it cannot be opened.
        FailedPreconditionError: it is not a plugin, or was built for another version.
        AlreadyExistsError: a name that it adds is taken.
    """

class NativeFuture:
    """The step or reset of a batch that is under way, or was last."""

    def __iter__(self) -> NoReturn: ...

    def done(self) -> bool:
        """Whether ``result`` would return at once."""

    def result(self, timeout_s: float | None = None) -> Any:
        """
        Waits for the batch.

        Args:
            timeout_s: how long at most; None is the pool's own limit.

        Raises:
            DeadlineExceededError: the step takes longer; it goes on.
        """

class NativePool:
    """See ``reverie.envs.native.NativePool``."""

    def __init__(self, id: str, num_envs: int, num_batches: int, num_threads: int | None, seed: int | None, first_step_resets: bool, autoreset: str, options: dict[str, bool | int | float | str], timeout_s: float, batch_class: type, copy: bool) -> None: ...

    def spec(self) -> dict[str, Any]: ...

    @property
    def num_threads(self) -> int: ...

    def reset(self, seed: int | None, batch: int) -> NativeFuture: ...

    def reset_some(self, mask: Sequence[bool], seeds: list[int | None], batch: int) -> NativeFuture: ...

    def step(self, actions: Any, batch: int) -> NativeFuture: ...

    def get_state(self, env_index: int, batch: int) -> numpy.ndarray: ...

    def set_state(self, env_index: int, state: Sequence[float], batch: int) -> None: ...

    def render(self, env_index: int, batch: int) -> numpy.ndarray: ...

    def close(self) -> None: ...

def native_env_ids() -> list[str]:
    """The names of the native environments, in alphabetical order."""

def native_env_spec(id: str, options: dict[str, bool | int | float | str]) -> dict[str, Any]: ...

class Server:
    """See ``reverie.Server``."""

    def __init__(self, tables: list[dict[str, Any]], max_bytes: int | None, memory: tuple[str, int | None] | None, addresses: list[str], token: str, insecure: bool, tls: tuple[str, str, str] | None, limits: dict[str, int], codec: str, checkpoints: dict[str, Any] | None) -> None: ...

    def client(self, raises_corrupt: bool = False) -> Client: ...

    def info(self) -> list[dict[str, Any]]: ...

    def extension_summary(self, table: str, index: int) -> dict[str, float]: ...

    def stop(self, grace_s: float) -> None: ...

    def loaded_checkpoint(self) -> tuple[str, bytes] | None: ...

    def journal_error(self) -> str | None: ...

    @property
    def addresses(self) -> list[str]: ...

    @property
    def port(self) -> int: ...

    @property
    def figures(self) -> dict[str, int]: ...

def check_server(tables: list[dict[str, Any]], max_bytes: int | None, memory: tuple[str, int | None] | None, addresses: list[str], token: str, insecure: bool, tls: tuple[str, str, str] | None, limits: dict[str, int], codec: str) -> None:
    """
    Raises what ``Server`` would, except where a port is in use; listens nowhere.
    """

def connect(addresses: list[str], token: str, tls: tuple[str, str, str, str] | None, retry_timeout_s: float | None, sharded: bool, sampling: str, seed: int | None, raises_corrupt: bool = False, protocol: str = 'grpc') -> Client:
    """
    A client of the server at an address, or of a store whose shards are at several; connects when it is first used.
    """

def shard_states(client: Client) -> list[tuple[str, str]]:
    """
    Address and, while it is left out, the reason, of each shard; empty for one server.
    """

def single_targets(target: str) -> list[str]:
    """A target for each address that a target resolves to; looks names up."""

class ReplayBuffer:
    """See ``reverie.ReplayBuffer``."""

    def __init__(self, capacity: int, num_envs: int, frame_stack: int, n_step: int, gamma: float, alpha: float | None, beta: float | Callable[[int], float], weights: str, seed: int | None, sequence_length: int | None, period: int | None, burn_in: int, pad_sequences: bool, hindsight: tuple[str, float, str, str] | None, codec: str, finished: bool) -> None: ...

    def add(self, obs: Any, action: Any, reward: Any, next_obs: Any, terminated: Any, truncated: Any = False, *, mask: Any = None, **extra: Any) -> None:
        """
        Stores one step of each environment.

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
            CancelledError: the buffer is closed.
        """

    @overload
    def sample(self, batch_size: int, *, beta: float | None = None, distinct: bool = False, timeout_s: float | None = 0.0, out: dict[str, Any] | None = None, output: Literal["numpy"] | None = None, device: Any = None, pin_memory: bool = False) -> dict[str, ArrayNest]: ...
    @overload
    def sample(self, batch_size: int, *, beta: float | None = None, distinct: bool = False, timeout_s: float | None = 0.0, out: dict[str, Any] | None = None, output: Literal["torch"], device: Any = None, pin_memory: bool = False) -> dict[str, TensorNest]: ...
    @overload
    def sample(self, batch_size: int, *, beta: float | None = None, distinct: bool = False, timeout_s: float | None = 0.0, out: dict[str, Any] | None = None, output: str | None = None, device: Any = None, pin_memory: bool = False) -> dict[str, Any]:
        """
        Draws a batch; with replacement unless ``distinct``.

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
                fewer items than distinct ones were asked for.
        """

    def read(self, begin: int, count: int) -> dict[str, ArrayNest] | None:
        """
        Items by their age, as a batch of :meth:`sample`; no draw, which nothing counts.

        Args:
            begin: the first, counted from the oldest, 0.
            count: how many at most.

        Returns:
            A batch with weights of 1, as it was stored; None where there is no such item.

        Raises:
            FailedPreconditionError: nothing was added yet.
        """

    def update_priorities(self, tickets: Any, priorities: Any) -> int:
        """
        Gives sampled items new priorities; those that are gone are ignored, and counted.

        Args:
            tickets: those of a batch.
            priorities: one for each, finite and >= 0: absolute TD errors, say.

        Returns:
            How many items were updated. The others add to ``stale_updates``.

        Raises:
            InvalidArgumentError: the lengths differ, or a priority is negative or not finite: nothing was updated.
        """

    def clear(self) -> None:
        """
        Drops all items. The streams begin again; shapes, dtypes, counts and the largest priority so far stay.
        """

    def close(self) -> None:
        """
        Ends calls that wait, with ``CancelledError``; those to come end so too.
        """

    def __len__(self) -> int:
        """How many items can be drawn."""

    @property
    def capacity(self) -> int:
        """How many items the buffer holds at most."""

    @property
    def num_envs(self) -> int:
        """How many environments add steps."""

    @property
    def prioritized(self) -> bool:
        """Whether items are drawn by their priorities."""

    @property
    def max_priority(self) -> float:
        """
        The largest priority so far, which new items get; 1 before the first update.
        """

    @property
    def update_count(self) -> int:
        """
        Calls of ``update_priorities`` so far: what a ``beta`` schedule is given.
        """

    @property
    def stale_updates(self) -> int:
        """Priorities that came for items that were gone."""

    @property
    def stats(self) -> dict[str, int]:
        """
        How the buffer stands: counts since it was made, except for ``items``.

        ``items`` that can be drawn now; ``steps`` that were added, one for each environment; ``episodes`` that
        were terminated or truncated; ``cuts`` where a stream went on with another observation than the step
        before had announced; ``updates``, the calls of ``update_priorities``; ``stale_updates``,
        the priorities among them that came for items that were gone.
        """

    @property
    def memory_bytes(self) -> int:
        """What the items take, their steps included."""

class EnvFuture:
    """A step or reset under way."""

    def __iter__(self) -> NoReturn: ...

    def done(self) -> bool:
        """Whether ``result`` would return at once."""

    def result(self, timeout_s: float | None = None) -> Any:
        """
        Wait for the batch.

        Raises:
            DeadlineExceededError: the step takes longer than ``timeout_s``, or than the pool's own limit
                where that is None. Names the worker that is late. It may be waited for again.
            EnvError: an environment raised or its worker died.
            FailedPreconditionError: another step or reset of the batch came after this one.
        """

class WorkerProcesses:
    """The processes of ``reverie.EnvPool``."""

    def __init__(self, count: int) -> None: ...

    def start(self, worker: int, command: Sequence[str], descriptors: Sequence[int]) -> int:
        """
        Starts one, in the place of an earlier one, which is killed. Gives its process id.
        """

    def end_text(self, worker: int) -> str | None:
        """How it ended, or None while it lives."""

    def set_thread(self, worker: int, end_text: str | None) -> None:
        """
        Says that a worker is a thread of this process: it lives, or has ended as told.
        """

    def pid(self, worker: int) -> int | None:
        """Its process id, or None where it has ended."""

    def end_all(self, at_most_s: float) -> None:
        """Waits for all to end, then kills those that have not."""

class EnvPoolCore:
    """The owner's side of ``reverie.EnvPool``."""

    def __init__(self, workers: WorkerProcesses, shape: dict[str, Any], spin_s: float, timeout_s: float, action_count: int | None, result_rows: int | None) -> None: ...

    @property
    def memory_fd(self) -> int: ...

    def set_results(self, batch_class: type, structure: str, copy: bool) -> None:
        """How ``result`` gives the rows. To be called before the first step."""

    def set_on_failure(self, callback: object | None) -> None: ...

    def restart(self, worker: int) -> None: ...

    def step(self, actions: Any, batch: int = 0, *, env_ids: Any = None) -> EnvFuture: ...

    def reset(self, seed: int | None = None, *, batch: int = 0) -> EnvFuture: ...

    def close(self, timeout_s: float, at_exit: bool = False) -> None: ...

    def set_closed_text(self, text: str) -> None: ...

    @property
    def is_closed(self) -> bool: ...

class EnvWorker:
    """The loop of a worker process of ``reverie.EnvPool``."""

    def __init__(self, memory_fd: int, shape: dict[str, Any], worker: int, spin_s: float, structure: str, is_discrete: bool, action_start: int, refuses_nan: bool, seed: int | None) -> None: ...

    def run(self, envs: list[list[Any]], make: Callable[[int, int], Any]) -> None: ...

def exit_with_parent(parent_pid: int) -> None:
    """
    Ends this process when its parent is gone, and leaves Ctrl-C to the parent.
    """

class TableStream:
    """See ``reverie.Client.dataset``."""

    def __init__(self, client: Client, table: str, batch_size: int, timeout_s: float | None, beta: float | None, weights: str, distinct: bool, pad: bool, drop_last: bool, prefetch: int | None) -> None: ...

    def next(self) -> Batch: ...

    def close(self) -> None: ...

class SampleStream:
    """See ``reverie.TrajectoryDataset``."""

    def __init__(self, client: Client, table: str, request_max: int, workers: int, timeout_s: float | None, samples_max: int, max_times_sampled: int) -> None: ...

    def next(self, max_wait_s: float | None = None) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray | None, list[tuple[int, list[numpy.ndarray], list[str], list[bool]]]] | None:
        """
        Keys, probabilities, table sizes, priorities, times sampled of the next items, which of them are redelivered (None: no item is), and the items: neighbours that are alike as (count, columns, paths, which are squeezed). None if nothing came within ``max_wait_s``.
        """

    def close(self, used: int | None = None) -> None: ...

class ReplayStream:
    """See ``reverie.ReplayBuffer.dataset``."""

    def __init__(self, buffer: ReplayBuffer, batch_size: int, timeout_s: float | None, distinct: bool, prefetch: int) -> None: ...

    def next(self) -> dict[str, Any]: ...

    def close(self) -> None: ...

class SampleItems:
    """See ``reverie.Client.sample``."""

    def __init__(self, client: Client, table: str, num_samples: int, timeout_s: float | None, emit_timesteps: bool, unpack: bool, info: type, redelivered_info: type, sample: type, files: object) -> None: ...

    def __iter__(self) -> SampleItems: ...

    def __next__(self) -> Any: ...

class AtariFrames:
    """The last screens, pooled, made small and stacked; see atari_frame.h."""

    def __init__(self, height: int, width: int, small_height: int, small_width: int, stack_count: int) -> None: ...

    def learn(self, indices: numpy.ndarray, grey: numpy.ndarray) -> None:
        """Notes the grey levels of the palette indices of a screen."""

    def take(self, which: int, indices: numpy.ndarray) -> bool:
        """
        Takes one of the two last screens; False if a palette index has no grey level yet.
        """

    def push(self, pools: bool, fills: bool) -> numpy.ndarray:
        """
        The stack with a picture of the screens appended, oldest first: read-only.
        """

class Batcher:
    """See ``reverie.Batcher``."""

    def __init__(self, size: int, dim: int, queue_size: int, timeout_s: float, output: str, device: object) -> None: ...

    def stack(self, nest: object) -> None: ...

    def cat(self, nest: object) -> None: ...

    def flush(self) -> bool: ...

    def get(self, timeout_s: float | None = None) -> Any: ...

    def get_now(self) -> Any: ...

    def call_when_finished(self, callback: Callable[[], object]) -> None: ...

    def close(self) -> None: ...

    @property
    def is_closed(self) -> bool: ...

    @property
    def filled(self) -> int: ...

    @property
    def finished_count(self) -> int: ...

def rl_td_targets(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_n_step_returns(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_double_q_targets(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_soft_double_q_targets(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg5: float, arg6: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_categorical_projection(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: float, arg4: float, arg5: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_importance_weights(arg0: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu', writable=False)], arg1: int, arg2: float, arg3: bool, arg4: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_generalized_advantages(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)], arg5: float, arg6: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_v_trace(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.uint8], dict(order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg6: tuple[float, float, float], arg7: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], arg8: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_huber_losses(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: float, arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_huber_derivatives(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: float, arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_squashed_gaussian(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], arg4: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_squashed_gaussian_log_probabilities(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_squashed_gaussian_gradient(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], arg6: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_epsilon_at(arg0: int, arg1: float, arg2: float, arg3: int, arg4: bool, /) -> float: ...

def rl_actor_epsilon(arg0: int, arg1: int, arg2: float, arg3: float, /) -> float: ...

def rl_epsilon_greedy(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: float, arg2: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.float64], dict(order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.int32], dict(order='C', device='cpu')], /) -> None: ...

def rl_add_gaussian_noise(arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: float, arg3: float, arg4: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg6: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

def rl_ornstein_uhlenbeck_step(arg0: tuple[float, float, float, float], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

class Mlp:
    """See ``reverie.nn.Mlp``."""

    @property
    def widths(self) -> list[int]: ...

    @property
    def hidden(self) -> str: ...

    @property
    def output(self) -> str: ...

    @property
    def float_count(self) -> int: ...

    @property
    def kept_rows(self) -> int: ...

    @property
    def layers(self) -> list[tuple[int, int, int, int, int]]: ...

    @property
    def parameters(self) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]: ...

    def initialize_uniform(self, seed: int | None) -> int: ...

    def initialize_orthogonal(self, gains: Sequence[float], seed: int | None) -> int: ...

    def forward(self, arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: bool, arg2: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

    def backward(self, arg: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], /) -> Annotated[NDArray[numpy.float32], dict(shape=(None,))]: ...

    def input_gradient(self, arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu')], /) -> None: ...

    def copy(self) -> Mlp: ...

    def approach(self, arg0: Mlp, arg1: float, /) -> None: ...

    def save(self, arg0: str, arg1: Mapping[str, str], /) -> None: ...

def make_mlp(arg0: Sequence[int], arg1: str, arg2: str, /) -> Mlp: ...

def load_mlp(path: str, hidden: str | None, output: str | None) -> tuple[Mlp, dict[str, str]]: ...

class Adam:
    """See ``reverie.nn.Adam``."""

    def __init__(self, arg0: Mlp, arg1: float, arg2: float, arg3: float, arg4: float, /) -> None: ...

    def step(self, network: Mlp, gradient: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], norm_max: float | None) -> float: ...

    @property
    def learning_rate(self) -> float: ...

    @learning_rate.setter
    def learning_rate(self, arg: float, /) -> None: ...

    @property
    def step_count(self) -> int: ...

    def state(self) -> tuple[Annotated[NDArray[numpy.float32], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))]]: ...

    def restore(self, arg0: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.float32], dict(order='C', device='cpu', writable=False)], arg2: int, /) -> None: ...

class Trainer:
    """See ``reverie.agents.Trainer``."""

    def __init__(self, algorithm: str, env: str, env_options: dict[str, bool | int | float | str], options: dict[str, bool | int | float | str], source: object | None, resume: str, has_actors_elsewhere: bool) -> None: ...

    def serve(self, rpc: RpcPeer) -> int: ...

    def actors_elsewhere(self) -> int: ...

    def end_serving(self) -> None: ...

    def save(self, path: str) -> str: ...

    def release(self) -> None: ...

    def load_policy(self, folder: str) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def wait(self, timeout_s: float | None) -> bool: ...

    def raise_if_failed(self) -> None: ...

    def progress(self) -> dict[str, Any]: ...

    def episodes(self, first: int) -> list[tuple[int, float, int]]: ...

    def settings(self) -> dict[str, bool | int | float | str]: ...

    def policy(self) -> Mlp: ...

    def evaluations(self) -> list[tuple[int, float]]: ...

    def best_policy(self) -> Mlp: ...

    def evaluate(self, policy: Mlp, episodes: int, seed: int) -> list[float]: ...

class TrainingEnd:
    """See ``reverie.agents.act``."""

    def __init__(self, rpc: RpcPeer) -> None: ...

    def is_over(self) -> bool: ...

class RemoteActor:
    """See ``reverie.agents.act``."""

    def __init__(self, rpc: RpcPeer, learner: str, number: int, run: int, end: TrainingEnd, algorithm: str, env: str, env_options: dict[str, bool | int | float | str], options: dict[str, bool | int | float | str], source: object | None) -> None: ...

    def run(self) -> None: ...

    def stop(self) -> None: ...

    def counts(self) -> dict[str, int]: ...

def tune_cores(algorithm: str, env: str, env_options: dict[str, bool | int | float | str], options: dict[str, bool | int | float | str], cores: int, measure_s: float, source: object | None) -> dict[str, Any]: ...

def split_cores(actor_curve: Sequence[float], learner_curve: Sequence[float], cores: int, update_interval: float, learners_need_cores: bool) -> dict[str, Any]: ...

def algorithm_names() -> list[str]: ...

def check_settings(options: dict[str, bool | int | float | str]) -> None:
    """
    Raises InvalidArgumentError for a setting that there is not, or that is out of range.
    """

def settings_free_at_resume() -> list[str]: ...

def default_settings(algorithm: str) -> dict[str, bool | int | float | str]: ...

def checked_settings(algorithm: str, options: dict[str, bool | int | float | str]) -> dict[str, bool | int | float | str]: ...

def set_rpc_error_classes(remote: object, restarted: object) -> None: ...

def random_seed() -> int:
    """64 bits of the system's random device."""

def set_rpc_future_class(type: object) -> None: ...

class RpcCall:
    """See ``reverie.rpc.Future``."""

    def done(self) -> bool: ...

    def wait(self, timeout_s: float | None) -> bool: ...

def register_record(type: object, name: str, fields: Sequence[str], are_arguments: Sequence[bool]) -> None: ...

def set_rpc_batch_helpers(join_leaves: object, error_parts: object) -> None: ...

class RpcBatch:
    """
    Calls that were taken together.

    ``batch(value)`` deals ``value`` out: each caller gets its rows, or its entry. What is wrong with it the callers are told.
    """

    def __call__(self, value: object = None) -> None: ...

    def fail(self, error: BaseException | str) -> None:
        """Give all callers the same error."""

    def __len__(self) -> int: ...

    @property
    def function(self) -> str: ...

class RpcGatherer:
    def __len__(self) -> int: ...

    def take(self, timeout_s: float | None) -> tuple[Any, ...] | None: ...

    def when_added(self, callback: Callable[[], object]) -> None: ...

    def time_left(self) -> float | None: ...

class RpcFunctions:
    """What a peer calls; the peer keeps it."""

class RpcPeer:
    """See ``reverie.Rpc``."""

    def __init__(self, name: str, token: str, insecure: bool, uses_unix: bool, uses_tcp: bool, uses_shared_memory: bool, uses_ucx: bool, calls_max: int, dead_after_s: float, find_timeout_s: float, reach_timeout_s: float, tls: tuple[str, str, str, str] | None, allow_pickle: bool) -> None: ...

    def listen(self, address: str) -> str: ...

    def connect(self, address: str) -> None: ...

    def define(self, name: str, handler: Callable[..., object], deferred: bool = False) -> None:
        """
        With ``deferred`` calls of it come from ``next_task``, with the handler.
        """

    def make_functions(self) -> RpcFunctions:
        """Where what is defined is kept from now on. Call it once, and keep it."""

    def define_gathered(self, name: str, function: object, size: int, max_wait_s: float | None, dynamic: bool, cat: bool, pad: bool, device: object, is_ready: object, leaves: str, batched: bool, deferred: bool) -> RpcGatherer | None: ...

    def undefine(self, name: str) -> bool: ...

    def sync(self, peer: str, function: str, args: tuple[object, ...], kwargs: dict[str, object], timeout_s: float | None, idempotent: bool) -> Any: ...

    def begin(self, peer: str, function: str, args: tuple[object, ...], kwargs: dict[str, object], timeout_s: float | None, idempotent: bool, pool: object) -> Any: ...

    def cancel(self, call: RpcCall) -> None: ...

    def when_done(self, call: RpcCall, callback: Callable[[], object], even_if_done: bool = False) -> bool: ...

    def next_task(self) -> tuple[Any, ...] | None: ...

    def answer(self, session: int, call: int, value: object) -> None: ...

    def fail(self, session: int, call: int, code: int, type: str, text: str, traceback: str) -> None: ...

    def tell_withdrawn(self) -> None: ...

    def is_wanted(self, session: int, call: int) -> bool: ...

    def set_ways(self, uses_unix: bool, uses_tcp: bool, uses_shared_memory: bool, uses_ucx: bool) -> None: ...

    def set_threads_max(self, count: int) -> None: ...

    def needs_thread(self) -> bool: ...

    def expect_thread(self) -> None: ...

    def note_thread_started(self) -> None: ...

    def note_thread_failed(self) -> None: ...

    def check_open(self) -> None: ...

    def peers(self) -> list[dict[str, Any]]: ...

    def functions(self) -> list[str]: ...

    def addresses(self) -> list[str]: ...

    def pending_calls(self) -> int: ...

    def devices(self) -> dict[str, Any]: ...

    def close(self) -> None: ...

class GroupRound:
    """See ``reverie.groups.Round``."""

    def is_done(self) -> bool: ...

    def wait(self, timeout_s: float | None) -> bool: ...

    def cancel(self) -> None: ...

    def lost(self) -> list[str]: ...

    def members(self) -> list[str]: ...

    def error(self) -> Exception | None: ...

    def array(self, index: int) -> Any: ...

    def copy_to(self, index: int, array: object) -> None: ...

    def values(self, copies: bool) -> dict[int, Any]: ...

class Group:
    """See ``reverie.Group``."""

    def __init__(self, rpc: RpcPeer, name: str, broker: str, sort_order: int, stall_timeout_s: float | None, shared_memory: bool, host: str) -> None: ...

    def host_count(self) -> int | None: ...

    def shares_memory(self) -> bool | None: ...

    def update(self) -> bool: ...

    def membership(self) -> tuple[int, int, list[str]]: ...

    def wait_members(self, count: int, timeout_s: float | None) -> None: ...

    def set_sort_order(self, sort_order: int) -> None: ...

    def set_stall_timeout(self, timeout_s: float | None) -> None: ...

    def why_waiting(self) -> str: ...

    def leave(self) -> None: ...

    def all_reduce(self, name: str, op: str, arrays: list[Any], names: list[str], timeout_s: float | None) -> GroupRound: ...

    def all_gather(self, name: str, what: str, value: object, timeout_s: float | None) -> GroupRound: ...

    def broadcast(self, name: str, source: str, value: object, timeout_s: float | None) -> GroupRound: ...

class Accumulator:
    """See ``reverie.Accumulator``."""

    def __init__(self, rpc: RpcPeer, group: Group, name: str, average: str, signature: list[str], gradients: list[Any]) -> None: ...

    def update(self, is_busy: bool) -> tuple[str, bool, bool, bool, int, tuple[Any] | None, tuple[int, int, int, GroupRound] | None]: ...

    def adopted(self) -> None: ...

    def contribute(self, samples: int, arrays: list[Any], names: list[str], weight: int) -> None: ...

    def give_state(self, model: object, buffers: object, state: object, to_all: bool) -> None: ...

    def set_version(self, version: int) -> None: ...

    def set_virtual_batch_size(self, size: int) -> None: ...

    def set_parallel(self, count: int) -> None: ...

    def why_waiting(self) -> str: ...

    def close(self) -> None: ...

class Broker:
    """See ``reverie.Broker``."""

    def __init__(self, rpc: RpcPeer) -> None: ...

    def groups(self) -> list[dict[str, Any]]: ...

    def close(self) -> None: ...

class Weights:
    """See ``reverie.Weights``."""

    def __init__(self, rpc: RpcPeer, name: str, sources: Sequence[str], shared_memory: bool) -> None: ...

    def publish(self, version: int, value: object) -> None: ...

    def version(self) -> int | None: ...

    def held(self) -> tuple[int, Any] | None: ...

    def is_given(self) -> bool: ...

    def pull(self, timeout_s: float | None) -> None: ...

    def wait_for(self, at_least: int, timeout_s: float | None) -> None: ...

    def close(self) -> None: ...
