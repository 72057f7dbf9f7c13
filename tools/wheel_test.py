"""What wheels there are agrees between the project's file and the tool that makes them."""

import re

import pytest
import tomllib

import wheel


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((wheel.ROOT / "pyproject.toml").read_text())


def test_python_versions_from_py_api_on_share_a_wheel(project):
    major, minor = wheel.FIRST_STABLE
    assert project["tool"]["scikit-build"]["wheel"]["py-api"] == f"cp{major}{minor}"
    shared = [minor for minor in range(10, 20) if wheel.is_stable(f"3.{minor}")]
    assert shared == list(range(12, 20))
    assert wheel.is_stable("4.0")


def test_the_oldest_python_matches_requires_python(project):
    assert project["project"]["requires-python"] == ">={}.{}".format(*wheel.FIRST)


def test_cibuildwheel_builds_the_same_wheels(project):
    built = project["tool"]["cibuildwheel"]["build"].split()
    first, stable = wheel.FIRST[1], wheel.FIRST_STABLE[1]
    assert built == [f"cp3{minor}-manylinux*" for minor in range(first, stable + 1)]


def test_every_cpython_found_is_new_enough():
    found = wheel.pythons()
    assert found
    assert min(found) >= wheel.FIRST
    assert all(path.is_file() for path in found.values())


def test_the_first_program_of_the_readme_imports_reverie():
    assert re.search(r"^import reverie$", wheel.first_program(), re.M)


def test_a_missing_python_is_refused(monkeypatch):
    monkeypatch.setattr("sys.argv", ["wheel.py", "--python", "3.99"])
    with pytest.raises(SystemExit, match=r"no CPython 3\.99"):
        wheel.main()
    monkeypatch.setattr("sys.argv", ["wheel.py", "--python", "3.11", "--all"])
    with pytest.raises(SystemExit, match="2"):
        wheel.main()
