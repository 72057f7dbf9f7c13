"""``reverie train``, ``evaluate`` and ``tune-cores``: arguments, lines, and how they end."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import shutil
import signal
import sys
import textwrap
from pathlib import Path
from statistics import fmean, pstdev
from types import FrameType
from typing import NoReturn

from reverie import _checks, _reverie
from reverie._command_parser import path_argument
from reverie._options import OptionValue
from reverie.agents.act_command import add_serving, serving
from reverie.agents.checkpoints import (
    CHECKPOINTS,
    Checkpoints,
    check_new,
    describe,
    has_checkpoint,
    remove_checkpoints,
)
from reverie.agents.command_settings import (
    add_settings,
    add_training,
    completed,
    env_arguments,
    settings_of,
)
from reverie.agents.cores import CoreTuning, plot, table, tune_cores
from reverie.agents.envs import is_native
from reverie.agents.folder_lock import FolderLock
from reverie.agents.progress_lines import ProgressLines
from reverie.agents.run_folder import save_episode
from reverie.agents.settings import TrainSettings, warmup_least
from reverie.agents.trainer import Trainer, TrainProgress
from reverie.agents.training import AnyTrainer, evaluate, finish, make_trainer, run, save
from reverie.errors import ReverieError

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
    add_training(train)
    train.add_argument(
        "--agent-timeout-s",
        type=float,
        metavar="N",
        help="how long a batch or actions may take PyTorch before the training is given up "
        "(default: 300)",
    )
    train.add_argument(
        "--out",
        type=path_argument,
        help="folder for curve.csv, policy.safetensors, settings.json and checkpoints",
    )
    train.add_argument(
        "--resume",
        action="store_true",
        help="continue from the newest checkpoint in --out, with its settings; the error for one "
        "that must not differ lists those that may",
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
    add_settings(train)
    train.set_defaults(run=_run)
    tune = commands.add_parser(
        "tune-cores",
        help="split the cores between actors and learners",
        description=(
            "Measures the speed of a training's actors and learners on 1, 2, ... cores, and "
            "chooses the split at which both are equally fast. Takes seconds."
        ),
    )
    add_training(tune)
    tune.add_argument("--cores", type=int, help="number of cores (default: all)")
    tune.add_argument(
        "--plot",
        type=path_argument,
        metavar="FILE",
        help="draw both curves and the choice, as cores.png",
    )
    tune.add_argument(
        "--check-s",
        type=float,
        default=0.0,
        metavar="N",
        help="then train for this many seconds and report the speed (default: 0)",
    )
    add_settings(tune)
    tune.set_defaults(run=_run_tune)

    evaluation = commands.add_parser(
        "evaluate",
        help="evaluate a trained agent",
        description="Runs episodes of a policy that 'reverie train --out' wrote, without "
        "exploration.",
    )
    evaluation.add_argument("folder", type=path_argument, help="what --out was")
    evaluation.add_argument(
        "--episodes", type=int, default=100, help="number of episodes (default: 100)"
    )
    evaluation.add_argument(
        "--seed", type=int, default=0, help="seed of the environments (default: 0)"
    )
    evaluation.set_defaults(run=_run_evaluate)


def _tuned(arguments: argparse.Namespace) -> TrainSettings:
    """The same, with "auto" replaced by what is measured."""
    settings = settings_of(arguments)
    automatic = [name for name in ("actors", "learners") if getattr(arguments, name) == "auto"]
    if not automatic:
        return settings
    tuning = tune_cores(
        arguments.algorithm,
        arguments.env,
        settings,
        learner=arguments.learner,
        device=arguments.device,
        **env_arguments(arguments),
    )
    print(table(tuning), flush=True)
    return dataclasses.replace(
        settings, **{name: getattr(tuning.settings, name) for name in automatic}
    )


def _run_tune(arguments: argparse.Namespace) -> int:
    try:
        arguments = completed(arguments)
        tuning = tune_cores(
            arguments.algorithm,
            arguments.env,
            settings_of(arguments),
            cores=arguments.cores,
            learner=arguments.learner,
            device=arguments.device,
            **env_arguments(arguments),
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
    # Steps without end, of actors that explore as late in a training: they were measured so.
    endless = dataclasses.replace(
        tuning.settings,
        steps=10**12,
        warmup_steps=10**12,
        epsilon_share=0.0,
        evaluation_interval=0,
        stop_at_return=None,
    )
    # Steps that fill the table first are not counted.
    least = warmup_least(_reverie.checked_settings(arguments.algorithm, endless.options()))
    settings = dataclasses.replace(endless, warmup_steps=max(2_000, least))
    with make_trainer(
        arguments.algorithm,
        arguments.env,
        settings,
        learner=arguments.learner,
        device=arguments.device,
        **env_arguments(arguments),
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
    with contextlib.ExitStack() as held:
        return _run_alone(arguments, held)


def _run_alone(arguments: argparse.Namespace, held: contextlib.ExitStack) -> int:
    """Trains; ``held`` keeps the folder until all is written."""
    try:
        arguments = completed(arguments)
        # Now, and not when the training is over.
        _checks.integer("--final-episodes", arguments.final_episodes, 1, _EPISODES_MAX)
        _checks.number("--checkpoint-every", arguments.checkpoint_every, above=0.0)
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            held.callback(FolderLock(arguments.out).close)
            if not arguments.resume:
                check_new(arguments.out)
        trainer = make_trainer(
            arguments.algorithm,
            arguments.env,
            _tuned(arguments),
            learner=arguments.learner,
            device=arguments.device,
            agent_timeout_s=arguments.agent_timeout_s,
            resume=arguments.out / CHECKPOINTS if arguments.resume else None,
            served=serving(arguments),
            **env_arguments(arguments),
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
        try:
            _save(trainer, arguments.out)
        except (ReverieError, OSError) as error:  # a full disk
            _say_error(error, _INTERRUPTED)
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
        if not arguments.resume:
            remove_checkpoints(arguments.out)
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
