"""The environments of a ``GymVectorEnv`` stepped by the caller's own thread.

The rows of the worker pools without a worker: no other thread has to wake up, which costs more than
a step of a small environment does, most of all where other programs want the processor too.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reverie.envs import rows, source
from reverie.envs.worker import TYPED, check_spaces
from reverie.errors import EnvError, FailedPreconditionError, InvalidArgumentError
from reverie.specs import TensorSpec


class CallerPool:
    """What ``vector_of_rows.RowsEngine`` asks of a pool, done at once.

    Raises:
        EnvError: an environment cannot be made; with its number and traceback.
    """

    def __init__(
        self,
        env: object,
        num_envs: int,
        *,
        env_kwargs: Mapping[str, object] | None,
        wrappers: Sequence[object],
        rows_mode: str,
    ) -> None:
        self._make_env = source.maker(source.local(env, env_kwargs, wrappers, num_envs))
        self._mode = rows_mode
        self._mail = rows.ThreadMail()
        self.mails = [self._mail]
        self._rows: list[rows.Row] = []
        self._failed: set[int] = set()
        self._is_closed = False
        try:
            for index in range(num_envs):
                self._rows.append(self._made(index))
            for index, row in enumerate(self._rows):
                check_spaces(self._rows[0], row, 0, index)
        except BaseException:
            self.close()
            raise
        first = self._rows[0]
        self.about = rows.about(first)
        action_space = first.spaces[1]
        is_discrete = type(action_space).__name__ == "Discrete"
        self._actions = (int(action_space.start), int(action_space.n)) if is_discrete else None
        self._observations = _Observations(first.spaces[0])

    def shares(self) -> list[int]:
        """How many environments each mail is of."""
        return [len(self._rows)]

    def reset(self, seed: int | None = None) -> _Done:
        """Reset every environment, or ask each what the mail says."""
        self._check_open()
        for index in sorted(self._failed):
            with contextlib.suppress(Exception):
                self._rows[index].close()
            self._rows[index] = self._made(index)
            self._failed.discard(index)
        return self._of_each(
            lambda index, row: row.reset(None if seed is None else seed + index)[0]
        )

    def step(self, actions: Any) -> _Done:  # noqa: ANN401
        """Step every environment with its row of ``actions``.

        Raises:
            EnvError: an environment raised, now or since the last reset.
            InvalidArgumentError: another number of actions, or one out of range.
        """
        self._check_open()
        if len(actions) != len(self._rows):
            raise InvalidArgumentError(
                f"actions has {len(actions)} rows for {len(self._rows)} environments"
            )
        if self._actions is not None:
            begin, count = self._actions
            for index, action in enumerate(actions.tolist()):
                if not begin <= action < begin + count:
                    raise InvalidArgumentError(
                        f"action {index} is {action}; it must be at least {begin} and below "
                        f"{begin + count}"
                    )
        if self._failed:
            raise _env_error(min(self._failed), "raised", "it failed before; reset() first")
        return self._of_each(lambda index, row: row.step(actions[index])[0])

    def close(self) -> None:
        """Close the environments."""
        self._is_closed = True
        for row in self._rows:
            with contextlib.suppress(Exception):
                row.close()
        self._rows = []
        self._mail.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise FailedPreconditionError("this pool is closed; make another")

    def _made(self, index: int) -> rows.Row:
        try:
            env = self._make_env(index)
            return rows.Row(env, index, is_first=index == 0, mode=self._mode, mail=self._mail)
        except Exception as error:
            if isinstance(error, tuple(TYPED.values())):
                raise
            raise _env_error(index, "could not be made", traceback.format_exc()) from error

    def _of_each(self, ask: Any) -> _Done:  # noqa: ANN401
        nests: list[dict[str, Any]] = []
        try:
            for row in self._rows:
                nests.append(ask(len(nests), row))
        except Exception as error:
            self._failed.add(len(nests))
            what = "raised; reset() makes it again"
            raise _env_error(len(nests), what, traceback.format_exc()) from error
        except BaseException:  # Ctrl-C: some have stepped, and others have not
            if "name" not in (self._mail.request() or {}):  # or were asked something else
                self._failed.update(range(len(self._rows)))
            raise
        try:
            return _Done(nests, self._observations.joined([nest["obs"] for nest in nests]))
        except _UnfitError as error:
            self._failed.add(error.index)
            raise _env_error(error.index, "raised", str(error)) from None


class _Done:
    """A step that is done: a future and its batch in one, as a pool gives them."""

    def __init__(self, nests: list[dict[str, Any]], observation: Any) -> None:  # noqa: ANN401
        self.observation = {
            "obs": observation,
            "reward": np.array([nest["reward"] for nest in nests]),
            "flags": np.array([nest["flags"] for nest in nests]),
            "at": [nest["at"] for nest in nests],
            "size": np.array([nest["size"] for nest in nests]),
        }

    def result(self) -> _Done:
        """Itself."""
        return self


class _UnfitError(Exception):
    """The observation of environment ``index`` does not fit its space."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(text)
        self.index = index


