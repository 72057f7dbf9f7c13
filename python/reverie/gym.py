"""Native environments by Gymnasium's ids: ``reverie/CartPole-v1`` for ``gymnasium.make_vec``.

    import gymnasium
    import reverie.gym

    gymnasium.register_envs(reverie.gym)  # importing it is enough; this keeps linters content
    envs = gymnasium.make_vec("reverie/CartPole-v1", num_envs=8)

``make_vec("reverie.gym:reverie/CartPole-v1", num_envs=8)`` needs no import. The environments are
``GymVectorEnv``, whose keyword arguments ``make_vec`` passes on: ``autoreset_mode="SameStep"``,
``num_workers=2``, and the options of the environment.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

import gymnasium

from reverie.envs import native
from reverie.envs.vector_env import AutoresetMode, GymVectorEnv
from reverie.errors import UnimplementedError

__all__ = ["AutoresetMode", "GymVectorEnv", "make_native", "register"]

NAMESPACE = "reverie"
_POOL_OPTIONS = ("autoreset_mode", "num_workers", "timeout_s", "copy")


def make_native(env_id: str, num_envs: int = 1, **kwargs: Any) -> GymVectorEnv:  # noqa: ANN401
    """A native environment as ``gymnasium.make_vec`` makes it.

    Args:
        env_id: one of ``reverie.envs.native.ids()``.
        num_envs: environments.
        kwargs: ``autoreset_mode``, ``num_workers``, ``timeout_s`` and ``copy`` as ``GymVectorEnv``
            takes them; the rest are options of the environment.
    """
    # Gymnasium 0.29 passes a limit of None.
    kwargs = {name: value for name, value in kwargs.items() if value is not None}
    pool_options = {name: kwargs.pop(name) for name in _POOL_OPTIONS if name in kwargs}
    return GymVectorEnv(env_id, num_envs, backend="native", env_kwargs=kwargs, **pool_options)


def register() -> None:
    """Makes Gymnasium know the native environments, those of loaded plugins too.

    Called when this module is imported; again after a plugin was loaded.
    """
    for env_id in native.ids():
        name = f"{NAMESPACE}/{env_id}"
        if name not in gymnasium.registry:
            one, make = partial(_refuse_one, env_id), partial(make_native, env_id)
            gymnasium.register(name, entry_point=one, vector_entry_point=make)


def _refuse_one(env_id: str, **_: object) -> NoReturn:
    name = f"{NAMESPACE}/{env_id}"
    raise UnimplementedError(
        f"gymnasium.make was given {name!r}, whose environments are stepped together; "
        f"gymnasium.make_vec({name!r}, num_envs=1) makes them, gymnasium.make({env_id!r}) "
        "Gymnasium's own"
    )


register()
