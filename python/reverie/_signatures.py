"""What ``inspect.signature`` says of the native module's functions and methods."""

from __future__ import annotations

import collections.abc
import inspect
import re
import typing
from typing import Any


def signature_of(function: Any) -> inspect.Signature:  # noqa: ANN401
    """The signature of a native function, of a method, or of a method of an object.

    The native module calls it when a function's ``__signature__`` is read.
    """
    import numpy

    import reverie
    from reverie import _reverie

    text, _, defaults = function.__nb_signature__[0]
    names: dict[str, Any] = {
        **vars(_reverie),
        "collections": collections,
        "defaults": defaults,
        "numpy": numpy,
        "reverie": reverie,
        "typing": typing,
    }
    # A default that cannot be written as text is a backslash and its index.
    shown = re.sub(r"\\(\d+)", r"defaults[\1]", text)
    found: dict[str, Any] = {}
    exec(f"from __future__ import annotations\n{shown}: ...", names, found)
    made = found[function.__name__]
    try:
        signature = inspect.signature(made, eval_str=True)
    except NameError:
        signature = inspect.signature(made)
    if type(function).__name__ != "nb_bound_method":
        return signature
    return signature.replace(parameters=list(signature.parameters.values())[1:])
