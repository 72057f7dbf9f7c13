"""How many cores act and how many learn: measured, solved, and returned as settings."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from reverie import _checks, _reverie
from reverie._options import OptionValue
from reverie.agents._drawing import drawn_alone
from reverie.agents.envs import env_source
from reverie.agents.settings import TrainSettings, checked_algorithm, checked_settings
from reverie.errors import InternalError, InvalidArgumentError, MissingPackageError

_CORES_MAX = 1024


@dataclass(frozen=True)
class CoreTuning:
    """What each number of cores gives on either side of a training, and the split that fits."""

    cores: int
    actor_curve: list[float]
    """``[x - 1]``: environment steps a second on x cores."""
    learner_curve: list[float]
    """``[x - 1]``: batches a second on x cores."""
    actor_cores: int
    """0: one thread acts and learns in turn."""
    learner_cores: int
    ratio: float
    """Steps collected for each that is learned from, at the split."""
    steps_per_s: float
    """What the slower side allows: the prediction."""
    settings: TrainSettings
    """Those that were given, with ``actors`` and ``learners`` as the split says."""


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def tune_cores(
    algorithm: str,
    env: str,
    settings: TrainSettings | None = None,
    *,
    cores: int | None = None,
    measure_s: float = 0.2,
    env_options: dict[str, OptionValue] | None = None,
    env_backend: str = "auto",
    env_timeout_s: float = 60.0,
    learner: str = "native",
    device: str = "cpu",
) -> CoreTuning:
    """Measures actors and learners on 1, 2, ... cores, and splits the cores between them.

    All splits are tried. The best is the one whose ratio of collected steps to ``update_interval``
    times batches is nearest to 1; among those within a tenth of it, the fastest.

    With PyTorch's learner there is one learner, measured on its device, and one actor thread, whose
    environments are counted as if each took a core. On an accelerator all cores are the actor's.

    Args:
        algorithm: one of `algorithms`.
        env: a native environment or a Gymnasium id.
        settings: those of the training; their numbers of actors and learners are not used.
        cores: how many; None: all that this process may use.
        measure_s: for each point of a curve.
        env_options: keyword arguments of the environment.
        env_backend: what steps it, as for `Trainer`.
        env_timeout_s: how long a step may take, of an environment that is not native.
        learner: ``"native"`` or ``"torch"``, as for `train`.
        device: where PyTorch computes, ``"cpu"`` or ``"cuda:0"``.

    Raises:
        NotFoundError: no such algorithm or environment.
        MissingPackageError: PyTorch is not installed.
        EnvError: an environment cannot be made, or raised.
        InvalidArgumentError: a setting or an argument is out of range.

    Source:
        "Parallel Actors and Learners", section V.
    """
    settings = checked_settings(settings)
    cores = usable_cores() if cores is None else _checks.integer("cores", cores, 1, _CORES_MAX)
    measure_s = _checks.number("measure_s", measure_s, most=60.0, above=0.0)
    checked_algorithm(algorithm)
    if _checks.choice("learner", learner, ("native", "torch")) == "torch":
        options: dict[str, Any] = {
            "env_options": env_options,
            "env_backend": env_backend,
            "env_timeout_s": env_timeout_s,
        }
        return _tune_torch(algorithm, env, settings, cores, measure_s, device, options)
    if _checks.text("device", device) != "cpu":
        raise InvalidArgumentError(
            f"device is {device!r} with learner='native', which computes on the CPU; give "
            "learner='torch'"
        )
    alone = dataclasses.replace(settings, actors=None, learners=None)
    count = int(_reverie.checked_settings(algorithm, alone.options())["envs_per_actor"])
    checked, source = env_source(
        env, env_options, backend=env_backend, timeout_s=env_timeout_s, count=count
    )
    native_options = checked if source is None else {}
    try:
        found = _reverie.tune_cores(
            algorithm, env, native_options, alone.options(), cores, measure_s, source
        )
    except InternalError as error:
        raise (source and source.error_of(str(error))) or error from None
    finally:
        if source is not None:
            source.close()
    split = dataclasses.replace(
        settings, actors=found["actor_cores"], learners=found["learner_cores"]
    )
    return CoreTuning(cores=cores, settings=split, **found)


def _tune_torch(
    algorithm: str,
    env: str,
    settings: TrainSettings,
    cores: int,
    measure_s: float,
    device: str,
    options: dict[str, Any],
) -> CoreTuning:
    try:
        from reverie.agents.torch_cores import torch_curves
    except ImportError as error:
        raise MissingPackageError("learner='torch' needs PyTorch: pip install torch") from error
    alone = dataclasses.replace(settings, actors=1, learners=1)
    actor_curve, batches_s = torch_curves(
        algorithm, env, alone, cores=cores, measure_s=measure_s, device=device, options=options
    )
    interval = float(_reverie.checked_settings(algorithm, alone.options())["update_interval"])
    needs_core = device == "cpu"
    found = _reverie.split_cores(actor_curve, [batches_s], cores, interval, needs_core)
    split = dataclasses.replace(settings, actors=found["actor_cores"], learners=1)
    return CoreTuning(
        cores=cores,
        actor_curve=actor_curve,
        learner_curve=[batches_s] * cores,
        settings=split,
        **found,
    )


def table(tuning: CoreTuning) -> str:
    """Both curves and the choice, as lines of text."""
    lines = ["cores   acting: steps/s   learning: batches/s"]
    for x in range(tuning.cores):
        marks = [
            "<" if cores == x + 1 else " " for cores in (tuning.actor_cores, tuning.learner_cores)
        ]
        lines.append(
            f"{x + 1:>5}   {tuning.actor_curve[x]:>13,.0f} {marks[0]}   "
            f"{tuning.learner_curve[x]:>17,.0f} {marks[1]}"
        )
    if tuning.actor_cores == 0:
        lines.append("one core acts and learns in turn")
    else:
        lines.append(
            f"{tuning.actor_cores} to act and {tuning.learner_cores} to learn: "
            f"{tuning.ratio:.2f} steps collected for each that is learned from"
        )
    lines[-1] += f"; predicted: {tuning.steps_per_s:,.0f} steps/s"
    return "\n".join(lines)


@drawn_alone
def plot(tuning: CoreTuning, path: str | os.PathLike[str]) -> None:
    """Draws both curves and the choice, as the paper's figure 12.

    The learners' curve is in environment steps: batches times ``update_interval``. Where both are
    level, cores are split well.

    Args:
        tuning: of `tune_cores`.
        path: a file whose ending says what is written, as ``cores.png``.

    Raises:
        MissingPackageError: matplotlib is not installed.
        InvalidArgumentError: no picture of that kind can be written.
    """
    name = _checks.path("path", path)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingPackageError("plot() needs matplotlib: pip install matplotlib") from None
    interval = tuning.settings.update_interval or 1.0
    cores = range(1, tuning.cores + 1)
    figure = Figure(figsize=(6, 3.8), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    sides = [
        ("acting", tuning.actor_curve, tuning.actor_cores, "o"),
        (
            "learning",
            [interval * value for value in tuning.learner_curve],
            tuning.learner_cores,
            "s",
        ),
    ]
    for side, curve, chosen, marker in sides:
        (line,) = axes.plot(cores, curve, label=side)
        if chosen > 0:
            label = f"{chosen} of {tuning.cores} for {side}"
            axes.plot(chosen, curve[chosen - 1], marker, color=line.get_color(), label=label)
    axes.axhline(tuning.steps_per_s, linestyle=":", color="gray", label="predicted")
    axes.set_xlabel("cores")
    axes.set_ylabel("environment steps/s")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    if os.path.splitext(name)[1].lstrip(".") not in canvas.get_supported_filetypes():
        known = ", ".join(sorted(canvas.get_supported_filetypes()))
        raise InvalidArgumentError(f"path is {name!r}; its ending must be one of: {known}")
    figure.savefig(name, dpi=120)
