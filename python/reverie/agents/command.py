"""``reverie train``, ``evaluate`` and ``tune-cores``: arguments, lines, and how they end."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import os
import shutil
import signal
import sys
import textwrap
from pathlib import Path
from statistics import fmean, pstdev
from types import FrameType
from typing import Any, NoReturn

from reverie import _checks
from reverie._options import OptionValue
from reverie.agents.act_command import add_serving, serving
from reverie.agents.checkpoints import (
    CHECKPOINTS,
    SETTINGS,
    Checkpoints,
    check_new,
    describe,
    described_in,
    has_checkpoint,
)
from reverie.agents.cores import CoreTuning, plot, table, tune_cores
from reverie.agents.envs import BACKENDS, is_native
from reverie.agents.progress_lines import ProgressLines
from reverie.agents.run_folder import save_episode
from reverie.agents.settings import TrainSettings, algorithms
from reverie.agents.trainer import Trainer, TrainProgress
from reverie.agents.training import LEARNERS, AnyTrainer, evaluate, finish, make_trainer, run, save
from reverie.errors import InvalidArgumentError, ReverieError
from reverie.serve.toml_document import toml_reader

_INTERRUPTED = 130  # as shells number it: 128 + SIGINT
_REFUSED = 2  # as argparse: an argument is wrong
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_EPISODES_MAX = 1 << 16


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``train``, ``evaluate`` and ``tune-cores`` to the subcommands of ``reverie``."""
    train = commands.add_parser(
        "train",
        help="train an agent",
        description=(
            "Trains an agent in an environment and evaluates it over episodes without "
            "exploration. Omitted settings have the algorithm's defaults, which are printed."
        ),
    )
    _add_training(train)
    train.add_argument(
        "--learner",
        default="native",
        choices=LEARNERS,
        help="native: C++ on the CPU; torch: PyTorch, with convolutions (default: native)",
    )
    train.add_argument("--device", default="cpu", help="of PyTorch, such as cuda:0 (default: cpu)")
    train.add_argument(
        "--out",
        type=Path,
        help="folder for curve.csv, policy.safetensors, settings.json and checkpoints",
    )
    train.add_argument(
        "--resume",
        action="store_true",
        help="continue from the newest checkpoint in --out, with all other settings as they were",
    )
    train.add_argument(
        "--checkpoint-every",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds between two checkpoints in --out; one more is written at the end and after "
        "Ctrl-C (default: 60)",
    )
    train.add_argument(
        "--final-episodes",
        type=int,
        default=20,
        help="number of evaluation episodes after the training (default: 20)",
    )
    train.add_argument("--quiet", action="store_true", help="no progress lines")
    add_serving(train)
    _add_settings(train)
    train.set_defaults(run=_run)
    tune = commands.add_parser(
        "tune-cores",
        help="split the cores between actors and learners",
        description=(
            "Measures the speed of a training's actors and learners on 1, 2, ... cores, and "
            "chooses the split at which both are equally fast. Takes seconds."
        ),
    )
    _add_training(tune)
    tune.add_argument("--cores", type=int, help="number of cores (default: all)")
    tune.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw both curves and the choice, as cores.png"
    )
    tune.add_argument(
        "--check-s",
        type=float,
        default=0.0,
        metavar="N",
        help="then train for this many seconds and report the speed (default: 0)",
    )
    _add_settings(tune)
    tune.set_defaults(run=_run_tune)

    evaluation = commands.add_parser(
        "evaluate",
        help="evaluate a trained agent",
        description="Runs episodes of a policy that 'reverie train --out' wrote, without "
        "exploration.",
    )
    evaluation.add_argument("folder", type=Path, help="what --out was")
    evaluation.add_argument(
        "--episodes", type=int, default=100, help="number of episodes (default: 100)"
    )
    evaluation.add_argument(
        "--seed", type=int, default=0, help="seed of the environments (default: 0)"
    )
    evaluation.set_defaults(run=_run_evaluate)


