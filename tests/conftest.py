"""Settings of all Python tests: the log, and the tests that take minutes."""

import logging
import sys
from collections import Counter

import pytest


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="run the tests marked full too")


def minutes(item):
    """About how long a test marked full takes; 0 for others."""
    marker = item.get_closest_marker("full")
    return marker.kwargs.get("minutes", 1) if marker else 0


def pytest_collection_modifyitems(config, items):
    if config.getoption("--full"):
        # The files that take longest begin first, so that none runs alone in the end.
        total = Counter()
        for item in items:
            total[item.path] += minutes(item)
        items.sort(key=lambda item: -total[item.path])
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
