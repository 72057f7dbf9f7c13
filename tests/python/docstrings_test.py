"""Every public class, function and member has a docstring, which editors and ``help()`` show."""

import dataclasses
import importlib
import inspect

import pytest

from public_modules import PUBLIC


def described(kind, name, member):
    """Whether a member has a docstring, or its class describes it as an attribute or setting."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    settings = {field.name for field in fields if "help" in field.metadata}
    return bool(inspect.getdoc(member)) or f"{name}:" in (kind.__doc__ or "") or name in settings


def undescribed(kind):
    """The public members without a description, as ``Class.name``."""
    for home in inspect.getmro(kind):
        if not home.__module__.startswith("reverie"):
            continue
        for name, member in vars(home).items():
            if not name.startswith("_") and not described(home, name, member):
                yield f"{home.__name__}.{name}"


@pytest.mark.parametrize("module_name", PUBLIC)
def test_public_names_have_docstrings(module_name):
    module = importlib.import_module(module_name)
    missing = set()
    for name in getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]:
        member = getattr(module, name)
        if not getattr(member, "__module__", "").startswith("reverie") or not callable(member):
            continue
        if not inspect.getdoc(member):
            missing.add(name)
        if inspect.isclass(member):
            missing |= set(undescribed(member))
    assert missing == set()
