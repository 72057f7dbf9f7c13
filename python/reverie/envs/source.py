"""Where environments come from: a Gymnasium id or a function, as a fresh process can follow it.

Nothing executable travels: a worker gets names and plain values, and imports for itself.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from reverie.errors import InvalidArgumentError, MissingPackageError, NotFoundError

_MAIN = "__reverie_main__"


def describe(env: object, env_kwargs: Mapping[str, object] | None) -> dict[str, str]:
    """What a worker needs to make environments, as text.

    Args:
        env: a Gymnasium id, or a function or class that can be imported.
        env_kwargs: its keyword arguments, of plain values: numbers, str, bytes, bool, None, and
            lists, tuples, dicts and sets of them.

    Raises:
        InvalidArgumentError: ``env`` is a lambda, a closure, a method, or of an interactive
            session; or a value of ``env_kwargs`` is not plain.
    """
    kwargs = dict(env_kwargs or {})
    described = {"kwargs": _literal(kwargs)}
    if isinstance(env, str):
        return {**described, "kind": "gymnasium", "id": env}
    if not callable(env):
        raise InvalidArgumentError(
            f"env is {env!r}; give a Gymnasium id, or a function that makes an environment"
        )
    return {**described, "kind": "function", **_names(env)}


def name_of(described: Mapping[str, str]) -> str:
    """The environment's name, for people."""
    if described["kind"] == "gymnasium":
        return described["id"]
    return described["qualname"]


def maker(described: Mapping[str, str]) -> Callable[[], Any]:
    """The function that makes environments, in the worker.

    Raises:
        NotFoundError: there is no environment of that id; near ones are named.
        MissingPackageError: the environment needs a package that is not installed.
    """
    kwargs = ast.literal_eval(described["kwargs"])
    if described["kind"] == "function":
        function = _function(described)
        return lambda: function(**kwargs)
    gymnasium = _gymnasium(described["id"])
    return lambda: gymnasium.make(described["id"], **kwargs)


def _literal(kwargs: dict[str, object]) -> str:
    text = repr(kwargs)
    try:
        same = ast.literal_eval(text) == kwargs
    except (ValueError, SyntaxError):
        same = False
    if same:
        return text
    for name, value in kwargs.items():
        try:
            if ast.literal_eval(repr(value)) == value:
                continue
        except (ValueError, SyntaxError):
            pass
        raise InvalidArgumentError(
            f"env_kwargs[{name!r}] is a {type(value).__name__}, {value!r:.80}; workers are fresh "
            "processes and take plain values only (numbers, str, bytes, lists, dicts): make "
            "anything else within a function and give that as env"
        )
    raise InvalidArgumentError("env_kwargs needs keys that are str")


def _names(env: Callable[..., object]) -> dict[str, str]:
    module = getattr(env, "__module__", None)
    qualname = getattr(env, "__qualname__", None)
    remedy = (
        "workers are fresh processes and import it by name: define it at the top level of a "
        "module, and pass what it closes over as env_kwargs"
    )
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise InvalidArgumentError(f"env is {env!r}, which has no name of its own; {remedy}")
    if "<" in qualname:
        kind = "a lambda" if qualname.endswith("<lambda>") else "defined within a function"
        raise InvalidArgumentError(f"env, {module}.{qualname}, is {kind}; {remedy}")
    try:
        found = _look_up(sys.modules[module], qualname)
    except (KeyError, AttributeError):
        found = None
    if found is not env and getattr(found, "__func__", None) is not getattr(env, "__func__", env):
        raise InvalidArgumentError(
            f"env is {env!r}, but {module}.{qualname} is another object; {remedy}"
        )
    names = {"module": module, "qualname": qualname}
    file = getattr(sys.modules[module], "__file__", None)
    if module == "__main__":
        spec = getattr(sys.modules[module], "__spec__", None)
        if spec is not None:
            names["module"] = spec.name
        elif file is None:
            raise InvalidArgumentError(
                f"env, {qualname}, is defined in an interactive session; {remedy}"
            )
    if file is not None:
        names["file"] = file
    return names


def _look_up(module: ModuleType, qualname: str) -> Any:  # noqa: ANN401
    found: Any = module
    for name in qualname.split("."):
        found = getattr(found, name)
    return found


def _function(described: Mapping[str, str]) -> Callable[..., Any]:
    name, file = described["module"], described.get("file")
    module: ModuleType
    if name == "__main__":
        import runpy

        # As multiprocessing does: the program runs once more, up to its main guard.
        module = ModuleType(_MAIN)
        module.__dict__.update(runpy.run_path(str(file), run_name=_MAIN))
        sys.modules[_MAIN] = module
    else:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if file is None or error.name is None or not name.startswith(error.name):
                raise
            module = _import_file(name, file)
    function: Callable[..., Any] = _look_up(module, described["qualname"])
    return function


def _import_file(name: str, file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise NotFoundError(f"module {name} cannot be imported from {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _gymnasium(env_id: str) -> Any:  # noqa: ANN401
    try:
        gymnasium: Any = importlib.import_module("gymnasium")
    except ModuleNotFoundError:
        raise MissingPackageError(
            f"environment {env_id!r} needs Gymnasium: pip install gymnasium"
        ) from None
    if env_id.startswith("ALE/"):
        try:
            gymnasium.register_envs(importlib.import_module("ale_py"))
        except ModuleNotFoundError:
            raise MissingPackageError(f"environment {env_id!r} needs: pip install ale-py") from None
    try:
        gymnasium.spec(env_id)
    except gymnasium.error.UnregisteredEnv as error:
        import difflib

        names = list(gymnasium.registry)
        near = difflib.get_close_matches(env_id, names, n=5, cutoff=0.5)
        offer = f"; near it are {', '.join(near)}" if near else ""
        raise NotFoundError(f"there is no environment {env_id!r}{offer} ({error})") from None
    return gymnasium