def _add_training(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file with algorithm, env, a table env_options, and settings",
    )
    command.add_argument("--algorithm", help=", ".join(algorithms()))
    command.add_argument("--env", help="a native environment or Gymnasium id, such as CartPole-v1")
    command.add_argument(
        "--env-option",
        dest="env_options",
        action="append",
        default=[],
        type=_env_option,
        metavar="NAME=VALUE",
        help="option of the environment, such as enable_wind=true; may be repeated",
    )
    command.add_argument(
        "--env-backend",
        choices=BACKENDS,
        help="the backend that steps it (default: auto: native if possible, else processes)",
    )
    command.add_argument(
        "--env-timeout-s",
        type=float,
        metavar="N",
        help="how long a step of an environment that is not native may take (default: 60)",
    )


def _env_option(text: str) -> tuple[str, OptionValue]:
    name, is_pair, value = text.partition("=")
    if not name or not is_pair:
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE, as enable_wind=true")
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return name, number(value)
    return name, value


def _env_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "env_options": dict(arguments.env_options),
        "env_backend": arguments.env_backend or "auto",
        "env_timeout_s": arguments.env_timeout_s,
    }


def _completed(arguments: argparse.Namespace) -> argparse.Namespace:
    """The arguments, with those that were left out from ``--config``, or from what is resumed."""
    given: dict[str, Any] = {}
    where = ""
    if getattr(arguments, "resume", False):
        if arguments.out is None:
            raise InvalidArgumentError("--resume continues in a folder; name it with --out")
        given, where = described_in(arguments.out), str(arguments.out / SETTINGS)
        arguments.learner = given.pop("learner")
        given = {**given.pop("settings"), **given}
    if arguments.config is not None:
        given, where = {**given, **_read_config(arguments.config)}, str(arguments.config)
    fields = {field.name for field in dataclasses.fields(TrainSettings)}
    known = {*fields, "algorithm", "env", "env_options", "env_backend", "env_timeout_s"}
    for name, value in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3, cutoff=0.0)
            raise InvalidArgumentError(
                f"{where} has {name!r}, which is not a setting; the nearest are: {', '.join(near)}"
            )
        if name == "env_options":
            if not isinstance(value, dict):
                raise InvalidArgumentError(f"{where}: env_options is {value!r}; it is a table")
            arguments.env_options = [*value.items(), *arguments.env_options]
        elif getattr(arguments, name, None) is None:
            is_text = name == "hidden" and isinstance(value, str)
            setattr(arguments, name, _widths(value) if is_text else value)
    if arguments.env_timeout_s is None:
        arguments.env_timeout_s = 60.0
    for name in ("algorithm", "env"):
        if getattr(arguments, name) is None:
            raise InvalidArgumentError(f"--{name} is missing; give it, or a --config that has it")
    return arguments


def _read_config(path: Path) -> dict[str, Any]:
    """Settings by name; those of a table ``[settings]`` as well."""
    try:
        document = toml_reader()(path.read_text())
    except ValueError as error:
        raise InvalidArgumentError(f"{path}: {error}") from None
    settings = document.pop("settings", {})
    if not isinstance(settings, dict):
        raise InvalidArgumentError(f"{path}: settings is {settings!r}; it must be a table")
    return {**document, **settings}


def _add_settings(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("settings")
    for field in dataclasses.fields(TrainSettings):
        _add_setting(group, field)


def _add_setting(group: argparse._ArgumentGroup, field: dataclasses.Field[Any]) -> None:
    flag = "--" + field.name.replace("_", "-")
    text = field.metadata["help"]
    kind = str(field.type).split(" |")[0]
    if kind == "bool":
        group.add_argument(
            flag, dest=field.name, help=text, default=None, action=argparse.BooleanOptionalAction
        )
    elif field.name in ("actors", "learners"):
        group.add_argument(
            flag,
            dest=field.name,
            help=text + "; auto: the split of tune-cores",
            type=_count_or_auto,
            metavar="N",
        )
    elif kind in ("int", "float"):
        group.add_argument(
            flag, dest=field.name, help=text, type=int if kind == "int" else float, metavar="N"
        )
    else:
        group.add_argument(flag, dest=field.name, help=text + ", as 64,64", type=_widths)


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(width) for width in text.split(",") if width)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of widths; give whole numbers with commas between, as 64,64"
        ) from None


