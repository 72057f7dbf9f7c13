"""Makes this checkout importable and its command runnable in the environment that runs this.

Writes a path file for python/ and the ``reverie`` script. Unlike an editable install it builds
nothing, so it costs milliseconds and never lags behind the native build.
"""

import sys
import sysconfig
from pathlib import Path

_PACKAGE_ROOT = Path(__file__).resolve().parent.parent / "python"

_SCRIPT = """#!{python}
import sys

from reverie.__main__ import main

sys.exit(main())
"""


def link() -> None:
    """Writes both files; writing them again changes nothing."""
    site = Path(sysconfig.get_path("purelib"))
    (site / "reverie-checkout.pth").write_text(f"{_PACKAGE_ROOT}\n")
    script = Path(sysconfig.get_path("scripts")) / "reverie"
    script.write_text(_SCRIPT.format(python=sys.executable))
    script.chmod(0o755)


if __name__ == "__main__":
    link()
