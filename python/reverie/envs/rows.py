"""Environments as a Gymnasium ``VectorEnv`` has them, in the worker that steps them.

A pool's worker writes arrays to shared memory, resets an episode that ended at once, and knows
``step`` and ``reset``. Gymnasium's vector environments can do more: three ways of resetting, info
dicts of any values, attributes that are read, set and called. ``Row`` stands between: to the worker
it is an environment whose episodes never end, and whose observation is a nest of what there is:

    {"obs": the environment's own, "reward": float64, "flags": terminated | truncated << 1,
     "at", "size": where a note lies in the worker's ``Mail``, and its length (0: there is none)}

What is not an array travels as a note; an operation other than a step travels as a request, which
the row looks for when it is told to reset. Most steps have neither, and cost what a step of a pool
costs.
"""

from __future__ import annotations

import copy
import mmap
import os
import struct
import tempfile
from typing import Any

import numpy as np

from reverie import trusted
from reverie.errors import (
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnsupportedTypeError,
)
from reverie.specs import TensorSpec, signature_columns

TERMINATED, TRUNCATED = 1, 2
MODES = ("NextStep", "SameStep", "Disabled")

_HEAD = struct.Struct("<QQ")  # a request's number and its size in bytes
_KEPT_MAX = 16 << 20  # bytes of answers for which memory is kept


class Mail:
    """Requests to one worker process and its notes, in two anonymous files of both."""

    def __init__(self, descriptors: tuple[int, int] | None = None) -> None:
        self._requests, self._notes = descriptors or (_memory_file(), _memory_file())
        if descriptors is None:
            os.pwrite(self._requests, _HEAD.pack(0, 0), 0)
        self._head = mmap.mmap(self._requests, _HEAD.size)
        self._count = 0
        self._end = 0
        self._request: tuple[int, Any] = (0, None)

    def descriptors(self) -> list[int]:
        """The descriptors of the two files, for the worker."""
        return [self._requests, self._notes]

    def close(self) -> None:
        """Let the files go."""
        if not self._head.closed:
            self._head.close()
            os.close(self._requests)
            os.close(self._notes)

    # --- The program's side, while the worker waits.

    def post(self, request: object) -> None:
        """Leave a request, which the worker sees until it is withdrawn.

        Raises:
            FailedPreconditionError: it is closed; its descriptors may be those of other files now.
        """
        if self._head.closed:
            raise FailedPreconditionError("this pool is closed; make another")
        data = trusted.dumps(request, "what is asked of the environments")
        os.pwrite(self._requests, data, _HEAD.size)
        self._count += 1
        self._head[:] = _HEAD.pack(self._count, len(data))

    def withdraw(self) -> None:
        """Ends the request."""
        if not self._head.closed:
            self._head[:] = _HEAD.pack(self._count, 0)

    def note(self, at: int, size: int) -> Any:  # noqa: ANN401
        """What a row wrote."""
        return trusted.loads(os.pread(self._notes, size, at))

    # --- The worker's side.

    def request(self) -> Any:  # noqa: ANN401
        """What is asked, or None."""
        count, size = _HEAD.unpack(self._head[:])
        if size == 0:
            return None
        if count != self._request[0]:
            self._request = (count, trusted.loads(os.pread(self._requests, size, _HEAD.size)))
        return self._request[1]

    def rewind(self) -> None:
        """Begins to write notes from the start: those of the last step were read."""
        if self._end > _KEPT_MAX:
            os.ftruncate(self._notes, 0)
        self._end = 0

    def write(self, note: object) -> tuple[int, int]:
        """Adds a note; gives its place and size."""
        data = trusted.dumps(note, "what the environment gives beside arrays")
        at, self._end = self._end, self._end + len(data)
        os.pwrite(self._notes, data, at)
        return at, len(data)


class ThreadMail:
    """The same between threads of one process: objects as they are."""

    def __init__(self) -> None:
        self._posted: Any = None
        self._written: list[Any] = []

    def descriptors(self) -> list[int]:
        """None: nothing leaves the process."""
        return []

    def close(self) -> None:
        """Let what was written go."""
        self._written = []

    def post(self, request: object) -> None:
        """As ``Mail.post``."""
        self._posted = request

    def withdraw(self) -> None:
        """As ``Mail.withdraw``."""
        self._posted = None

    def note(self, at: int, _size: int) -> Any:  # noqa: ANN401
        """As ``Mail.note``."""
        return self._written[at]

    def request(self) -> Any:  # noqa: ANN401
        """As ``Mail.request``."""
        return self._posted

    def rewind(self) -> None:
        """As ``Mail.rewind``."""
        self._written = []

    def write(self, note: object) -> tuple[int, int]:
        """As ``Mail.write``."""
        self._written.append(note)
        return len(self._written) - 1, 1


