"""Each example runs without changes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Packages that an example needs and that may be missing.
_NEEDS = {
    "atari_recording.py": ("ale_py", "PIL"),
    "elastic_training.py": ("torch",),
    "index_server.py": ("torch",),
    "sb3_dqn.py": ("stable_baselines3",),
    "tianshou_dqn.py": ("tianshou",),
    "torchrl_dqn.py": ("torchrl",),
}
_FOLDER = Path(__file__).resolve().parents[2] / "examples"
_EXAMPLES = sorted(_FOLDER.rglob("*.py"))


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda p: p.relative_to(_FOLDER).as_posix())
def test_the_example_runs(example, tmp_path):
    for module in _NEEDS.get(example.name, ()):
        pytest.importorskip(module)
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The tables of the examples that take --server, as reverie serve is given them.
_SERVED = """
[[tables]]
name = "priority_table"
sampler = { kind = "prioritized", priority_exponent = 0.6 }
remover = "fifo"
max_size = 20_000
rate_limiter = { kind = "min_size", min_size_to_sample = 500 }

[[tables]]
name = "VARIABLE_CONTAINER"
sampler = "uniform"
remover = "fifo"
max_size = 1
rate_limiter = { kind = "min_size", min_size_to_sample = 1 }

[[tables]]
name = "uniform_table"
sampler = "uniform"
remover = "fifo"
max_size = 50_000
rate_limiter = { kind = "sample_to_insert_ratio", samples_per_insert = 32.0, min_size_to_sample = 500, error_buffer = 1_600 }
"""  # noqa: E501


@pytest.mark.parametrize(
    ("example", "steps"), [("dqn", 1_100), ("d4pg", 700), ("distributed_sac", 600)]
)
def test_an_example_with_server_runs_on_reverie_serve(example, steps, tmp_path):
    pytest.importorskip("gymnasium")
    serve = [sys.executable, "-m", "reverie", "serve", "--config", _SERVED]
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"listens at ([^\s,]+)", server.stderr.readline())[1]
            # -O: without its last assertion, since in so few steps it learns little.
            program = [sys.executable, "-O", _FOLDER / "as_reverb" / f"{example}.py"]
            done = subprocess.run(
                [*program, "--server", address, "--steps", str(steps)],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
        finally:
            server.terminate()
        assert re.search(r"[1-9]\d* items inserted, [1-9]\d* sampled", server.stderr.read())


def test_the_page_mentions_every_example(root):
    page = (root / "docs" / "examples.md").read_text()
    assert [path for path in _EXAMPLES if path.relative_to(root).as_posix() not in page] == []


def test_the_recording_example_writes_a_gif_of_the_game(tmp_path):
    pytest.importorskip("ale_py")
    pil = pytest.importorskip("PIL.Image")
    example = next(path for path in _EXAMPLES if path.name == "atari_recording.py")
    subprocess.run(
        [sys.executable, str(example), "--games", "1", "--gif", "game.gif"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=600,
    )
    with pil.open(tmp_path / "game.gif") as film:
        assert film.size == (160, 210)
        assert film.n_frames > 100
        colours = [film.convert("RGB").getpixel((80, 60))]
        film.seek(film.n_frames - 1)
        colours.append(film.convert("RGB").getpixel((80, 60)))
        # A brick of the top row, which lasts longest, is red in the first and the last frame.
        assert all(red > 150 and blue < 100 for red, _, blue in colours)