def _count_or_auto(text: str) -> int | str:
    try:
        return text if text == "auto" else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of threads; give a whole number, or auto"
        ) from None


def _settings(arguments: argparse.Namespace) -> TrainSettings:
    """The settings that were given; those that are "auto" are left out."""
    fields = {field.name for field in dataclasses.fields(TrainSettings)}
    given = {name: value for name, value in vars(arguments).items() if name in fields}
    return TrainSettings(**{name: None if v == "auto" else v for name, v in given.items()})


def _tuned(arguments: argparse.Namespace) -> TrainSettings:
    """The same, with "auto" replaced by what is measured."""
    settings = _settings(arguments)
    automatic = [name for name in ("actors", "learners") if getattr(arguments, name) == "auto"]
    if not automatic:
        return settings
    tuning = tune_cores(arguments.algorithm, arguments.env, settings, **_env_arguments(arguments))
    print(table(tuning), flush=True)
    return dataclasses.replace(
        settings, **{name: getattr(tuning.settings, name) for name in automatic}
    )


def _run_tune(arguments: argparse.Namespace) -> int:
    try:
        arguments = _completed(arguments)
        tuning = tune_cores(
            arguments.algorithm,
            arguments.env,
            _settings(arguments),
            cores=arguments.cores,
            **_env_arguments(arguments),
        )
        print(table(tuning), flush=True)
        if arguments.plot is not None:
            plot(tuning, arguments.plot)
            print(f"wrote {arguments.plot}")
        if arguments.check_s > 0:
            _check(arguments, tuning)
    except (ReverieError, OSError) as error:
        return _say_error(error, _REFUSED, "tune-cores")
    except KeyboardInterrupt:
        return _say_error("interrupted", _INTERRUPTED, "tune-cores")
    return 0


def _run_evaluate(arguments: argparse.Namespace) -> int:
    try:
        returns = evaluate(arguments.folder, episodes=arguments.episodes, seed=arguments.seed)
    except (ReverieError, OSError) as error:
        return _say_error(error, _REFUSED, "evaluate")
    except KeyboardInterrupt:
        return _say_error("interrupted", _INTERRUPTED, "evaluate")
    spread = pstdev(returns)
    print(
        f"mean return {fmean(returns):.1f} over {len(returns)} episodes (deviation {spread:.1f}, "
        f"from {min(returns):.1f} to {max(returns):.1f})"
    )
    return 0


def _check(arguments: argparse.Namespace, tuning: CoreTuning) -> None:
    # Steps without end; those that fill the table first are not counted.
    settings = dataclasses.replace(tuning.settings, steps=10**12, warmup_steps=2_000)
    with Trainer(
        arguments.algorithm, arguments.env, settings, **_env_arguments(arguments)
    ) as trainer:
        trainer.start()
        while trainer.progress().batches == 0:
            trainer.wait(0.01)
        begin = trainer.progress()
        trainer.wait(arguments.check_s)
        end = trainer.progress()
    if end.steps == begin.steps:
        print(f"measured: no step within {arguments.check_s} s; give --check-s more")
        return
    measured = (end.steps - begin.steps) / (end.elapsed_s - begin.elapsed_s)
    difference = tuning.steps_per_s / measured - 1
    print(f"measured: {measured:,.0f} steps/s; the prediction is off by {difference:+.0%}")


