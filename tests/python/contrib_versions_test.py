"""Adapters name a library that is missing or too old, and the command that installs it."""

import importlib.metadata

import pytest

from reverie.contrib import versions
from reverie.errors import MissingPackageError


@pytest.fixture
def installed(monkeypatch):
    """Sets which version of each library seems to be installed."""

    def say(version):
        def found(_name):
            if not version:
                raise importlib.metadata.PackageNotFoundError
            return version

        monkeypatch.setattr(importlib.metadata, "version", found)

    return say


def test_version_numbers_are_compared_as_numbers():
    assert versions.numbers("2.13.0rc1+cpu") == (2, 13, 0)
    assert versions.numbers("2.10") > versions.numbers("2.9.2")
    assert versions.numbers("unknown") == ()


@pytest.mark.parametrize("module", versions.LEAST)
def test_a_library_that_is_too_old_is_refused(installed, module):
    installed("0.0.1")
    with pytest.raises(MissingPackageError, match=r"0\.0\.1 is installed: pip install '"):
        versions.check(module, "an adapter")
    for version in ("", versions.LEAST[module], "99.0"):
        installed(version)
        versions.check(module, "an adapter")


def test_the_error_names_the_package_that_cannot_be_imported(installed):
    installed("")
    gone = ModuleNotFoundError("No module named 'ray'", name="ray")
    said = str(versions.refusal(gone, "ray", "reverie.contrib.rllib"))
    assert said == "reverie.contrib.rllib needs ray: pip install 'ray[rllib]>=2.40'"
    installed("2.60.0")
    part = ModuleNotFoundError("No module named 'torch'", name="torch")
    assert "needs torch: pip install 'ray[rllib]" in str(versions.refusal(part, "ray", "it"))
    installed("2.9")
    lacks = ImportError("cannot import name 'Episode'")
    said = str(versions.refusal(lacks, "ray", "it"))
    assert "needs ray 2.40 or newer, and 2.9 is installed" in said
    assert "Episode" in said


@pytest.mark.parametrize(
    ("adapter", "module"),
    [("sb3", "stable_baselines3"), ("tianshou", "tianshou"), ("torchrl", "torchrl")],
)
def test_an_adapter_without_its_library_raises_missing_package_error(adapter, module):
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        with pytest.raises(MissingPackageError, match=f"reverie.contrib.{adapter} needs"):
            importlib.import_module(f"reverie.contrib.{adapter}")
    else:
        pytest.skip(f"{module} is installed")
