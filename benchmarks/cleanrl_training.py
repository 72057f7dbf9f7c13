"""CleanRL's files, original and with reverie's buffer and environments: returns and speed.

Each seed trains both versions, by turns, in separate processes with one thread of torch. The second
version is what examples/cleanrl/port.py makes of the first. One item is an environment step with
everything that the file does for it.

    python benchmarks/cleanrl_training.py CLEANRL/dqn.py --env CartPole-v1
    python benchmarks/cleanrl_training.py CLEANRL/sac_continuous_action.py --env Pendulum-v1

Needs what the file needs: torch, tensorboard, tyro, Gymnasium 0.29, and CleanRL's cleanrl_utils in
the folder of the file or the one above. Arguments after ``--`` go to both.

Prints for each version the mean return of the last 20 episodes of each seed, the mean of these with
its 95 % bootstrap interval over seeds, and steps per second of processor time.
"""

import argparse
import importlib.util
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SIDES = ("theirs", "ours")
_LAST = 20


@dataclass(frozen=True)
class Run:
    """The result of a training."""

    episodes: int
    last_mean: float
    steps_per_cpu_s: float


def ported(file: Path) -> str:
    """The file, ported to reverie's parts."""
    spec = importlib.util.spec_from_file_location("port", ROOT / "examples/cleanrl/port.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = module.ported(file.read_text())
    return text


def train(program: Path, libraries: list[Path], folder: Path, words: list[str], steps: int) -> Run:
    """Runs the program to its end; it writes to ``folder``."""
    found = os.environ.get("PYTHONPATH", "")
    path = os.pathsep.join([*map(str, libraries), str(ROOT / "python"), found])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", program, "--total-timesteps", str(steps), *words],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{program.name} failed:\n{done.stderr[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    returns = [float(one) for one in re.findall(r"episodic_return=\[?([-+0-9.e]+)", done.stdout)]
    last = returns[-_LAST:]
    return Run(len(returns), statistics.fmean(last) if last else float("nan"), steps / cpu_s)


def interval(values: list[float]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean over seeds."""
    drawn = np.random.default_rng(0).choice(values, (10_000, len(values)))
    low, high = np.quantile(drawn.mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    """Trains both versions by turns, and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="one of CleanRL's files")
    parser.add_argument("--env", required=True, help="a Gymnasium id")
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=5)
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    given, rest = parser.parse_args(words[:cut]), words[cut + 1 :]
    file = given.file.resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours = folder / f"{file.stem}_reverie.py"
        ours.write_text(ported(file))
        programs = {"theirs": file, "ours": ours}
        runs: dict[str, list[Run]] = {side: [] for side in SIDES}
        for seed in range(1, given.seeds + 1):
            for side in SIDES if seed % 2 else SIDES[::-1]:
                words = ["--seed", str(seed), "--no-cuda", "--env-id", given.env, *rest]
                libraries = [file.parent, file.parent.parent]
                run = train(programs[side], libraries, folder, words, given.steps)
                runs[side].append(run)
                print(
                    f"seed {seed} {side:<6} {run.episodes:>5} episodes, return "
                    f"{run.last_mean:8.1f}, {run.steps_per_cpu_s:8.1f} steps per CPU second",
                    flush=True,
                )
    print(f"\n{file.name} on {given.env}, {given.seeds} seeds of {given.steps:,} steps")
    for side in SIDES:
        returns = [run.last_mean for run in runs[side]]
        low, high = interval(returns)
        speed = statistics.median(run.steps_per_cpu_s for run in runs[side])
        print(
            f"{side:<6} return {statistics.fmean(returns):8.1f} ({low:.1f} to {high:.1f}), "
            f"{speed:8.1f} steps per CPU second"
        )
    ratios = [
        mine.steps_per_cpu_s / other.steps_per_cpu_s
        for other, mine in zip(runs["theirs"], runs["ours"], strict=True)
    ]
    print(f"ours is {statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
