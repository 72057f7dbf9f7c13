"""Makes this checkout importable and its commands runnable in the environment that runs this.

Writes a path file for python/ and the scripts that pyproject.toml names. Unlike an editable install
it builds nothing, so it costs milliseconds and never lags behind the native build.
"""

import sys
import sysconfig
from pathlib import Path

import tomllib

_ROOT = Path(__file__).resolve().parent.parent

_SCRIPT = """#!{python}
import sys

from {module} import {function}

sys.exit({function}())
"""


def link() -> None:
    """Writes the files; writing them again changes nothing."""
    site = Path(sysconfig.get_path("purelib"))
    (site / "reverie-checkout.pth").write_text(f"{_ROOT / 'python'}\n")
    scripts = Path(sysconfig.get_path("scripts"))
    with (_ROOT / "pyproject.toml").open("rb") as file:
        commands = tomllib.load(file)["project"]["scripts"]
    for name, target in commands.items():
        module, _, function = target.partition(":")
        script = scripts / name
        text = _SCRIPT.format(python=sys.executable, module=module, function=function)
        script.write_text(text)
        script.chmod(0o755)


if __name__ == "__main__":
    link()
