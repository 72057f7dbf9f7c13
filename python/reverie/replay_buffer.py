"""Experience replay in one line: transitions or sequences, uniform or prioritised."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal

from reverie import _checks, _options, _reverie
from reverie.dataset import Dataset, Output, replay_dataset
from reverie.errors import InvalidArgumentError, UnsupportedTypeError


class ReplayBuffer(_reverie.ReplayBuffer):
    """The last steps of one or many environments, for a learner in the same process.

    A table of a store of its own, with what a learner needs around it::

        buffer = reverie.ReplayBuffer(100_000, prioritized=True)
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        batch = buffer.sample(256)
        buffer.update_priorities(batch["tickets"], td_errors)

    Each observation is stored once: the one after a step is the next step's, save at an episode's
    end, whose last observation has a row of its own. Where an observation is given that is not
    the one that was announced, the stream is cut there as a truncation would. Steps over several
    rewards, stacks of frames and sequences are made when they are sampled.

    One thread at a time adds; others may sample and update meanwhile.

    Args:
        capacity: items (transitions, or sequences), >= 1; the oldest make room. ``1e5`` is a
            whole number too.
        num_envs: environments that are stepped together; each is a stream of its own.
        frame_stack: frames that make an observation. Give :meth:`add` the newest one; where an
            episode has too few yet, its first is repeated.
        n_step: rewards that make a transition, fewer where the episode ends before.
        gamma: of the sum of rewards and of ``discount``; in [0, 1].
        prioritized: sample by priority. New items get the largest priority so far.
        alpha: the exponent of priorities; finite and >= 0.
        beta: the exponent of the weights, or a function that gives it for the number of updates
            so far. The function is called once here, with 0.
        weights: which item has the weight 1: ``"batch"``, the least likely one of the batch, or
            ``"buffer"``, that of the whole buffer, so that weights mean the same from batch to
            batch (as OpenAI Baselines has it).
        seed: of the draws; None takes one from the system.
        sequence_length: steps of a sequence that count; None for transitions.
        period: steps from the start of one sequence to that of the next; None for
            ``sequence_length``, so that none overlap.
        burn_in: steps before those that count, as far as the episode has them; a sequence then has
            ``burn_in + sequence_length`` steps.
        pad_sequences: steps that an episode's end leaves over make a shorter sequence, filled up
            with zeros; else they are dropped.

    Raises:
        InvalidArgumentError: an argument is out of range, or ``beta`` gives no number >= 0.

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
    ) -> None:
        if isinstance(capacity, float) and capacity.is_integer():
            capacity = int(capacity)  # 1e5
        capacity = _checks.integer("capacity", capacity, 0)
        for name, count in (
            ("num_envs", num_envs),
            ("frame_stack", frame_stack),
            ("n_step", n_step),
            ("burn_in", burn_in),
        ):
            _checks.integer(name, count, 0)
        _checks.number("gamma", gamma, finite=False)
        _checks.number("alpha", alpha, 0.0)
        _checks.flag("prioritized", prioritized)
        _checks.flag("pad_sequences", pad_sequences)
        if sequence_length is None and (period is not None or burn_in != 0):
            raise InvalidArgumentError(
                f"period is {period} and burn_in {burn_in}, which are for sequences; give "
                "sequence_length too, or leave them out"
            )
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
        )

    def dataset(
        self,
        batch_size: int,
        *,
        timeout_s: float | None = None,
        distinct: bool = False,
        prefetch: int = 2,
        output: Output = "numpy",
    ) -> Dataset:
        """Batches without end, drawn ahead by a thread of its own.

        Args:
            batch_size: items of a batch; >= 1.
            timeout_s: how long to wait for the first item before the iteration ends; None for ever.
            distinct: no item twice in a batch.
            prefetch: batches that may wait for their user; in [1, 1024]. They are drawn with the
                priorities of that time.
            output: ``"numpy"``, ``"torch"`` or ``"jax"``: of what all but ``tickets`` are arrays.

        Returns:
            An iterator over dicts as of :meth:`sample`, and a context manager.

        Raises:
            FailedPreconditionError: nothing was added yet, so that nobody knows what items are.
            InvalidArgumentError: a number lies outside, or ``output`` is none of the three.
            MissingPackageError: the package of ``output`` is not installed.
        """
        _checks.choice("output", output, ("numpy", "torch", "jax"))
        stream = _reverie.ReplayStream(
            self,
            _checks.integer("batch_size", batch_size),
            timeout_s,
            _checks.flag("distinct", distinct),
            _checks.integer("prefetch", prefetch, 1, 1024),
        )
        return replay_dataset(stream, output)

    def __enter__(self) -> "ReplayBuffer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise UnsupportedTypeError(
            "a ReplayBuffer lives in this process and cannot be pickled; make one in the other "
            "process, or serve a Store"
        )

    def __repr__(self) -> str:
        kind = "prioritized" if self.prioritized else "uniform"
        return f"<ReplayBuffer of {len(self)} of {self.capacity} items, {kind}>"
