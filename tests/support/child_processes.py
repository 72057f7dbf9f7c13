"""The child processes of a process, as the kernel has them."""

import contextlib
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Those that process ``pid`` has not waited for."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += [int(child) for child in (task / "children").read_text().split()]
    return found
