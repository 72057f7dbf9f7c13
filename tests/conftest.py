"""Settings of all Python tests: the log, and the tests that take minutes."""

import logging
import sys

import pytest


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the tests marked full too")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="takes minutes: make test-full")
    for item in items:
        if item.get_closest_marker("full"):
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def settings():
    """Restores the log level and what moolib's functions configure, for other tests."""
    logger = logging.getLogger("reverie")
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers
    moolib = sys.modules.get("reverie.moolib_settings")
    if moolib is not None:
        vars(moolib.DEFAULTS).clear()
