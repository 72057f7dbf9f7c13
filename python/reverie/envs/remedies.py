"""The remedies in a pool's errors, for what has a pool that its own caller does not see."""

from __future__ import annotations

import re

# As src/reverie/env/watched_pool.cc writes them.
_REMEDY = re.compile(r"; (?=pool\.restart\(|pool\.reset\(\) makes|make another pool)")


def split(error: Exception) -> tuple[str, str]:
    """What happened, and what follows in the text: the pool's remedy; "" where there is none."""
    why, *rest = _REMEDY.split(str(error), maxsplit=1)
    return why, rest[0] if rest else ""


__all__ = ["split"]
