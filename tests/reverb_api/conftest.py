"""Reverb's Python API, as statements that are tested with both libraries that implement it.

Each test uses the fixture ``reverb``: the module ``reverie.reverb``, and dm-reverb where it is
installed (``make test-reverb``). A test that fails with dm-reverb is a mistake of the suite.
"""

import importlib
import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

TARGETS = ["reverie.reverb"]
if importlib.util.find_spec("reverb") is not None:
    import tensorflow  # noqa: F401

    TARGETS.append("reverb")


# A shell starts background jobs with Ctrl-C ignored, and Python does not change that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=TARGETS)
def reverb(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


@pytest.fixture
def is_ours(reverb: ModuleType) -> bool:
    return reverb.__name__ == "reverie.reverb"


@pytest.fixture
def spec(reverb: ModuleType) -> Callable[..., Any]:  # noqa: ARG001
    """Makes a specification with TensorFlow if it is installed, otherwise with ours."""
    if len(TARGETS) > 1:
        return importlib.import_module("tensorflow").TensorSpec
    return importlib.import_module("reverie").TensorSpec


@pytest.fixture
def serve(reverb: ModuleType) -> Iterator[Callable[..., Any]]:
    """Starts a server of tables and returns a client of it."""
    servers = []

    def start(*tables: Any) -> Any:
        servers.append(reverb.Server(list(tables)))
        return servers[-1].localhost_client()

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def table(reverb: ModuleType) -> Callable[..., Any]:
    """Makes a table with default settings, except those given."""

    def make(name: str = "t", **options: Any) -> Any:
        settings = {
            "sampler": reverb.selectors.Fifo(),
            "remover": reverb.selectors.Fifo(),
            "max_size": 100,
            "rate_limiter": reverb.rate_limiters.MinSize(1),
        }
        return reverb.Table(name=name, **{**settings, **options})

    return make
