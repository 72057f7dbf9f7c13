"""What a training leaves to look at: its curve as a picture, an episode as a GIF, event files."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reverie._closing import Scoped
from reverie._options import OptionValue
from reverie.agents._drawing import drawn_alone
from reverie.agents.event_file import EventFile
from reverie.agents.trainer import Episode, Trainer, TrainProgress
from reverie.envs import native
from reverie.envs.backend import EnvSpec
from reverie.errors import UnimplementedError

if TYPE_CHECKING:
    from reverie.agents.torch_training import TorchTrainer
    from reverie.nn import Mlp

_STEPS_MAX = 1_000
_STEPS_A_PICTURE = 4
_PICTURE_MS = 80


@drawn_alone
def save_curve(path: Path, episodes: list[Episode], evaluations: list[tuple[int, float]]) -> bool:
    """Draws the returns over the steps. False, and nothing is written, without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None or not episodes:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    steps = [episode.step for episode in episodes]
    returns = np.array([episode.episode_return for episode in episodes])
    axes.plot(steps, returns, ".", markersize=2, alpha=0.3, label="an episode")
    window = min(100, len(returns))
    sums = np.cumsum(np.concatenate([[0.0], returns]))
    means = (sums[window:] - sums[:-window]) / window
    axes.plot(steps[window - 1 :], means, label=f"mean of {window}")
    if evaluations:
        axes.plot(*zip(*evaluations, strict=True), "s-", markersize=3, label="without exploration")
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    return True


def save_episode(
    path: Path, algorithm: str, env: str, env_options: dict[str, OptionValue], policy: Mlp
) -> bool:
    """An episode without exploration as a GIF, of a native environment that draws itself.

    False, and nothing is written, without Pillow, or where the environment does not draw.
    """
    if importlib.util.find_spec("PIL") is None:
        return False
    from PIL import Image

    pictures = []
    options: dict[str, Any] = dict(env_options)
    with native.NativePool(env, 1, num_threads=0, seed=1, **options) as pool:
        rows = pool.reset().result()
        for step in range(_STEPS_MAX):
            if step % _STEPS_A_PICTURE == 0:
                try:
                    picture = Image.fromarray(pool.render())
                except UnimplementedError:
                    return False
                pictures.append(picture.resize((picture.width // 2, picture.height // 2)))
            actions = _greedy(algorithm, policy, rows.observation, pool.spec)
            rows = pool.step(actions).result()
            if rows.terminated[0] or rows.truncated[0]:
                break
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=_PICTURE_MS, loop=0)
    return True


def _greedy(algorithm: str, policy: Mlp, observation: np.ndarray, spec: EnvSpec) -> np.ndarray:
    out = policy(observation.reshape(len(observation), -1).astype(np.float32))
    if spec.action_count is not None:
        chosen: np.ndarray = out.argmax(1)
        return chosen
    low, high = np.asarray(spec.action_low), np.asarray(spec.action_high)
    width = low.size
    # The other algorithms' networks end with a tanh of their own.
    unit = (np.tanh(out[:, :width]) if algorithm == "sac" else out).reshape(-1, *low.shape)
    scaled: np.ndarray = ((low + high) / 2 + unit * (high - low) / 2).astype(np.float32)
    return scaled


class Events(Scoped):
    """Event files of a training, where TensorBoard is installed to read them."""

    def __init__(
        self, trainer: Trainer | TorchTrainer, folder: str | os.PathLike[str] | None
    ) -> None:
        self._trainer = trainer
        self._last: TrainProgress | None = None
        self._evaluated: set[int] = set()  # the steps of those that were written
        self._file: EventFile | None = None
        if folder is not None and importlib.util.find_spec("tensorboard") is not None:
            self._file = EventFile(folder)

    def add(self, now: TrainProgress) -> None:
        """How it stands."""
        if self._file is None:
            return
        last, self._last = self._last, now
        scalars = {"loss": now.loss}
        if now.mean_return is not None:
            scalars["return"] = now.mean_return
        if last is not None and now.elapsed_s > last.elapsed_s:
            elapsed = now.elapsed_s - last.elapsed_s
            scalars["steps_per_s"] = (now.steps - last.steps) / elapsed
            scalars["updates_per_s"] = (now.updates - last.updates) / elapsed
        self._file.add(now.steps, scalars)
        for step, mean in self._trainer.evaluations():
            if step not in self._evaluated:
                self._evaluated.add(step)
                self._file.add(step, {"return_without_exploration": mean})

    def _leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        if self._file is not None:
            self._file.close()
