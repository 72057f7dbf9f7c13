"""The curves of a training with PyTorch's learner, for `tune_cores`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from reverie.agents.loop_envs import LoopEnvs
from reverie.agents.settings import TrainSettings, warmup_least
from reverie.agents.torch_training import TorchTrainer

_FILL_STEPS = 2_000  # as the native exploration fills its table with
_WARM_BATCHES = 20  # the first ones load the device's code
_CALLS_MIN = 3


def torch_curves(
    algorithm: str,
    env: str,
    settings: TrainSettings,
    *,
    cores: int,
    measure_s: float,
    device: str,
    options: Mapping[str, Any],
) -> tuple[list[float], float]:
    """Steps a second of an actor with 1, 2, ... cores' environments, and the learner's batches.

    The actor asks the networks on the device for all its environments at once.
    """
    with TorchTrainer(algorithm, env, settings, device=device, **options) as trainer:
        loop, agent = trainer._loop, trainer.agent
        late = int(loop._s["steps"])
        per_actor = int(loop._s["envs_per_actor"])
        least = max(_FILL_STEPS, int(loop._s["batch_size"]), warmup_least(loop._s))
        while loop._steps < least:
            loop._act_once()
        before: tuple[Any, Any] | None = None

        def learn() -> None:
            nonlocal before
            before = loop._learn(loop._sample(), before)

        for _ in range(_WARM_BATCHES):
            learn()
        batches = _rate(learn, measure_s)
        loop._update(before)
        curve: list[float] = []
        last = 0
        for x in _points(cores):
            envs = LoopEnvs(
                env,
                x * per_actor,
                options=dict(trainer.env_options),
                backend=trainer.env_backend,
                timeout_s=float(options.get("env_timeout_s", 60.0)),
                seed=1,
            )
            try:
                obs = envs.reset()

                def act(envs: LoopEnvs = envs) -> None:
                    nonlocal obs
                    obs = envs.step(agent.act(obs, step=late, explore=True)).observation

                act()
                rate = x * per_actor * _rate(act, measure_s)
            finally:
                envs.close()
            curve += [
                curve[-1] + (rate - curve[-1]) * (i - last) / (x - last) for i in range(last + 1, x)
            ]
            curve.append(rate)
            last = x
    return curve, batches


def _points(cores: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, ... and the last."""
    powers = [1 << i for i in range(cores.bit_length())]
    return sorted({x for power in powers for x in (power, power * 3 // 2) if x <= cores} | {cores})


def _rate(call: Callable[[], None], measure_s: float) -> float:
    begin = time.perf_counter()
    count = 0
    while count < _CALLS_MIN or time.perf_counter() - begin < measure_s:
        call()
        count += 1
    return count / (time.perf_counter() - begin)