class _Observations:
    """Observations of several environments as rows of arrays, by the rules of a pool's workers."""

    def __init__(self, space: Any) -> None:  # noqa: ANN401
        specs = rows.columns_of(space)
        self._specs = TensorSpec((), np.int64) if specs is None else specs
        self._has_warned = False

    def joined(self, values: list[Any]) -> Any:  # noqa: ANN401
        """A nest of arrays with a row for each value.

        Raises:
            _UnfitError: a value of another structure, shape or kind of type than the space has.
        """
        return self._joined(values, "observation", self._specs)

    def _joined(self, values: list[Any], path: str, spec: Any) -> Any:  # noqa: ANN401
        if isinstance(spec, Mapping):
            return {
                key: self._joined(*_entries(values, path, key), inner)
                for key, inner in spec.items()
            }
        if isinstance(spec, tuple):
            return tuple(
                self._joined(*_entries(values, path, i), one) for i, one in enumerate(spec)
            )
        with contextlib.suppress(ValueError):  # the rows have several shapes
            made = np.array(values)
            is_masked = any(isinstance(value, np.ma.MaskedArray) for value in values)
            is_fit = made.dtype == spec.dtype and made.shape == (len(values), *spec.shape)
            if is_fit and not is_masked:
                return made
        made = np.empty((len(values), *spec.shape), spec.dtype)
        for index, value in enumerate(values):
            given = np.asarray(value)
            if isinstance(value, np.ma.MaskedArray):
                raise _UnfitError(
                    index, f"{path} is a masked array, whose mask would be lost; fill it"
                )
            if given.shape != spec.shape or not np.can_cast(given.dtype, spec.dtype, "same_kind"):
                raise _UnfitError(
                    index,
                    f"{path} is {given.dtype} of shape {given.shape}; its space says {spec.dtype} "
                    f"of shape {spec.shape}",
                )
            self._warn_of_narrowing(value, path, spec.dtype)
            made[index] = given
        return made

    def _warn_of_narrowing(self, value: object, path: str, dtype: np.dtype[Any]) -> None:
        is_narrowed = isinstance(value, np.ndarray) and value.dtype.itemsize > dtype.itemsize
        if not is_narrowed or self._has_warned:
            return
        self._has_warned = True
        logging.getLogger("reverie").warning(
            "the %s has dtype %s, but its space says %s: it is narrowed, here and from now on; "
            "give the environment a space of that type, or convert what it returns",
            path,
            value.dtype,  # type: ignore[attr-defined]
            dtype,
        )


def _entries(values: list[Any], path: str, key: Any) -> tuple[list[Any], str]:  # noqa: ANN401
    """One entry of each value, and its path."""
    entries: list[Any] = []
    try:
        entries.extend(value[key] for value in values)  # as far as it gets
    except (LookupError, TypeError) as error:
        raise _UnfitError(len(entries), f"{path} has no entry {key!r}: {error!r}") from None
    return entries, f"{path}[{key!r}]"


def _env_error(index: int, what: str, text: str) -> EnvError:
    error = EnvError(f"environment {index} of batch 0 {what}:\n{text}")
    error.worker, error.batch, error.env_id, error.traceback_text = 0, 0, index, text
    return error
