"""The table and the picture of a run."""

import io

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from reverie.demo.messages import Evaluation, Outcome
from reverie.demo.report import draw_learning_curves, outcome_table


def test_the_table_has_a_row_a_seed_in_order_one_act_behind_the_other():
    embedded = [
        Outcome(701, 30_000, 20.0, 62.9, 28_500, 499.9, 486.0, 100),
        Outcome(2, 30_000, 25.0, 61.4, 30_000, 412.3, 9.0, 100),
    ]
    served = [Outcome(2, 30_000, 123.4, 61.4, 1_500, 450.0, 99.0, 100)]
    console = Console(file=io.StringIO(), width=80)
    console.print(outcome_table({"embedded": embedded, "served": served}))
    rows = [line for line in console.file.getvalue().splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]
    assert "…" not in console.file.getvalue()
    assert "100 new episodes, after 30,000 steps" in console.file.getvalue()
    assert cells == [
        ["embedded", "2", "412.3", "9", "30,000", "25.0", "1,200", "61.4"],
        ["embedded", "701", "499.9", "486", "28,500", "20.0", "1,500", "62.9"],
        ["served", "2", "450.0", "99", "1,500", "123.4", "243", "61.4"],
    ]


@pytest.mark.parametrize("seed_count", [1, 5, 12])
def test_the_picture_is_drawn_for_any_number_of_seeds(tmp_path, seed_count):
    rng = np.random.default_rng(2)
    curves = {
        seed: [Evaluation(seed, 1_500 * k, 500 * rng.random()) for k in range(1, 21)]
        for seed in range(seed_count)
    }
    path = tmp_path / "curve.png"
    draw_learning_curves(curves, 400.0, path)
    pixels = imread(path)
    assert pixels.shape[0] >= 600
    assert pixels.shape[1] >= 1_000
    assert np.unique(pixels[:, :, 0]).size > 20  # shades: something was drawn


def test_curves_of_several_lengths_and_none_do_no_harm(tmp_path):
    curves = {
        0: [Evaluation(0, 100, 10.0), Evaluation(0, 200, 20.0)],
        1: [Evaluation(1, 100, 30.0)],
        2: [],
    }
    draw_learning_curves(curves, 400.0, tmp_path / "curve.png", served=curves)
    assert (tmp_path / "curve.png").stat().st_size > 10_000