class Row:
    """One environment of a Gymnasium ``VectorEnv``, as a pool's worker steps it.

    Args:
        env: the environment.
        index: its number in the vector environment.
        is_first: whether it is the first that its worker steps.
        mode: one of ``MODES``, how it is reset behind an episode's end.
        mail: its worker's.
    """

    def __init__(
        self,
        env: Any,  # noqa: ANN401
        index: int,
        *,
        is_first: bool,
        mode: str,
        mail: Mail | ThreadMail,
    ) -> None:
        self._env = env
        self._index = index
        self._is_first = is_first
        self._mode = mode
        self._mail = mail
        self._is_over = False
        self._is_reset = False  # never, where it stands in for one that raised
        self.spaces = spaces_of(env)
        observation_space, action_space = self.spaces
        self._gives_objects = columns_of(observation_space) is None
        self._takes_objects = not is_array(action_space)
        is_discrete = type(action_space).__name__ == "Discrete"
        self._action_type = action_space.dtype.type if is_discrete else None
        # What is shown before the first reset.
        blank = 0 if self._gives_objects else _zeros(observation_space)
        self._shown: Any = blank

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """A step, or the reset that stands in for one."""
        if self._is_first:
            self._mail.rewind()
        if not self._is_reset:
            raise FailedPreconditionError(
                f"environment {self._index} was made again after it had raised, and was not reset "
                "since; reset it first"
            )
        note: dict[str, Any] = {}
        if self._is_over and self._mode == "NextStep":
            observation, info = self._env.reset()
            reward, terminated, truncated = 0.0, False, False
        else:
            if self._is_over:
                raise InvalidArgumentError(
                    f"the episode of environment {self._index} is over, and autoreset is disabled; "
                    "reset it first, with a reset_mask that has it"
                )
            if self._takes_objects:
                action = self._mail.request()["actions"][self._index]
            elif self._action_type is not None:
                action = self._action_type(action)
            observation, reward, terminated, truncated, info = self._env.step(action)
        self._is_over = bool(terminated or truncated)
        if self._is_over and self._mode == "SameStep":
            # A copy: the reset may write to the same array.
            note = {"final_obs": copy.deepcopy(observation), "final_info": info}
            observation, info = self._env.reset()
            self._is_over = False
        flags = (TERMINATED if terminated else 0) | (TRUNCATED if truncated else 0)
        return self._given(observation, float(reward), flags, info, note)

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """A reset, or another request."""
        if self._is_first:
            self._mail.rewind()
        request = self._mail.request()
        options = None
        if request is not None:
            if "name" in request:
                return self._answered(request)
            if "chosen" in request:
                if request["chosen"][self._index]:
                    return self.step(request["actions"][self._index])[0], {}
                return self._shown_again()
            if request["mask"] is not None and not request["mask"][self._index]:
                return self._shown_again()
            seed, options = request["seeds"][self._index], request["options"]
        self._is_over = False
        if seed is None and options is None:
            observation, info = self._env.reset()
        else:
            observation, info = self._env.reset(seed=seed, options=options)
        self._is_reset = True
        return self._given(observation, 0.0, 0, info, {})[0], {}

    def close(self) -> None:
        """Close the environment."""
        close = getattr(self._env, "close", None)
        if close is not None:
            close()

    def _given(
        self,
        observation: Any,  # noqa: ANN401
        reward: float,
        flags: int,
        info: dict[str, Any],
        note: dict[str, Any],
    ) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if info:
            note["info"] = info
        if self._gives_objects:
            note["obs"] = observation
            observation = 0
        self._shown = observation if not self._gives_objects else note["obs"]
        at, size = self._mail.write(note) if note else (0, 0)
        nest = {"obs": observation, "reward": reward, "flags": flags, "at": at, "size": size}
        return nest, 0.0, False, False, {}

    def _shown_again(self, note: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self._given(self._shown, 0.0, 0, {}, note or {})[0], {}

    def _answered(self, request: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """An attribute that is read, called or set; what is raised is an answer, too."""
        name = request["name"]
        note: dict[str, Any]
        try:
            if "values" in request:
                value = request["values"][self._index]
                getattr(self._env, "set_wrapper_attr", self._set)(name, value)
                note = {"answer": None}
            else:
                find = getattr(self._env, "get_wrapper_attr", None)
                found = getattr(self._env, name) if find is None else find(name)
                if "args" in request and callable(found):
                    found = found(*request["args"], **request["kwargs"])
                note = {"answer": found}
        except Exception as error:
            note = {"raised": _portable(error)}
        try:
            return self._shown_again(note)
        except UnsupportedTypeError as error:  # the answer stays here
            return self._shown_again({"raised": error})

    def _set(self, name: str, value: object) -> None:
        setattr(self._env, name, value)


def spaces_of(env: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """An environment's spaces.

    Raises:
        UnsupportedTypeError: it has none, so that no vector environment can be made of it.
    """
    found = (getattr(env, "observation_space", None), getattr(env, "action_space", None))
    for name, space in zip(("observation_space", "action_space"), found, strict=True):
        if space is None:
            raise UnsupportedTypeError(
                f"the environment, a {type(env).__name__}, has no {name}; a VectorEnv needs it: "
                "wrap what is no Gymnasium environment (reverie.envs.OldGym, DmEnv), or use an "
                "EnvPool"
            )
    return found


def is_array(space: Any) -> bool:  # noqa: ANN401
    """Whether a space's values are single arrays or numbers."""
    return type(space).__name__ in ("Box", "Discrete", "MultiDiscrete", "MultiBinary")


def columns_of(space: Any) -> Any:  # noqa: ANN401
    """An observation space as a nest of ``TensorSpec``; None where some of it is not an array."""
    inner = getattr(space, "spaces", None)
    kind = type(space).__name__
    if kind in ("Dict", "Tuple") and inner is not None:
        names = inner.keys() if kind == "Dict" else range(len(inner))
        nest = {name: columns_of(inner[name]) for name in names}
        if not nest or any(value is None for value in nest.values()):
            return None
        return nest if kind == "Dict" else tuple(nest.values())
    if not is_array(space) or np.dtype(space.dtype).kind not in "biufc":
        return None
    return TensorSpec(tuple(int(n) for n in space.shape), space.dtype)


def describe(row: Row, name: str) -> dict[str, Any]:
    """What a row takes and gives, as ``spaces.describe`` says it of an environment."""
    observation_space, action_space = row.spaces
    obs = columns_of(observation_space)
    number = TensorSpec((), np.int64)
    nest = {
        "obs": TensorSpec((), np.int64) if obs is None else obs,
        "reward": TensorSpec((), np.float64),
        "flags": number,
        "at": number,
        "size": number,
    }
    found = signature_columns(nest)
    assert found is not None
    columns, structure = found
    action: dict[str, Any] = {"dtype": "int64", "shape": [], "start": 0}
    if is_array(action_space) and type(action_space).__name__ != "Discrete":
        shape = [int(n) for n in action_space.shape]
        action = {"dtype": np.dtype(action_space.dtype).name, "shape": shape}
    return {
        "id": name,
        "observation": [list(column) for column in columns],
        "structure": structure,
        "action": action,
        "max_episode_steps": None,
    }


def about(row: Row) -> dict[str, Any]:
    """What a vector environment says of its environments, as objects."""
    env = row._env
    return {
        "spaces": row.spaces,
        "metadata": dict(getattr(env, "metadata", None) or {}),
        "render_mode": getattr(env, "render_mode", None),
    }


def _portable(error: Exception) -> Exception:
    """The same, or an error that says as much, where the program could not make it again."""
    try:
        trusted.loads(trusted.dumps(error, "an error"))
    except Exception:  # each type raises what it likes
        return EnvError(f"{type(error).__name__}: {error}")
    return error


def _zeros(space: Any) -> Any:  # noqa: ANN401
    kind = type(space).__name__
    if kind == "Dict":
        return {name: _zeros(inner) for name, inner in space.spaces.items()}
    if kind == "Tuple":
        return tuple(_zeros(inner) for inner in space.spaces)
    return np.zeros(space.shape, space.dtype)


def _memory_file() -> int:
    make = getattr(os, "memfd_create", None)
    if make is not None:
        descriptor: int = make("reverie-env-mail", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, _HEAD.size)
    return descriptor
