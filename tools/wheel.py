"""Builds source archive and wheel, and tries the wheel in a bare environment.

Usage: wheel.py [--out dist]

The environment holds the wheel and what it requires, NumPy, and nothing of this tree: it stores,
compresses and samples frames, asks for the version, and is checked by pip.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SDIST = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
_SMOKE = """
import sys
import numpy as np
import reverie
loaded = {name.partition(".")[0] for name in sys.modules}
assert not loaded & {"torch", "jax", "tensorflow", "gymnasium"}, loaded
table = reverie.Table(
    "t", reverie.selectors.Prioritized(0.6), reverie.selectors.Fifo(), 1000,
    reverie.rate_limiters.MinSize(1), max_bytes=1 << 30,
)
with reverie.Store([table], codec="zstd") as store:
    client = store.client()
    with client.trajectory_writer(num_keep_alive_refs=2, chunk_length=40) as writer:
        for step in range(200):
            frame = np.zeros((84, 84), np.uint8)
            frame[step % 84] = 200
            writer.append({"frame": frame, "step": np.int64(step)})
            writer.create_item("t", 1.0, {k: v[-1:] for k, v in writer.history.items()})
        writer.end_episode()
    batch = client.sample_batch("t", 64)
    for frame, step in zip(batch.data["frame"], batch.data["step"], strict=True):
        assert frame.sum() == 84 * 200 and frame[0, step[0] % 84, 0] == 200
    assert client.server_info()["t"].size_bytes < 200 * 84 * 84 / 10
print("reverie", reverie.__version__, "from", reverie.__file__)
"""


def _run(*command: str | Path, cwd: Path = ROOT) -> None:
    # CXX as the presets name it, so that ccache knows the files.
    environment = {"CXX": "c++", **os.environ}
    environment.pop("PYTHONPATH", None)
    subprocess.run([str(word) for word in command], cwd=cwd, env=environment, check=True)


def build(out: Path) -> tuple[Path, Path]:
    """The source archive of this tree, and the wheel that is made of it and nothing else."""
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("reverie-*.tar.gz"), *out.glob("reverie-*.whl")):
        old.unlink()
    _run(sys.executable, "-c", _SDIST, out)
    (sdist,) = out.glob("reverie-*.tar.gz")
    scratch = ROOT / "build" / "sdist"  # always there: a compiler cache knows paths
    shutil.rmtree(scratch, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch, filter="data")
    (source,) = scratch.iterdir()
    # With what pyproject.toml says a build needs, and nothing else.
    _run(
        *(sys.executable, "-m", "pip", "wheel", ".", "--quiet", "--wheel-dir", out, "--no-deps"),
        cwd=source,
    )
    (wheel,) = out.glob("reverie-*.whl")
    return sdist, wheel


def smoke_test(wheel: Path) -> None:
    """Installs the wheel into an environment of its own and uses it there."""
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(Path(scratch) / "env", with_pip=True)
        tools = Path(scratch) / "env" / "bin"
        _run(tools / "python", "-m", "pip", "install", "--quiet", wheel, cwd=Path(scratch))
        _run(tools / "python", "-m", "pip", "check", cwd=Path(scratch))
        _run(tools / "reverie", "version", cwd=Path(scratch))
        _run(tools / "python", "-I", "-c", _SMOKE, cwd=Path(scratch))


def main() -> None:
    """Builds, tries, and says what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out = parser.parse_args().out.resolve()
    sdist, wheel = build(out)
    smoke_test(wheel)
    for path in (sdist, wheel):
        print(f"{path.stat().st_size / 1e6:6.2f} MB  {path}")


if __name__ == "__main__":
    main()
