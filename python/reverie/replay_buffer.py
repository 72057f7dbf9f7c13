"""Experience replay in one line: transitions or sequences, uniform or prioritised."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from reverie import _checks, _options, _replay_reading, _reverie
from reverie._closing import Closing
from reverie.dataset import Dataset, replay_dataset
from reverie.errors import (
    InvalidArgumentError,
    OutOfRangeError,
    UnimplementedError,
    UnsupportedTypeError,
)

if TYPE_CHECKING:
    from reverie._options import Codec
    from reverie.frameworks import Output
    from reverie.hindsight import Hindsight
    from reverie.nests import ArrayNest, TensorNest


class ReplayBuffer(_reverie.ReplayBuffer, Closing):
    """The last steps of one or many environments, for a learner in the same process.

    A table in its own store, with everything that a learner needs around it::

        buffer = reverie.ReplayBuffer(100_000, prioritized=True)
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        batch = buffer.sample(256)
        buffer.update_priorities(batch["tickets"], td_errors)

    Each observation is stored once: the one after a step is the next step's, except at an episode's
    end, whose last observation has its own row. If an observation differs from the announced one,
    the stream is cut there, like by a truncation. Transitions over several rewards, stacks of
    frames and sequences are made when they are sampled.

    Only one thread at a time may add; others may sample and update meanwhile.

    ``copy.deepcopy`` and ``pickle`` make another buffer with the same contents, using :meth:`save`
    and raising its errors; a copy shares nothing with the original.

    Args:
        capacity: items (transitions, or sequences), >= 1; the oldest make room. ``1e5`` is accepted
            too.
        num_envs: environments that are stepped together; each is a separate stream.
        frame_stack: frames per observation. Give :meth:`add` the newest one; if an episode has too
            few yet, its first is repeated.
        n_step: rewards per transition, fewer if the episode ends before.
        gamma: the discount of one step, in the sums of rewards and in ``discount``; in [0, 1].
        prioritized: sample by priority. New items get the largest priority so far.
        alpha: the exponent of priorities; finite and >= 0.
        beta: the exponent of the weights, or a function that returns it for the number of updates
            so far. The function is called once here, with 0.
        weights: which item has the weight 1: ``"batch"``, the least likely one of the batch, or
            ``"buffer"``, that of the whole buffer, so that weights of different batches are
            comparable (as in OpenAI Baselines).
        seed: seeds the draws; None takes a seed from the system.
        sequence_length: steps of a sequence that count; None for transitions.
        period: steps from the start of one sequence to that of the next; None for
            ``sequence_length``, so that none overlap.
        burn_in: steps before those that count, if the episode has them; a sequence then has
            ``burn_in + sequence_length`` steps.
        pad_sequences: remaining steps at an episode's end form a shorter sequence, filled up with
            zeros; else they are dropped.
        hindsight: draws some transitions with goals that their episode reached; for single steps.
        codec: how observations of 512 bytes and more are encoded once their chunk of steps is full:
            ``"raw"``, ``"lz4"``, ``"zstd"``, or ``"auto"``, which is lz4 for integers if it pays.
            Pictures take 1 to 5 % of the bytes; adding and drawing them takes longer.
        transforms: functions of a batch, applied one after another to each drawn batch (as NumPy
            arrays): each returns the batch. ``reverie.transforms`` has some.

    Raises:
        InvalidArgumentError: an argument is out of range, or ``beta`` does not return a number >=
            0.
        UnsupportedTypeError: a transform is not a function.

    Source:
        Schaul et al. 2016, "Prioritized Experience Replay"; Kapturowski et al. 2019, "Recurrent
        Experience Replay in Distributed Reinforcement Learning", for sequences with burn-in.
    """

    def __init__(
        self,
        capacity: int | float,
        num_envs: int = 1,
        frame_stack: int = 1,
        n_step: int = 1,
        *,
        gamma: float = 0.99,
        prioritized: bool = False,
        alpha: float = 0.6,
        beta: float | Callable[[int], float] = 0.4,
        weights: Literal["batch", "buffer"] = "batch",
        seed: int | None = None,
        sequence_length: int | None = None,
        period: int | None = None,
        burn_in: int = 0,
        pad_sequences: bool = True,
        hindsight: Hindsight | None = None,
        codec: Codec = "raw",
        transforms: Sequence[Callable[[dict[str, Any]], dict[str, Any]]] = (),
    ) -> None:
        if isinstance(capacity, float) and capacity.is_integer():
            capacity = int(capacity)  # 1e5
        capacity = _checks.integer("capacity", capacity, 0)
        num_envs = _checks.integer("num_envs", num_envs, 0)
        frame_stack = _checks.integer("frame_stack", frame_stack, 0)
        n_step = _checks.integer("n_step", n_step, 0)
        burn_in = _checks.integer("burn_in", burn_in, 0)
        _checks.number("gamma", gamma, finite=False)
        _checks.number("alpha", alpha, 0.0)
        _checks.flag("prioritized", prioritized)
        _checks.flag("pad_sequences", pad_sequences)
        if sequence_length is None and (period is not None or burn_in != 0):
            raise InvalidArgumentError(
                f"period is {_checks.shown(period)} and burn_in {_checks.shown(burn_in)}, which "
                "are for sequences; give sequence_length too, or leave them out"
            )
        self._is_folded = n_step > 1 or sequence_length is not None
        if hindsight is not None:
            from reverie.hindsight import Hindsight

            what = "a reverie.Hindsight, or None"
            hindsight = _checks.instance("hindsight", hindsight, Hindsight, what)
        self._hindsight = hindsight
        self._gamma = gamma
        if not callable(beta):
            beta = _checks.number("beta", beta, 0.0)  # a float, as checkpoints have it
        self._transforms = tuple(
            _checks.function("a transform", one, "a function of a batch")
            for one in _checks.items("transforms", transforms, "functions of a batch")
        )
        self._given = {
            "capacity": capacity,
            "num_envs": num_envs,
            "frame_stack": frame_stack,
            "n_step": n_step,
            "gamma": gamma,
            "prioritized": prioritized,
            "alpha": alpha,
            "beta": beta,
            "weights": weights,
            "seed": seed,
            "sequence_length": sequence_length,
            "period": period,
            "burn_in": burn_in,
            "pad_sequences": pad_sequences,
            "hindsight": hindsight,
            "codec": codec,
            "transforms": self._transforms,
        }
        super().__init__(
            capacity,
            num_envs,
            frame_stack,
            n_step,
            gamma,
            alpha if prioritized else None,
            beta,
            _checks.choice("weights", weights, ("batch", "buffer")),
            _options.checked_seed(seed),
            sequence_length,
            period,
            burn_in,
            pad_sequences,
            None if hindsight is None else hindsight._spec,
            _checks.choice("codec", codec, _options.CODECS),
            self._is_finished,
        )

    @property
    def _is_finished(self) -> bool:
        return self._hindsight is not None or len(self._transforms) > 0

    def _finished(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch as it was drawn, with what Python adds to it."""
        if self._hindsight is not None:
            self._hindsight._finish(batch, self._gamma)
        for transform in self._transforms:
            batch = transform(batch)
            if not isinstance(batch, dict):
                raise UnsupportedTypeError(
                    f"the transform {_checks.shown(transform)} returned {_checks.shown(batch)}; it "
                    "must return the batch, a dict"
                )
        return batch

    def __reduce__(self) -> tuple[Any, ...]:
        from reverie import replay_copies  # it loads tempfile

        if self.stats["steps"] == 0:
            return replay_copies.made, (type(self), self._given)
        beta = self._given["beta"] if callable(self._given["beta"]) else None
        files = replay_copies.files_of(self)
        return replay_copies.loaded, (type(self), files, beta, self._transforms, self._hindsight)

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes a checkpoint of the whole buffer: rows, priorities, generators, open episodes.

        A buffer loaded from it draws and adds exactly as this one would. Calls of :meth:`add` are
        refused meanwhile; others may sample. docs/formats/checkpoint.md describes the files, which
        contain no code.

        Args:
            path: a folder, which is created if it does not exist. The checkpoint replaces an
                earlier one there once it is complete and on the disk.

        Returns:
            The path of the checkpoint.

        Raises:
            FailedPreconditionError: nothing was added yet, another thread adds, or another buffer
                or store saves to that folder.
            ResourceExhaustedError: the disk is full; an old checkpoint is unchanged.
            InvalidArgumentError: ``path`` is a file.
        """
        # The stub leaves out what is private.
        return str(self._save(_checks.path("path", path)))  # type: ignore[attr-defined]

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        beta: float | Callable[[int], float] | None = None,
        transforms: Sequence[Callable[[dict[str, Any]], dict[str, Any]]] = (),
        hindsight: Hindsight | None = None,
    ) -> ReplayBuffer:
        """The buffer that :meth:`save` wrote.

        Args:
            path: the folder, whose newest checkpoint is used, or one checkpoint in it.
            beta: the exponent of the weights; None: the saved one. Required if that was a function.
            transforms: as for the constructor; a checkpoint contains no functions.
            hindsight: as for the constructor; required if the saved buffer had it, with goals at
                the same entries of the observation.

        Raises:
            NotFoundError: there is no checkpoint.
            DataLossError: it is damaged.
            InvalidArgumentError: it contains something else, or ``beta`` or ``hindsight`` is
                required, or does not match.
        """
        name = _checks.path("path", path)
        arguments = _reverie.ReplayBuffer._arguments_of(name)  # type: ignore[attr-defined]
        folder = arguments.pop("folder")
        arguments.pop("attached")
        if beta is not None:
            arguments["beta"] = beta
        if arguments["beta"] is None:
            raise InvalidArgumentError(
                f"beta was a function when {name!r} was saved; give it again, beta=..."
            )
        goals = arguments.pop("hindsight")
        if goals is not None or hindsight is not None:
            from reverie.hindsight import check_loaded

            check_loaded(name, goals, hindsight)
        buffer = cls(**arguments, transforms=transforms, hindsight=hindsight)
        buffer._load(folder)  # type: ignore[attr-defined]
        return buffer

    @overload
    def dataset(
        self,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        distinct: bool = False,
        prefetch: int = 2,
        output: Literal["numpy"] = "numpy",
        device: object = None,
        pin_memory: bool = False,
    ) -> Dataset[dict[str, ArrayNest]]: ...
    @overload
    def dataset(
        self,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        distinct: bool = False,
        prefetch: int = 2,
        output: Literal["torch"],
        device: object = None,
        pin_memory: bool = False,
    ) -> Dataset[dict[str, TensorNest]]: ...
    @overload
    def dataset(
        self,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        distinct: bool = False,
        prefetch: int = 2,
        output: Output,
        device: object = None,
        pin_memory: bool = False,
    ) -> Dataset[dict[str, Any]]: ...
    def dataset(
        self,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        distinct: bool = False,
        prefetch: int = 2,
        output: Output = "numpy",
        device: object = None,
        pin_memory: bool = False,
    ) -> Dataset[Any]:
        """An endless iterator over batches, drawn ahead by its own thread.

        Args:
            batch_size: items of a batch; >= 1.
            timeout_s: how long to wait for the first item before the iteration ends, counted from
                the call of ``next``; None waits without limit.
            distinct: no item twice in a batch.
            prefetch: batches made ahead; in [1, 1024]. They are drawn with the priorities of that
                time.
            output: ``"numpy"``, ``"torch"`` or ``"jax"``: the library of all arrays except
                ``tickets``.
            device: a device of torch or JAX for the arrays. The copies of a batch begin before the
                batch ahead of it is returned.
            pin_memory: for torch: copies through locked memory, without waiting.

        Returns:
            An iterator over dicts as of :meth:`sample`, and a context manager.

        Raises:
            FailedPreconditionError: nothing was added yet, so the columns are not known.
            InvalidArgumentError: an argument is out of range, an unknown ``output``, or a device
                that is not there.
            MissingPackageError: the package of ``output`` is not installed.
        """
        from reverie.replay_output import dataset_converter

        convert = dataset_converter(output, device, pin_memory)
        stream = _reverie.ReplayStream(
            self,
            _checks.integer("batch_size", batch_size),
            timeout_s,
            _checks.flag("distinct", distinct),
            _checks.integer("prefetch", prefetch, 1, 1024),
        )
        finish = self._finished if self._is_finished else None
        return replay_dataset(stream, output, finish, convert, is_ahead=device is not None)

    def __getitem__(self, index: int | slice) -> dict[str, ArrayNest]:
        """Items by age: ``buffer[0]`` is the oldest, ``buffer[-1]`` the newest, a copy.

        A slice gives a batch as of :meth:`sample`, a number one row of it. It does not count as a
        draw. Finding an item takes about 1 ns for each older one.

        Raises:
            OutOfRangeError: there is no such item.
            UnsupportedTypeError: neither a number nor a slice.
        """
        count = len(self)
        if isinstance(index, slice):
            return _replay_reading.slice_of(self, index, count)
        place = _checks.integer("index", index, -(2**63))
        if not -count <= place < count:
            has = f"the items 0 to {count - 1}" if count else "no items; add steps first"
            raise OutOfRangeError(f"index is {place}; the buffer has {has}")
        batch = self.read(place % count, 1)
        if batch is None:  # another thread cleared the buffer
            raise OutOfRangeError(f"index is {place}; the buffer has no items any more")
        return _replay_reading.rows(batch, 0)

    def __iter__(self) -> Iterator[dict[str, ArrayNest]]:
        """Items from the oldest to the newest, as ``buffer[i]``.

        Items added meanwhile are included; if the oldest are removed for them, items are left out.
        """
        for batch in _replay_reading.blocks(self):
            for index in range(len(batch["tickets"])):
                yield _replay_reading.rows(batch, index)

    def episodes(self) -> Iterator[dict[str, ArrayNest]]:
        """Runs of transitions of one episode, the oldest first: batches ``[T, ...]``.

        An episode ends where one terminated, or where the next observation differs from the
        announced one. The oldest may have lost its beginning; the last may be unfinished.

        Raises:
            UnimplementedError: the buffer has several environments, whose steps are interleaved,
                sequences, or transitions over several steps.
        """
        if self.num_envs > 1 or self._is_folded:
            raise UnimplementedError(
                f"episodes() takes a buffer of single steps of one environment; {self!r} has "
                f"num_envs={self.num_envs}, n_step above 1 or sequences: use a table with items "
                "of whole episodes, or iterate over the transitions"
            )
        return _replay_reading.episodes(self)

    def __repr__(self) -> str:
        kind = "prioritized" if self.prioritized else "uniform"
        return f"<ReplayBuffer of {len(self)} of {self.capacity} items, {kind}>"
