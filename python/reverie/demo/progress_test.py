"""What is shown on a terminal, and what elsewhere."""

import io

import pytest
from rich.console import Console

from reverie.demo.messages import Evaluation, Failure, Outcome, Progress
from reverie.demo.progress import ProgressView

PROGRESS = Progress(4, 1_250, 87.3, 1_402.0, 41.6, 3.25, 0.0123, 0.87)
WIDEST = Progress(5, 1_234_567, 487.3, 11_402.0, 164.6, 123.25, 0.000123, 0.04)
OUTCOME = Outcome(4, 30_000, 20.5, 62.9, 28_500, 499.9, 486.0, 100)


def shown(messages, *, terminal):
    file = io.StringIO()
    console = Console(file=file, force_terminal=terminal, width=80, color_system=None)
    with ProgressView(console, [4, 5], 30_000) as view:
        for message in messages:
            view.show(message)
    return file.getvalue()


def test_elsewhere_a_line_tells_how_a_seed_fares():
    text = shown([Evaluation(4, 1_250, 120.0), PROGRESS], terminal=False)
    assert text == (
        "seed 4: step 1,250 of 30,000, return 87.3, greedy 120.0, 1,402 steps/s, "
        "41.6 samples per insert, age 3.2 s, loss 0.0123, epsilon 0.87\n"
    )


def test_elsewhere_a_seed_is_not_told_of_at_every_message():
    assert shown([PROGRESS] * 50, terminal=False).count("\n") == 1


def test_a_terminal_shows_a_row_a_seed_within_80_columns():
    text = shown([PROGRESS, WIDEST, Evaluation(4, 1_250, 120.0)], terminal=True)
    last = text[text.rindex("seed") :]
    for figure in ("1,250", "87.3", "120.0", "1,402", "41.6", "3.2", "0.0123", "0.87"):
        assert figure in last
    for figure in ("1,234,567", "487.3", "11,402", "164.6", "123.2", "0.0001", "0.04"):
        assert figure in last
    assert "…" not in text


def test_a_terminal_shows_who_waits():
    assert "waits" in shown([PROGRESS], terminal=True)


@pytest.mark.parametrize(
    ("message", "word"), [(OUTCOME, "done"), (Failure(4, "out of luck"), "failed")]
)
def test_a_terminal_shows_how_a_seed_ended(message, word):
    assert word in shown([PROGRESS, message], terminal=True)


def test_figures_that_are_not_there_yet_are_dashes():
    text = shown([Progress(4, 250, None, 900.0, 0.0, None, None, 1.0)], terminal=False)
    assert "return -, greedy -," in text
    assert "age - s, loss -," in text
