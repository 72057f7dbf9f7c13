"""``reverie doctor``: what is installed, what is missing for what, and what installs it."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import reverie
from reverie.contrib import versions


@dataclass(frozen=True)
class Use:
    """Something that needs a package which Reverie itself does not."""

    what: str
    modules: tuple[str, ...]
    least: str  # the version of the first that is needed; "" for any
    install: str


USES = (
    Use("environments by id, GymVectorEnv", ("gymnasium",), "0.29", "pip install 'gymnasium>=1.1'"),
    Use("Atari environments", ("ale_py", "PIL"), "0.11", "pip install 'reverie[atari]'"),
    Use("lambdas as environments", ("cloudpickle",), "2", "pip install 'reverie[closures]'"),
    Use("batches as torch tensors", ("torch",), "2.2", "pip install 'reverie[torch]'"),
    Use("batches as JAX arrays", ("jax",), "0.4.30", "pip install 'reverie[jax]'"),
    Use("tf.data datasets", ("tensorflow",), "2.16", "pip install 'reverie[tensorflow]'"),
    Use("reverie demo", ("gymnasium", "matplotlib", "rich"), "1.0", "pip install 'reverie[demo]'"),
    Use("reverie.reverb's messages", ("google.protobuf",), "3.20", "pip install 'reverie[reverb]'"),
    *(
        Use(
            f"reverie.contrib.{adapter}",
            (module,),
            versions.LEAST[module],
            versions.install(module),
        )
        for adapter, module in (
            ("sb3", "stable_baselines3"),
            ("tianshou", "tianshou"),
            ("torchrl", "torchrl"),
            ("rllib", "ray"),
        )
    ),
    Use("bfloat16 and fp8 columns", ("ml_dtypes",), "0.4", "pip install ml_dtypes"),
)

# The names under which packages are installed, where they are not the modules'.
_PACKAGES = {"PIL": "pillow", "ale_py": "ale-py", "google.protobuf": "protobuf"}


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds ``doctor`` to the subcommands of ``reverie``."""
    doctor = commands.add_parser(
        "doctor",
        help="print which optional packages are installed, and what they are for",
        description=(
            "Prints this installation, and whether each optional package is installed, with "
            "the command that installs it. Exits with status 1 if Reverie itself does not "
            "work."
        ),
    )
    doctor.set_defaults(run=lambda _: run())


def run() -> int:
    """Prints the report; 0 where the store works."""
    print(f"reverie    {reverie.__version__} in {Path(reverie.__file__).parent}")
    print(f"python     {platform.python_version()} in {sys.executable}")
    print(f"numpy      {np.__version__}")
    print(f"machine    {platform.machine()}, {_cores()} cores, {platform.system()}")
    is_well = _check("store", _store) & _check("environments", _environments)
    print()
    width = max(len(use.what) for use in USES)
    for use in USES:
        state, is_there = state_of(use)
        print(f"{'ok' if is_there else '--'}  {use.what:<{width}}  {state}")
    return 0 if is_well else 1


def state_of(use: Use) -> tuple[str, bool]:
    """The versions that are there; else what is wrong, and the remedy."""
    found = []
    for module in use.modules:
        try:
            is_there = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            is_there = False
        if not is_there:
            return f"{_name(module)} is not installed: {use.install}", False
        found.append((_name(module), _version(module)))
    name, version = found[0]
    if use.least and version and versions.numbers(version) < versions.numbers(use.least):
        return f"{name} {version} is older than {use.least}: {use.install}", False
    return ", ".join(f"{name} {version}".rstrip() for name, version in found), True


def _name(module: str) -> str:
    return _PACKAGES.get(module, module)


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(_name(module))
    except importlib.metadata.PackageNotFoundError:
        return ""


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _store() -> str:
    buffer = reverie.ReplayBuffer(4, seed=1)
    buffer.add(np.zeros(2, np.float32), 0, 1.0, np.ones(2, np.float32), terminated=True)
    assert buffer.sample(1)["reward"].tolist() == [1.0]
    return "a step was stored and sampled"


def _environments() -> str:
    from reverie.envs import native

    with native.NativePool("CartPole-v1", 2) as pool:
        pool.reset().result()
    lacks = "" if "LunarLander-v3" in native.ids() else "; without LunarLander, which needs Box2D"
    return f"{len(native.ids())} native ones{lacks}"


def _check(name: str, check: object) -> bool:
    assert callable(check)
    try:
        print(f"{name:<10} works: {check()}" if len(name) < 11 else f"{name} work: {check()}")
    except Exception as error:  # whatever it is, it is what the report is for
        print(f"{name:<10} FAILS: {error!r}")
        return False
    return True
