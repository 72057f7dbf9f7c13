"""Where PyTorch computes, and what it says of a device that fails."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from reverie import _checks
from reverie.errors import (
    InvalidArgumentError,
    ResourceExhaustedError,
    ReverieError,
    UnavailableError,
)

_begun = threading.local()


def checked_device(device: str) -> torch.device:
    """The device, if PyTorch has it."""
    name = _checks.text("device", device, "cpu")
    try:
        made = torch.device(name)
        torch.zeros(1, device=made)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidArgumentError(
            f"device is {name!r}, which PyTorch cannot use: {error}; give cpu, or a "
            "device that torch.cuda reports"
        ) from None
    return made


def begin_use(device: torch.device) -> None:
    """Makes the device's context the current one of this thread.

    PyTorch warns, and does so itself, if a product of matrices is what a thread begins with.
    """
    if device.type != "cpu" and getattr(_begun, "device", None) != device:
        torch.zeros(1, device=device)
        _begun.device = device


@contextlib.contextmanager
def device_errors(device: str) -> Iterator[None]:
    """Turns what PyTorch raises about its device into errors of ours."""
    try:
        yield
    except ReverieError:
        raise
    except torch.OutOfMemoryError as error:
        raise ResourceExhaustedError(
            f"{device} has no memory left: {error}; lower batch_size or hidden"
        ) from error
    except RuntimeError as error:
        raise UnavailableError(
            f"PyTorch failed on {device}: {error}; resume from the last checkpoint, on another "
            "device if this one is gone (--resume --device cpu)"
        ) from error
