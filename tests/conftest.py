"""What all Python tests have in common: which of them take minutes, and run when asked for."""

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
