"""The texts of a progress line."""

import dataclasses
from types import SimpleNamespace

import pytest

from reverie.agents import Trainer, TrainSettings
from reverie.agents.progress_lines import ProgressLines
from reverie.agents.trainer import TrainProgress

BEGIN = TrainProgress(
    end="running",
    steps=0,
    batches=0,
    batch_count=9_000,
    updates=0,
    episodes=0,
    mean_return=None,
    measured_interval=None,
    elapsed_s=0.0,
    loss=float("nan"),
    actors_waited_s=0.0,
    learners_waited_s=0.0,
    staleness_mean=0.0,
    staleness_max=0,
    dropped=0,
)
LATER = dataclasses.replace(
    BEGIN,
    steps=2_000,
    batches=1_000,
    updates=500,
    mean_return=12.34,
    measured_interval=2.0,
    elapsed_s=2.0,
    actors_waited_s=1.0,
    learners_waited_s=0.5,
    staleness_mean=1.26,
    staleness_max=4,
    dropped=3,
)
GIVEN = {"steps": 10_000, "batch_size": 64, "update_interval": 2.0, "actors": 2}


def lines_of(evaluations=(), idle_share=0.25, **more):
    """Those of a training that is not the native one."""
    return ProgressLines(
        SimpleNamespace(
            settings=TrainSettings(**{**GIVEN, **more}),
            progress=lambda: BEGIN,
            evaluations=lambda: list(evaluations),
            idle_share=lambda: idle_share,
        )
    )


def parts_of(line):
    return [part.strip() for part in line.split("  ") if part.strip()]


def test_a_line_has_rates_waits_the_idle_share_and_the_time_left():
    assert parts_of(lines_of().line(LATER)) == [
        "2,000 steps",
        "return",
        "12.3",
        "1,000 steps/s",
        "250 gradient steps/s",
        "32.0 samples per insert (wanted 32.0)",
        "waiting: actors 50%, learners 25%",
        "learner idle 25%",
        "8 s left",
    ]


def test_rates_and_waits_are_those_since_the_line_before():
    lines = lines_of()
    lines.line(LATER)
    after = dataclasses.replace(LATER, steps=2_500, updates=600, elapsed_s=4.0, actors_waited_s=2.5)
    line = lines.line(after)
    assert "250 steps/s" in line
    assert "50 gradient steps/s" in line
    assert "waiting: actors 75%, learners 0%" in line
    assert "30 s left" in line


def test_the_last_line_is_about_the_whole_run_and_has_no_time_left():
    lines = lines_of()
    lines.line(LATER)
    line = lines.line(dataclasses.replace(LATER, end="all steps", steps=10_000, elapsed_s=5.0))
    assert "2,000 steps/s" in line
    assert "waiting: actors 20%, learners 10%" in line
    assert "left" not in line


def test_staleness_is_shown_only_if_learners_are_asynchronous():
    assert "staleness 1.3 (most 4, 3 dropped)" in lines_of(asynchronous=True).line(LATER)
    assert "staleness" not in lines_of().line(LATER)


def test_one_thread_shows_no_waits_and_no_idle_share():
    line = lines_of(actors=0).line(LATER)
    assert "waiting" not in line
    assert "idle" not in line


def test_nothing_is_shown_that_is_not_known_yet():
    line = lines_of().line(BEGIN)
    assert "return       -" in line
    assert "samples per insert" not in line
    assert "left" not in line
    assert "without exploration" not in line
    assert "without exploration 7.5" in lines_of([(100, 3.0), (200, 7.5)]).line(LATER)


@pytest.mark.parametrize("is_served", [False, True])
def test_the_native_training_shows_its_actors_elsewhere_and_no_idle_share(is_served):
    listen = {"listen": "127.0.0.1:0"} if is_served else {}
    with Trainer("dqn", "CartPole-v1", TrainSettings(seed=1, **GIVEN), **listen) as trainer:
        line = ProgressLines(trainer).line(LATER)
    assert ("0 actors elsewhere" in line) == is_served
    assert "idle" not in line
