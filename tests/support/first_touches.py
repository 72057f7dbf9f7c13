"""How much fresh memory threads of this process touch: of their work, what load does not change."""

import os
from pathlib import Path


def threads():
    """The threads of this process."""
    return set(os.listdir("/proc/self/task"))


def first_touches(threads):
    """How many bytes of memory these threads were the first to touch, in whole pages."""
    stats = [Path(f"/proc/self/task/{thread}/stat").read_text() for thread in threads]
    pages = sum(int(stat.rpartition(")")[2].split()[7]) for stat in stats)  # minor faults
    return pages * os.sysconf("SC_PAGE_SIZE")
