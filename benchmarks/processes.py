"""Children of a benchmark: itself again, with other work; and what a process has used."""

from __future__ import annotations

import os
import subprocess
import sys

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """The script with these arguments, spoken to by lines."""
    return subprocess.Popen(
        [sys.executable, script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def cpu_s(pid: int) -> float:
    """CPU that a process has spent, user and system; of this one: ``time.process_time``."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S
