"""Both libraries in one process, TensorFlow first: its exported symbols must not replace ours."""

import os
from collections.abc import Callable, Iterator

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest
import tensorflow  # noqa: F401

import reverb  # isort: skip

import reverie


@pytest.fixture
def serve() -> Iterator[Callable[..., reverie.Server]]:
    """Starts our servers."""
    servers = []

    def start(*tables: reverie.Table, **options) -> reverie.Server:
        servers.append(reverie.Server(tables, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop(grace_s=0)


@pytest.fixture
def dm_serve() -> Iterator[Callable[..., reverb.Server]]:
    """Starts dm-reverb's servers."""
    servers = []

    def start(*tables: reverb.Table) -> reverb.Server:
        servers.append(reverb.Server(list(tables)))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
