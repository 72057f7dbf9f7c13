"""The wheel contains what a user needs and nothing else, and works without this tree."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

# Every Linux with Python has the C++ runtime and the C library.
_SYSTEM_LIBRARIES = {
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
    "libc.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
    "libstdc++.so.6",
}


# Files that a tree has after it was built and used.
_BUILT_OR_INSTALLED = [
    ".venv/lib/python3.11/site-packages/numpy/__init__.py",
    ".ruff_cache/0.6/1",
    "build/release/libreverie.a",
    "dist/reverie-0.1.0.tar.gz",
    "python/reverie/_reverie.cpython-311-x86_64-linux-gnu.so",
    "python/reverie/__pycache__/nests.cpython-311.pyc",
]


def run(*command, cwd=None, **environment):
    """The standard output of ``command``; if it fails, the test fails with its output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    """The wheel of this tree, unpacked, with the extension of the release build.

    So it only costs the packing, even on a slow machine. Another test compiles a wheel from the
    source archive.
    """
    built = root / "build" / "release"
    assert (built / "build.ninja").is_file(), f"{built} holds no build: run make build"
    folder = tmp_path_factory.mktemp("wheel")
    run(
        *(sys.executable, "-m", "pip", "wheel", root, "--wheel-dir", folder),
        *("--no-build-isolation", "--no-deps"),
        # A separate folder, because cmake caches REVERIE_BUILT.
        f"--config-settings=build-dir={folder / 'build'}",
        f"--config-settings=cmake.define.REVERIE_BUILT={built}",
        # scikit-build-core waits for the output of `cmake --version`, longer if CI is set.
        CI="1",
        **({"CMAKE_EXECUTABLE": os.environ["CMAKE"]} if "CMAKE" in os.environ else {}),
    )
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.fixture(scope="module")
def sdist(root, tmp_path_factory):
    """The names in the source archive of this tree, relative to its folder.

    It is made from a copy, since the packer looks at every file, and .venv has seventy thousand.
    """
    folder = tmp_path_factory.mktemp("sdist")
    left_out = shutil.ignore_patterns(".git", ".venv*", "build", "dist", "__pycache__", ".*_cache")
    tree = shutil.copytree(root, folder / "tree", ignore=left_out)
    for name in _BUILT_OR_INSTALLED:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("not a source")
    code = "import sys; from scikit_build_core.build import build_sdist as b; b(sys.argv[1])"
    run(sys.executable, "-c", code, folder, cwd=tree)
    (path,) = folder.glob("reverie-*.tar.gz")
    with tarfile.open(path) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def test_the_source_archive_has_all_files_that_a_build_needs(sdist, root):
    needed = {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE", "cmake/compression.cmake"}
    needed |= {path.relative_to(root).as_posix() for path in (root / "src").rglob("*.cc")}
    needed |= {path.relative_to(root).as_posix() for path in (root / "python").rglob("*.py")}
    assert needed - sdist == set()


def test_the_source_archive_has_no_built_or_installed_files(sdist):
    unwanted = re.compile(r"\.(so|o|a|pyc)$|^(build|dist|\.\w+|tests|docs)/")
    assert [name for name in sorted(sdist) if unwanted.search(name)] == []


@pytest.fixture(scope="module")
def extension(wheel):
    (path,) = (wheel / "reverie").glob("_reverie.*.so")
    return path


def test_the_wheel_has_the_package_with_its_types_and_licence(wheel):
    held = {path.relative_to(wheel).as_posix() for path in wheel.rglob("*") if path.is_file()}
    assert {"reverie/__init__.py", "reverie/py.typed", "reverie/_reverie.pyi"} <= held
    assert any(name.endswith("licenses/LICENSE") for name in held)


def test_the_wheel_has_no_tests_or_sources(wheel):
    unwanted = re.compile(r"_test\.py$|\.(cc|h|a|cmake)$|^(?!reverie/|reverie-)")
    held = {path.relative_to(wheel).as_posix() for path in wheel.rglob("*") if path.is_file()}
    assert [name for name in sorted(held) if unwanted.search(name)] == []


def test_the_extension_needs_only_system_libraries(extension):
    needed = re.findall(r"NEEDED.*\[(.+)\]", run("readelf", "--dynamic", "--wide", extension))
    assert set(needed) <= _SYSTEM_LIBRARIES


def test_the_box2d_plugin_loads_the_library_beside_it(wheel):
    plugin = wheel / "reverie" / "_box2d_envs.so"
    said = run("readelf", "--dynamic", "--wide", plugin)
    needed = set(re.findall(r"NEEDED.*\[(.+)\]", said)) - _SYSTEM_LIBRARIES
    assert needed == {"libbox2d.so.2"}
    assert (wheel / "reverie" / "libbox2d.so.2").is_file()
    assert re.search(r"RUNPATH.*\[\$ORIGIN\]", said)
    shown = run("nm", "--dynamic", "--defined-only", plugin).splitlines()
    assert {line.split()[2] for line in shown} == {
        "reverie_plugin_abi",
        "reverie_plugin_register",
    }


def test_the_extension_exports_only_its_init_function(extension):
    shown = run("nm", "--dynamic", "--defined-only", "--demangle", extension).splitlines()
    names = [line.split(maxsplit=2)[2] for line in shown]
    assert [name for name in names if "nanobind" not in name] == ["PyInit__reverie"]


def test_the_wheel_works_without_the_source_tree(wheel, tmp_path):
    code = """
import reverie, reverie.envs.native as native
native.NativePool("LunarLander-v3", 2).reset().result()
print(reverie.__file__, reverie.__version__)
"""
    file, version = run(
        sys.executable, "-P", "-c", code, PYTHONPATH=str(wheel), HOME=str(tmp_path)
    ).split()
    assert Path(file) == wheel / "reverie" / "__init__.py"
    (info,) = wheel.glob("reverie-*.dist-info")
    assert info.name == f"reverie-{version}.dist-info"


@pytest.mark.full(minutes=7)
@pytest.mark.timeout(0)  # compiling takes long
def test_a_wheel_from_the_source_archive_works_in_a_bare_environment(root, tmp_path):
    pytest.importorskip("auditwheel")
    said = run(sys.executable, root / "tools" / "wheel.py", "--out", tmp_path)
    assert "manylinux" in said
    assert "works in a bare environment" in said
