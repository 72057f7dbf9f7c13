"""The environments of a ``GymVectorEnv`` stepped by the caller's own thread.

The rows of the worker pools without a worker: no other thread has to wake up, which costs more than
a step of a small environment does, most of all where other programs want the processor too.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reverie.envs import rows, source
from reverie.envs.worker import TYPED, check_spaces
from reverie.errors import EnvError, FailedPreconditionError, InvalidArgumentError


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
        self._is_array = rows.is_array(first.spaces[0])

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
            raise _env_error(len(nests), "raised", traceback.format_exc()) from error
        except BaseException:  # Ctrl-C: some have stepped, and others have not
            if "name" not in (self._mail.request() or {}):  # or were asked something else
                self._failed.update(range(len(self._rows)))
            raise
        return _Done(nests, is_array=self._is_array)


class _Done:
    """A step that is done: a future and its batch in one, as a pool gives them."""

    def __init__(self, nests: list[dict[str, Any]], *, is_array: bool) -> None:
        obs = [nest["obs"] for nest in nests]
        self.observation = {
            "obs": np.array(obs) if is_array else _stacked(obs),
            "reward": np.array([nest["reward"] for nest in nests]),
            "flags": np.array([nest["flags"] for nest in nests]),
            "at": [nest["at"] for nest in nests],
            "size": np.array([nest["size"] for nest in nests]),
        }

    def result(self) -> _Done:
        """Itself."""
        return self


def _stacked(values: list[Any]) -> Any:  # noqa: ANN401
    first = values[0]
    if isinstance(first, Mapping):
        return {key: _stacked([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked(list(inner)) for inner in zip(*values, strict=True))
    return np.array(values)


def _env_error(index: int, what: str, text: str) -> EnvError:
    error = EnvError(f"environment {index} of batch 0 {what}:\n{text}")
    error.worker, error.batch, error.env_id, error.traceback_text = 0, 0, index, text
    return error