def _run(arguments: argparse.Namespace) -> int:
    try:
        arguments = _completed(arguments)
        # Now, and not when the training is over.
        _checks.integer("--final-episodes", arguments.final_episodes, 1, _EPISODES_MAX)
        _checks.number("--checkpoint-every", arguments.checkpoint_every, above=0.0)
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            if not arguments.resume:
                check_new(arguments.out)
        trainer = make_trainer(
            arguments.algorithm,
            arguments.env,
            _tuned(arguments),
            learner=arguments.learner,
            device=arguments.device,
            resume=arguments.out / CHECKPOINTS if arguments.resume else None,
            served=serving(arguments),
            **_env_arguments(arguments),
        )
    except (ReverieError, OSError) as error:
        return _say_error(error, _REFUSED)
    except KeyboardInterrupt:
        return _say_error("interrupted", _INTERRUPTED)
    before = {number: signal.signal(number, _interrupt) for number in _SIGNALS}
    try:
        with trainer:
            return _train(trainer, arguments)
    except KeyboardInterrupt:
        _save(trainer, arguments.out)
        return _say_error("interrupted; the training was stopped", _INTERRUPTED)
    except (ReverieError, OSError) as error:
        with contextlib.suppress(ReverieError, OSError):  # of a device that is gone there is none
            _save(trainer, arguments.out)
        status = _say_error(error, 1)
        if arguments.out is not None and has_checkpoint(arguments.out):
            print(f"continue from its checkpoint: reverie train --resume --out {arguments.out}")
        return status
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _train(trainer: AnyTrainer, arguments: argparse.Namespace) -> int:
    print(f"{trainer.algorithm} on {trainer.env}")
    print(_shown_settings(trainer.settings.options()), flush=True)
    if trainer.settings.steps is not None and trainer.settings.steps <= (
        trainer.settings.warmup_steps or 0
    ):
        print(
            f"reverie train: nothing will be learned: steps is {trainer.settings.steps}, and "
            f"learning begins after warmup_steps, {trainer.settings.warmup_steps}",
            file=sys.stderr,
        )
    if isinstance(trainer, Trainer) and trainer.address is not None:
        print(f"actors join by: reverie act {trainer.address}", flush=True)
    begun = trainer.progress()
    if begun.steps > 0:
        print(f"going on from step {begun.steps:,}", flush=True)
    lines = ProgressLines(trainer)

    def report(progress: TrainProgress) -> None:
        if not arguments.quiet:
            print(lines.line(progress), flush=True)

    if arguments.out is None:
        run(trainer, report, arguments.out)
    else:
        describe(arguments.out, trainer)
        with Checkpoints(trainer, arguments.out, arguments.checkpoint_every) as checkpoints:
            run(trainer, report, arguments.out, checkpoints)
    result = finish(trainer, arguments.final_episodes)
    if not arguments.quiet:
        print(lines.line(result.progress))
    print(
        f"{result.progress.end} after {result.progress.elapsed_s:.1f} s and "
        f"{result.progress.steps:,} steps; without exploration a mean return of "
        f"{fmean(result.greedy_returns):.1f} over {len(result.greedy_returns)} episodes "
        f"(from {min(result.greedy_returns):.1f} to {max(result.greedy_returns):.1f})"
    )
    _save(trainer, arguments.out)
    _save_episode(trainer, arguments.out)
    return 0


def _shown_settings(options: dict[str, OptionValue]) -> str:
    """Name and value of each, in lines that fit."""
    columns = min(shutil.get_terminal_size((100, 24)).columns, 120)
    return textwrap.fill(
        " ".join(f"{name}={value}" for name, value in options.items()),
        columns,
        initial_indent="  ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _save_episode(trainer: AnyTrainer, out: Path | None) -> None:
    """``episode.gif``, of what a native environment draws."""
    if out is None or not isinstance(trainer, Trainer):
        return
    if is_native(trainer.env, trainer.env_backend) and save_episode(
        out / "episode.gif",
        trainer.algorithm,
        trainer.env,
        trainer.env_options,
        trainer.best_policy(),
    ):
        print(f"wrote episode.gif into {out}")


def _save(trainer: AnyTrainer, out: Path | None) -> None:
    if out is None:
        return
    save(out, trainer, trainer.episodes(), trainer.evaluations(), trainer.best_policy())
    print(f"wrote curve.csv, evaluations.csv, policy.safetensors and settings.json into {out}")


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    for number in _SIGNALS:
        signal.signal(number, _give_up)
    print("\nstopping; a second Ctrl-C ends at once", file=sys.stderr, flush=True)
    raise KeyboardInterrupt


def _give_up(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Waits for nothing: a checkpoint that is being written is there whole or not at all."""
    _say_error("ended at once; the newest checkpoint of --out is kept", _INTERRUPTED)
    sys.stderr.flush()
    os._exit(_INTERRUPTED)


def _say_error(error: BaseException | str, status: int, command: str = "train") -> int:
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        text = f"{error.filename}: {error.strerror}"
    print(f"reverie {command}: {text}", file=sys.stderr)
    return status
