"""LunarLander on all cores: what a short training prints and writes."""

import dataclasses
import io
import json

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("PIL")
pytest.importorskip("rich")

from matplotlib.image import imread
from PIL import Image
from rich.console import Console

import reverie
from reverie.agents import Trainer
from reverie.demo import lander

needs_box2d = pytest.mark.skipif(not lander.is_available(), reason="this build has no Box2D")


@needs_box2d
def test_a_short_training_prints_its_progress_and_writes_its_result(tmp_path):
    output = io.StringIO()
    settings = dataclasses.replace(lander.SETTINGS, steps=3_000, hidden=(16,))
    landing = lander.run_lander(Console(file=output, width=200), 1, tmp_path, settings)
    said = output.getvalue()
    assert "to act and" in said or "in turn" in said
    assert "predicted" in said
    assert "over the last 100 episodes, after 3,000 steps" in said
    assert not landing.is_reached
    # Shown beside the recorded speeds of other libraries, with their machine.
    recorded = json.loads(lander.RECORDED.read_text())
    assert "this run" in said
    assert any("stable-baselines3" in name for name in recorded["steps_per_s"])
    for name, rates in recorded["steps_per_s"].items():
        assert name in said
        assert f"{min(rates):,}" in said
    assert recorded["machine"] in said
    assert recorded["command"].startswith("PYTHON benchmarks/training.py")
    assert imread(tmp_path / "lander.png").std() > 0
    with Image.open(tmp_path / "lander.gif") as picture:
        assert picture.size == (300, 200)
        assert picture.n_frames >= 5
    policy = reverie.nn.Mlp.load(tmp_path / "lander" / "policy.safetensors")
    np.testing.assert_array_equal(policy.parameters, landing.result.policy.parameters)


def test_the_settings_are_accepted_by_the_trainer():
    settings = dataclasses.replace(lander.SETTINGS, seed=1)
    assert Trainer("ddqn", "CartPole-v1", settings).settings.n_step == 3
