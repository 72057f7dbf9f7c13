"""The environments of a ``GymVectorEnv`` in worker processes or threads: see ``rows``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from reverie.envs import remedies, rows
from reverie.envs.actions import as_actions
from reverie.envs.backend import NoSuchAttributeError
from reverie.envs.caller import CallerPool
from reverie.envs.process import ProcessPool
from reverie.envs.thread import ThreadPool
from reverie.errors import DeadlineExceededError, EnvError, InvalidArgumentError

_Infos = list[tuple[int, dict[str, Any]]]


class RowsEngine:
    """One batch of rows in a pool. The arguments are those of ``GymVectorEnv``."""

    def __init__(
        self,
        env: object,
        num_envs: int,
        *,
        mode: str,
        in_threads: bool,
        num_workers: int | None,
        env_kwargs: Mapping[str, object],
        wrappers: Sequence[object],
        timeout_s: float,
        copy: bool,
    ) -> None:
        self._pool: Any
        if in_threads and num_workers == 0:
            self._pool = CallerPool(
                env, num_envs, env_kwargs=env_kwargs, wrappers=wrappers, rows_mode=mode
            )
        else:
            self._pool = (ThreadPool if in_threads else ProcessPool)(
                env,
                num_envs,
                num_workers=num_workers,
                env_kwargs=env_kwargs,
                timeout_s=timeout_s,
                copy=copy,
                wrappers=wrappers,
                rows_mode=mode,
            )
        self.num_envs = num_envs
        self.observation_space, self.action_space = self._pool.about["spaces"]
        self.metadata = self._pool.about["metadata"]
        self.render_mode = self._pool.about["render_mode"]
        self._gives_objects = rows.columns_of(self.observation_space) is None
        self._is_flat = self._gives_objects or rows.is_array(self.observation_space)
        self._takes_objects = not rows.is_array(self.action_space)
        self._batched_actions = batch_space(self.action_space, num_envs)
        self._dtype = None if self._takes_objects else self._batched_actions.dtype
        # Whose mail an environment's is, by its number.
        share = [index for index, count in enumerate(self._pool.shares()) for _ in range(count)]
        self._mail_of = [self._pool.mails[index] for index in share]
        self._is_copied = copy
        # What was asked last, if the wait for it was given up.
        self._late: Any = None

    def reset(
        self,
        seed: int | list[int | None] | None,
        options: dict[str, Any] | None,
        mask: npt.NDArray[np.bool_] | None,
    ) -> tuple[Any, _Infos]:
        """Reset environments."""
        if options is None and mask is None and not isinstance(seed, list):
            return self._observed(self._asked(None, lambda: self._pool.reset(seed)))[:2]
        if isinstance(seed, int):
            seeds: list[int | None] = [seed + i for i in range(self.num_envs)]
        else:
            seeds = seed or [None] * self.num_envs
        request = {"seeds": seeds, "options": options, "mask": mask}
        return self._observed(self._asked(request, self._pool.reset))[:2]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, _Infos]:  # noqa: ANN401
        """Step every environment."""
        if self._takes_objects:
            given = list(iterate(self._batched_actions, actions))
            if len(given) != self.num_envs:
                raise InvalidArgumentError(
                    f"actions has {len(given)} entries for {self.num_envs} environments"
                )
            blank = np.zeros(self.num_envs, np.int64)
            nest = self._asked({"actions": given}, lambda: self._pool.step(blank))
        else:
            if self._late is not None:
                self._end_late()
            if not isinstance(actions, np.ndarray) or actions.dtype != self._dtype:
                actions = as_actions(actions, self._dtype)
            try:
                nest = self._pool.step(actions).result().observation
            except (EnvError, DeadlineExceededError) as error:
                raise _with_own_remedy(error) from error.__cause__
        return self._stepped(nest)

    def step_some(
        self,
        actions: Any,  # noqa: ANN401
        chosen: npt.NDArray[np.bool_],
    ) -> tuple[Any, Any, Any, Any, _Infos]:
        """Step the chosen environments, ``[N]``; the others stay as they are, with rewards of 0.

        It is asked for as a reset is, so that a step of all does not look for what is asked.
        """
        request = {"actions": list(actions), "chosen": chosen}
        return self._stepped(self._asked(request, self._pool.reset))

    def _stepped(self, nest: Any) -> tuple[Any, Any, Any, Any, _Infos]:  # noqa: ANN401
        observation, infos, flags = self._observed(nest)
        terminated = (flags & rows.TERMINATED).astype(np.bool_)
        truncated = (flags & rows.TRUNCATED).astype(np.bool_)
        return observation, nest["reward"], terminated, truncated, infos

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Ask each environment."""
        return self._answers({"name": name, "args": args, "kwargs": kwargs})

    def read(self, name: str) -> tuple[Any, ...]:
        """Ask each environment for an attribute."""
        return self._answers({"name": name})

    def set_attr(self, name: str, values: list[Any]) -> None:
        """Tell each environment."""
        self._answers({"name": name, "values": values})

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _asked(self, request: dict[str, Any] | None, begin: Callable[[], Any]) -> Any:  # noqa: ANN401
        """What the environments give once they have done what ``begin`` begins.

        One that is reset and finds no request begins a new episode. So the request is there until
        all have answered, also if the wait for them is given up.
        """
        self._end_late()
        try:
            if request is not None:
                for mail in self._pool.mails:
                    mail.post(request)
            self._late = begin()
            return self._answered()
        finally:
            if self._late is None and request is not None:
                self._withdraw()

    def _answered(self) -> Any:  # noqa: ANN401
        try:
            nest = self._late.result().observation
        except (EnvError, DeadlineExceededError) as error:
            if isinstance(error, EnvError):
                self._late = None
            raise _with_own_remedy(error) from error.__cause__
        self._late = None
        return nest

    def _end_late(self) -> None:
        """Waits for what an earlier call gave up, whose caller was told so."""
        if self._late is None:
            return
        with contextlib.suppress(EnvError):
            self._answered()
        self._withdraw()

    def _withdraw(self) -> None:
        for mail in self._pool.mails:
            mail.withdraw()

    def _answers(self, request: dict[str, Any]) -> tuple[Any, ...]:
        nest = self._asked(request, self._pool.reset)
        answers = []
        for index in range(self.num_envs):
            note = self._note(nest, index)
            if "raised" in note:
                error = note["raised"]
                if isinstance(error, AttributeError):
                    raise NoSuchAttributeError(
                        f"name is {request['name']!r}, and environment {index} raised: {error}"
                    ) from error
                text = f"raised by environment {index}, asked for {request['name']!r}"
                if hasattr(error, "add_note"):
                    error.add_note(text)
                raise error
            answers.append(note["answer"])
        return tuple(answers)

    def _note(self, nest: Any, index: int) -> Any:  # noqa: ANN401
        return self._mail_of[index].note(int(nest["at"][index]), int(nest["size"][index]))

    def _observed(self, nest: Any) -> tuple[Any, _Infos, npt.NDArray[np.int64]]:  # noqa: ANN401
        """Observations and infos of what the rows gave, and their flags."""
        infos: _Infos = []
        objects: list[Any] = []
        for index in nest["size"].nonzero()[0].tolist():
            note = self._note(nest, index)
            if "final_obs" in note:
                final = {"final_obs": note["final_obs"], "final_info": note["final_info"]}
                infos.append((index, final))
            if "info" in note:
                infos.append((index, note["info"]))
            if self._gives_objects:
                objects.append(note["obs"])
        observation = (
            nest["obs"] if self._is_flat else _ordered(self.observation_space, nest["obs"])
        )
        if self._gives_objects:
            space = self.observation_space
            out = create_empty_array(space, n=self.num_envs, fn=np.zeros)
            observation = concatenate(space, objects, out)
        return observation, infos, nest["flags"]


def _with_own_remedy(error: EnvError | DeadlineExceededError) -> Exception:
    """What a pool raises with the remedy of a vector environment, which has no pool."""
    if isinstance(error, DeadlineExceededError):
        why = str(error).partition("; wait again")[0]
        return DeadlineExceededError(
            f"{why}; make the vector environment with a longer timeout_s, or look at what the "
            "environment waits for"
        )
    why, pools = remedies.split(error)
    if not pools:
        return error
    is_dead = "makes it again" not in pools.partition("\n")[0]
    remedy = "make another vector environment" if is_dead else "reset() makes it again"
    traceback = f":\n{error.traceback_text}" if error.traceback_text else ""
    told = EnvError(f"{why}; {remedy}{traceback}")
    told.__dict__.update(error.__dict__)
    return told


def _ordered(space: Any, nest: Any) -> Any:  # noqa: ANN401
    """The keys of dicts in the space's order."""
    kind = type(space).__name__
    if kind == "Dict":
        return {key: _ordered(inner, nest[key]) for key, inner in space.spaces.items()}
    if kind == "Tuple":
        return tuple(_ordered(inner, nest[i]) for i, inner in enumerate(space.spaces))
    return nest
