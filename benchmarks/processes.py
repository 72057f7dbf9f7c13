"""Child processes of a benchmark, which run the same script; and the CPU time of a process."""

from __future__ import annotations

import os
import subprocess
import sys

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Starts the script with these arguments; it is controlled by lines."""
    return subprocess.Popen(
        [sys.executable, script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, user and system; for this process use ``time.process_time``."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S
