"""One training over sockets: a server, a learner and actors, each a process of its own.

    actors --windows--> [ replay ] --batches--> learner
                        [        ] <-priorities--
    actors <--------- [ weights: 1 ] <-----------     the newest network
    actors --------> [ returns: queue ] --------->    for the progress line

The rate limiter of ``replay`` keeps the pace, a batch a step: actors wait where they are ahead by
more than a hundred batches, the learner where it is. Processes run as they come, so a seed does not
repeat its run. What the server has confirmed is there after a kill, and the learner's own file with
it, so a training goes on from about where it was.

A window's columns are slices of the same rows, so that each observation is stored once. Behind the
last step of an episode stand rows that repeat its last observation, with reward 0 and discount 1:
they close the last windows without a special case.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import gymnasium
import numpy as np

import reverie
from reverie import rl
from reverie._durable import replace_file
from reverie.agents import Trainer, TrainSettings
from reverie.demo.cartpole import ENVIRONMENT, FINAL_EPISODES, SETTINGS, settings_of
from reverie.demo.double_dqn import DoubleDqn

_ROWS = int(SETTINGS.n_step or 1)
_BATCH = 64
_GAMMA = 0.99
_SIZES = (4, *(SETTINGS.hidden or ()), 2)
_PUBLISHED_EVERY = 25  # steps
_FETCHED_EVERY = 25  # steps of an actor
_TOLD_EVERY = 250
_IN_FLIGHT_MAX = 25  # windows of an actor that wait for the server
_AHEAD_BATCHES = 100  # that actors may be ahead, or the learner
PATIENCE_S = 30.0

_CONFIG = f"""
[[tables]]
name = "replay"
sampler = {{ kind = "prioritized", priority_exponent = 0.6 }}
remover = "fifo"
max_size = {SETTINGS.capacity}
rate_limiter = {{ kind = "sample_to_insert_ratio", samples_per_insert = {_BATCH}, \
min_size_to_sample = {SETTINGS.warmup_steps}, error_buffer = {_BATCH * _AHEAD_BATCHES} }}

[tables.signature]
obs = {{ shape = [{_SIZES[0]}], dtype = "float32" }}
action = {{ shape = [], dtype = "int64" }}
reward = {{ shape = [{_ROWS}], dtype = "float32" }}
discount = {{ shape = [{_ROWS}], dtype = "float32" }}
last_obs = {{ shape = [{_SIZES[0]}], dtype = "float32" }}

[[tables]]
name = "weights"
sampler = "fifo"
remover = "fifo"
max_size = 1
rate_limiter = {{ kind = "min_size", min_size_to_sample = 1 }}
signature.parameters = {{ shape = [1, -1], dtype = "float32" }}

