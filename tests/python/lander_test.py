"""LunarLander, trained on all cores with five seeds until it is solved."""

import io

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("PIL")
pytest.importorskip("rich")

from rich.console import Console

from reverie.demo import lander


@pytest.mark.skipif(not lander.is_available(), reason="this build has no Box2D")
@pytest.mark.full
@pytest.mark.timeout(1200)
def test_at_least_four_of_five_seeds_solve_lunar_lander(tmp_path):
    console = Console(file=io.StringIO())
    landings = [lander.run_lander(console, seed, tmp_path) for seed in range(1, 6)]
    assert sum(landing.is_reached for landing in landings) >= 4
