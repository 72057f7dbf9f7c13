"""Options of the test run, and where things lie."""

import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pytest_configure():
    # A shell starts what it puts into the background with Ctrl-C ignored, and Python leaves it so.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        "--results",
        action="append",
        default=[],
        metavar="JUNIT_XML",
        help="what ctest wrote: its tests are reported too, so that one summary counts all",
    )
    parser.addoption("--full", action="store_true", help="run the tests marked full too")


def pytest_ignore_collect(collection_path, config):
    if collection_path.name == "native_test.py" and not config.getoption("--results"):
        return True
    return None


def pytest_collection_modifyitems(config, items):
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="takes minutes: make test-full")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def root():
    """The root of the source tree."""
    return ROOT