[[tables]]
name = "returns"
kind = "queue"
max_size = 10_000
signature.episode_return = {{ shape = [1], dtype = "float64" }}
"""

Tell = Callable[..., None]


def learn(seed: int, steps: int, actors: int, folder: Path, tell: Tell) -> None:
    """Trains a network on ``steps`` steps of ``actors`` actors.

    Args:
        seed: of the network and of the actors.
        steps: of the environment, in all.
        actors: processes that act.
        folder: where the server keeps what is confirmed, and the learner what it knows. A training
            that was killed goes on there.
        tell: hears of it: a kind, and numbers by name.

    Raises:
        RuntimeError: the server did not start, or the actors went silent.
    """
    begin = time.perf_counter()
    with _server(folder) as address:
        training = _Training(seed, steps, folder, reverie.Client(address), tell)
        first = training.go_on(begin)
        with _actors(address, seed, steps, actors, first // max(1, actors)) as last_words:
            try:
                training.run(first)
            except _SilenceError:
                raise RuntimeError(
                    f"no batch came for {PATIENCE_S:.0f} s; the actors are gone{last_words()}"
                ) from None


def act(address: str, seed: int, actors: int, steps: int, begin: int) -> None:
    """What an actor does, until it is ended.

    ``begin``: the steps that it, or one that was killed, has done before.
    """
    rng = np.random.default_rng([seed, begin])
    env = gymnasium.make(ENVIRONMENT)
    network = reverie.nn.Mlp(_SIZES, seed=seed)
    fading = int(steps * (SETTINGS.epsilon_share or 0.0))
    client = reverie.Client(address)
    writer = client.trajectory_writer(_ROWS + 1, max_in_flight_items=_IN_FLIGHT_MAX)
    obs, rows, total = env.reset(seed=int(rng.integers(2**31)))[0], 0, 0.0

    def write(action: int, reward: float, discount: float) -> None:
        writer.append(
            {
                "obs": obs,
                "action": np.int64(action),
                "reward": np.float32(reward),
                "discount": np.float32(discount),
            }
        )
        if rows > _ROWS:
            past = writer.history
            window = {name: past[name][-_ROWS - 1 : -1] for name in ("reward", "discount")}
            window |= {name: past[name][-_ROWS - 1] for name in ("obs", "action")}
            window["last_obs"] = past["obs"][-1]
            writer.create_item("replay", priority=None, trajectory=window)

    for step in range(begin, 10 * steps):
        if step % _FETCHED_EVERY == 0:
            newest = client.sample_batch("weights", 1, timeout_s=PATIENCE_S)
            network.parameters[:] = newest.data["parameters"][0, 0]
        # All actors together have taken about as many steps as this one, times their number.
        epsilon = rl.epsilon_at(step * actors, last=SETTINGS.epsilon_last or 0.0, step_count=fading)
        explores = rng.random() < epsilon
        action = int(rng.integers(_SIZES[-1])) if explores else int(network(obs).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        rows += 1
        write(action, float(reward), 0.0 if terminated else _GAMMA)
        obs, total = next_obs, total + float(reward)
        if terminated or truncated:
            for _ in range(_ROWS):
                rows += 1
                write(0, 0.0, 1.0)
            writer.end_episode()
            client.insert({"episode_return": total}, {"returns": 1.0})
            obs, rows, total = env.reset()[0], 0, 0.0


@contextlib.contextmanager
def _child(*arguments: str, stderr: int | IO[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends when this block does, or this process, whichever way it goes."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], stdin=subprocess.PIPE, stderr=stderr, text=True
    )
    with process:  # closes what it reads from, and waits
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[str]:
    """A server in a process of its own; gives its address."""
    arguments = ["reverie", "serve", "--config", _CONFIG, "--stop-with-stdin"]
    arguments += ["--checkpoints", str(folder / "store"), "--durability", "interval"]
    with _child(*arguments, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        _, found, rest = line.partition(" listens at ")
        if not found:
            raise RuntimeError(f"the server did not start: {line}{process.stderr.read()}")
        yield rest.partition(",")[0]


@contextlib.contextmanager
def _actors(
    address: str, seed: int, steps: int, count: int, begin: int
) -> Iterator[Callable[[], str]]:
    """The actors, in processes of their own; gives what tells of the errors that they wrote."""
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
        for index in range(count):
            numbers = [str(number) for number in (count * seed + index, count, steps, begin)]
            child = _child("reverie.demo.served", "act", address, *numbers, stderr=errors)
            stack.enter_context(child)

        def last_words() -> str:
            errors.seek(0)
            text = errors.read().strip()
            return f":\n{text}" if text else ""

        yield last_words


class _SilenceError(Exception):
    """No batch came in time."""


class _Training:
    def __init__(
        self, seed: int, steps: int, folder: Path, client: reverie.Client, tell: Tell
    ) -> None:
        self._seed, self._steps, self._client, self._tell = seed, steps, client, tell
        self._path = folder / "learner.npz"
        self._dqn = DoubleDqn(_SIZES, seed, target_rate=SETTINGS.tau or 0.0)
        self._settings = settings_of(seed, steps)
        self._best_return, self._best_step = -np.inf, 0
        self._best = self._dqn.online.copy()
        self._loss = 0.0
        self._recent_returns: deque[float] = deque(maxlen=20)
        self._begin = time.perf_counter()

    def go_on(self, begin: float) -> int:
        """The first step to do; the server was started at ``begin``."""
        if not self._path.exists():
            return 0
        found = self._client.server_info()["replay"].rate_limiter_info.insert_stats.completed
        seconds = time.perf_counter() - begin
        with np.load(self._path) as saved:
            about: dict[str, Any] = json.loads(str(saved["about"]))
            self._best.parameters[:] = saved["best"]
            self._dqn.restore(saved)
        self._best_return, self._best_step = about["best_return"], about["best_step"]
        self._begin -= about["seconds"]
        known = {name: about[name] for name in ("step", "confirmed")}
        self._tell("restart", found=found, seconds=seconds, **known)
        return int(about["step"]) + 1

    def run(self, first: int) -> None:
        """Learns from a batch a step; the policy is tried on the way, and the best is kept."""
        client, settings = self._client, self._settings
        first = max(first, int(settings.warmup_steps or 0) + _ROWS + 1)
        self._publish()
        # What one batch has taught travels back while the next is learned from.
        with (
            ThreadPoolExecutor(1) as sender,
            client.dataset("replay", _BATCH, timeout_s=PATIENCE_S) as batches,
            Trainer("ddqn", ENVIRONMENT, TrainSettings(hidden=SETTINGS.hidden)) as evaluator,
        ):
            sent: Future[int] = sender.submit(int)
            for step in range(first, self._steps + 1):
                batch = next(batches, None)
                if batch is None:
                    raise _SilenceError
                priorities = self._learn(batch, step / self._steps)
                sent.result()
                sent = sender.submit(client.update_priorities, "replay", batch.tickets, priorities)
                if step % _PUBLISHED_EVERY == 0:
                    self._publish()
                if step % (settings.evaluation_interval or 1) == 0:
                    self._evaluate_policy(evaluator, step)
                if step % _TOLD_EVERY == 0:
                    self._save(step)
            sent.result()
            returns = evaluator.evaluate(self._best, episodes=FINAL_EPISODES, seed=1 << 40)
        self._tell(
            "outcome",
            steps=self._steps,
            seconds=time.perf_counter() - self._begin,
            kept_step=self._best_step,
            greedy_mean=float(np.mean(returns)),
            greedy_least=min(returns),
        )

    def _learn(self, batch: reverie.Batch, share: float) -> np.ndarray:
        """One gradient step; gives the new priorities."""
        beta = 0.4 + 0.6 * share
        weights = ((batch.probabilities.min() / batch.probabilities) ** beta).astype(np.float32)
        data: Any = batch.data
        data["reward"] *= SETTINGS.reward_scale or 1.0
        rate = (SETTINGS.learning_rate or 0.0) * (1.0 - share)
        errors, self._loss = self._dqn.learn(data, weights, learning_rate=rate)
        priorities: np.ndarray = np.abs(errors) + np.float32(SETTINGS.priority_epsilon or 0.0)
        return priorities

    def _evaluate_policy(self, evaluator: Trainer, step: int) -> None:
        episodes = SETTINGS.evaluation_episodes or 1
        greedy = float(np.mean(evaluator.evaluate(self._dqn.online, episodes=episodes, seed=step)))
        if greedy >= self._best_return:
            self._best_return, self._best_step = greedy, step
            self._best.approach(self._dqn.online, 1.0)
        self._tell("evaluation", step=step, greedy_mean=greedy)

    def _publish(self) -> None:
        self._client.insert({"parameters": self._dqn.online.parameters}, {"weights": 1.0})

    def _save(self, step: int) -> None:
        """Saves the state that a killed learner continues from, and reports progress."""
        info = self._client.server_info()
        limiter = info["replay"].rate_limiter_info
        inserts = limiter.insert_stats.completed
        # Once this is confirmed, everything sent to the server before is confirmed too.
        self._publish()
        about = {
            "step": step,
            "confirmed": inserts,
            "seconds": time.perf_counter() - self._begin,
            "best_return": self._best_return,
            "best_step": self._best_step,
        }
        state = {"about": json.dumps(about), "best": self._best.parameters} | self._dqn.state
        replace_file(
            self._path,
            lambda file: np.savez(file, **state),  # type: ignore[arg-type,unused-ignore]
        )
        ended = info["returns"].current_size
        if ended:
            batch = self._client.sample_batch("returns", ended, timeout_s=PATIENCE_S)
            self._recent_returns.extend(batch.data["episode_return"][:, 0].tolist())
        self._tell(
            "progress",
            step=step,
            mean_return=float(np.mean(self._recent_returns)) if self._recent_returns else None,
            seconds=about["seconds"],
            samples_per_insert=limiter.sample_stats.completed / inserts,
            loss=self._loss,
        )


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)  # it holds nothing that outlives it


def _print(kind: str, **numbers: float | None) -> None:
    print(json.dumps({"kind": kind, **numbers}), flush=True)


def main(arguments: list[str]) -> None:
    """``learn SEED STEPS ACTORS FOLDER``, or ``act ADDRESS SEED ACTORS STEPS BEGIN``.

    A learner ends when what it prints is no longer read, an actor when its stdin is closed: as they
    are when the process that started them has gone, whichever way it went.
    """
    role, *words = arguments
    if role == "act":
        threading.Thread(target=_end_with_stdin, daemon=True).start()
        act(words[0], *(int(word) for word in words[1:]))
        return
    try:
        seed, steps, actors = (int(word) for word in words[:3])
        learn(seed, steps, actors, Path(words[3]), _print)
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(sys.argv[1:])
