"""Arguments of ``reverie train`` and ``tune-cores``: environment, learner, settings, a file."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
from pathlib import Path
from typing import Any

from reverie._command_parser import path_argument
from reverie._options import OptionValue
from reverie.agents.checkpoints import SETTINGS, described_in
from reverie.agents.envs import BACKENDS
from reverie.agents.settings import TrainSettings, algorithms
from reverie.agents.training import LEARNERS
from reverie.errors import InvalidArgumentError
from reverie.serve.toml_document import toml_reader


def add_training(command: argparse.ArgumentParser) -> None:
    """Adds what says who learns what, and where."""
    command.add_argument(
        "--learner",
        choices=LEARNERS,
        help="native: C++ on the CPU; torch: PyTorch, with convolutions (default: native)",
    )
    command.add_argument(
        "--device", default="cpu", help="of PyTorch, such as cuda:0 (default: cpu)"
    )
    command.add_argument(
        "--config",
        type=path_argument,
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


def env_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """The environment's, as `make_trainer` and `tune_cores` take them."""
    return {
        "env_options": dict(arguments.env_options),
        "env_backend": arguments.env_backend or "auto",
        "env_timeout_s": arguments.env_timeout_s,
    }


def completed(arguments: argparse.Namespace) -> argparse.Namespace:
    """The arguments, with those that were left out from ``--config``, or from what is resumed."""
    given: dict[str, Any] = {}
    where = ""
    if getattr(arguments, "resume", False):
        if arguments.out is None:
            raise InvalidArgumentError("--resume continues in a folder; name it with --out")
        given, where = described_in(arguments.out), str(arguments.out / SETTINGS)
        learner = given.pop("learner")
        if arguments.learner not in (None, learner):
            raise InvalidArgumentError(
                f"--learner is {arguments.learner}, but {where} has {learner}, and a training "
                "keeps its learner; leave it out, or train in another folder"
            )
        arguments.learner = learner
        given = {**given.pop("settings"), **given}
    if arguments.config is not None:
        given, where = {**given, **_read_config(arguments.config)}, str(arguments.config)
    fields = {field.name for field in dataclasses.fields(TrainSettings)}
    known = {*fields, "algorithm", "env", "env_options", "env_backend"}
    known |= {"env_timeout_s", "agent_timeout_s"}
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
            if is_text:
                value = TrainSettings.from_options({name: value}).hidden
            setattr(arguments, name, value)
    arguments.learner = arguments.learner or "native"
    if arguments.env_timeout_s is None:
        arguments.env_timeout_s = 60.0
    for name in ("algorithm", "env"):
        if getattr(arguments, name) is None:
            raise InvalidArgumentError(f"--{name} is missing; give it, or a --config that has it")
    return arguments


def _read_config(path: Path) -> dict[str, Any]:
    """Settings by name; those of a table ``[settings]`` as well."""
    try:
        # Some editors begin a file with a byte-order mark, which TOML does not have.
        document = toml_reader()(path.read_bytes().decode("utf-8-sig"))
    except RecursionError:
        raise InvalidArgumentError(f"{path}: nested too deeply; two levels are enough") from None
    except ValueError as error:
        raise InvalidArgumentError(f"{path}: {error}") from None
    settings = document.pop("settings", {})
    if not isinstance(settings, dict):
        raise InvalidArgumentError(f"{path}: settings is {settings!r}; it must be a table")
    return {**document, **settings}


def add_settings(command: argparse.ArgumentParser) -> None:
    """Adds a flag for each field of `TrainSettings`."""
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


def settings_of(arguments: argparse.Namespace) -> TrainSettings:
    """The settings that were given; those that are "auto" are left out."""
    fields = {field.name for field in dataclasses.fields(TrainSettings)}
    given = {name: value for name, value in vars(arguments).items() if name in fields}
    return TrainSettings(**{name: None if v == "auto" else v for name, v in given.items()})
