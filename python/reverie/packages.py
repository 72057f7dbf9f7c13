"""Optional packages, imported when something needs them."""

import importlib
from typing import Any

from reverie.errors import MissingPackageError


def import_package(name: str, package: str | None = None) -> Any:  # noqa: ANN401
    """A module of an optional package; ``package`` is what installs it.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = package or name.split(".")[0]
        raise MissingPackageError(
            f"this needs the package {package}, which could not be imported: {error}"
        ) from None
