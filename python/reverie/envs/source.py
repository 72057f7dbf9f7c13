"""Where environments come from: a Gymnasium id or a function, as a fresh process can follow it.

A worker gets names and plain values, and imports for itself. Where there is no name to import, it
gets the program's own definition, by cloudpickle (see ``reverie.trusted``).
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from reverie import _checks, trusted
from reverie.errors import (
    InvalidArgumentError,
    MissingPackageError,
    NotFoundError,
    UnsupportedTypeError,
)

_MAIN = "__reverie_main__"


def describe(
    env: object,
    env_kwargs: Mapping[str, object] | None,
    wrappers: Sequence[object] = (),
    num_envs: int = 1,
) -> dict[str, Any]:
    """What a worker needs to make environments, as text.

    Args:
        env: a Gymnasium id (``"package.module:Id"`` imports the module first), an ``EnvSpec``, a
            function or class, or a list of ``num_envs`` of them. What has no name that a worker
            could import, a lambda or a class of a notebook, travels as its definition.
        env_kwargs: its keyword arguments.
        wrappers: functions that each environment is passed through, in this order.
        num_envs: environments of a batch.

    Raises:
        InvalidArgumentError: ``env`` is nothing that makes an environment, or a list of another
            length.
        MissingPackageError: a definition is to travel, and cloudpickle is not installed.
        UnsupportedTypeError: a definition that cannot travel, since it holds a lock for instance.
    """
    each = _each(env, num_envs)
    kwargs = dict(env_kwargs or {})
    literal = _literal(kwargs)
    described: dict[str, Any] = {
        "each": [_described(one) for one in each],
        "wrappers": [_described(wrapper) for wrapper in wrappers],
    }
    if literal is not None:
        return {**described, "kwargs": literal}
    return {**described, "kwargs_code": trusted.text_of_code(kwargs, "env_kwargs")}


def local(
    env: object,
    env_kwargs: Mapping[str, object] | None,
    wrappers: Sequence[object] = (),
    num_envs: int = 1,
) -> dict[str, Any]:
    """The same for a worker of this process, which takes objects as they are."""
    for one in (*_each(env, num_envs), *wrappers):
        _check_makes(one)
    return {
        "objects": _each(env, num_envs),
        "kwargs_object": dict(env_kwargs or {}),
        "wrappers": list(wrappers),
    }


def name_of(described: Mapping[str, Any]) -> str:
    """The environment's name, for people."""
    if "objects" in described:
        first = described["objects"][0]
        return str(first if isinstance(first, str) else getattr(first, "__qualname__", first))
    name: str = described["each"][0]["name"]
    return name


def maker(described: Mapping[str, Any]) -> Callable[[int], Any]:
    """The function that makes environment i of a batch, in the worker.

    Raises:
        NotFoundError: there is no environment of that id; near ones are named.
        MissingPackageError: the environment needs a package that is not installed.
    """
    if "objects" in described:
        kwargs = described["kwargs_object"]
        each = [_caller(one) for one in described["objects"]]
        wrappers = described["wrappers"]
    else:
        if "kwargs" in described:
            kwargs = ast.literal_eval(described["kwargs"])
        else:
            kwargs = trusted.load_text(described["kwargs_code"])
        each = [_loaded(one) for one in described["each"]]
        wrappers = [_loaded(wrapper) for wrapper in described["wrappers"]]

    def make(index: int) -> Any:  # noqa: ANN401
        env = each[index % len(each)](**kwargs)
        for wrapper in wrappers:
            env = wrapper(env)
        for method in ("reset", "step"):
            if not hasattr(env, method):
                raise UnsupportedTypeError(
                    f"env makes a {type(env).__name__}, {_checks.shown(env)}, which has no "
                    f"{method}(); it must make a Gymnasium environment (or reverie.envs.OldGym, "
                    "DmEnv)"
                )
        return env

    return make


def _each(env: object, num_envs: int) -> list[Any]:
    """One for all, or one for each."""
    if not isinstance(env, (list, tuple)):
        return [env]
    if len(env) != num_envs:
        raise InvalidArgumentError(
            f"env is a list of {len(env)} functions and num_envs is {num_envs}; give one function "
            "for each environment"
        )
    return list(env)


def _is_spec(env: object) -> bool:
    return type(env).__name__ == "EnvSpec" and hasattr(env, "entry_point")


def _check_makes(env: object) -> None:
    if not isinstance(env, str) and not callable(env) and not _is_spec(env):
        raise InvalidArgumentError(
            f"env is {_checks.shown(env)}; give a Gymnasium id, an EnvSpec, or a function that "
            "makes an environment"
        )


def _described(env: object) -> dict[str, str]:
    _check_makes(env)
    if isinstance(env, str):
        return {"kind": "gymnasium", "name": env}
    if _is_spec(env):
        name = str(env.id)  # type: ignore[attr-defined]
        return {"kind": "spec", "name": name, "code": trusted.text_of_code(env, f"the spec {name}")}
    try:
        names = _names(env)  # type: ignore[arg-type]
    except InvalidArgumentError as refusal:
        name = getattr(env, "__qualname__", type(env).__name__)
        try:
            return {"kind": "code", "name": name, "code": trusted.text_of_code(env, "env")}
        except MissingPackageError as error:
            raise InvalidArgumentError(
                f"{refusal}; or send its definition: pip install 'reverie[closures]'"
            ) from error
    return {"kind": "function", "name": names["qualname"], **names}


def _loaded(described: Mapping[str, str]) -> Callable[..., Any]:
    kind = described["kind"]
    if kind == "function":
        return _function(described)
    if kind == "gymnasium":
        return _caller(described["name"])
    return _caller(trusted.load_text(described["code"]))


def _caller(env: Any) -> Callable[..., Any]:  # noqa: ANN401
    """What makes an environment of an id, a spec or a function."""
    if isinstance(env, str):
        gymnasium = _gymnasium(env)
        return lambda **kwargs: gymnasium.make(env, **kwargs)
    if _is_spec(env):
        make = importlib.import_module("gymnasium").make
        return lambda **kwargs: make(env, **kwargs)
    made: Callable[..., Any] = env
    return made


def _literal(kwargs: dict[str, object]) -> str | None:
    """The arguments as text, where they are plain values."""
    text = repr(kwargs)
    try:
        return text if ast.literal_eval(text) == kwargs else None
    except Exception:  # an array has no single truth, and other types raise what they like
        return None


def _names(env: Callable[..., object]) -> dict[str, str]:
    module = getattr(env, "__module__", None)
    qualname = getattr(env, "__qualname__", None)
    remedy = (
        "workers are fresh processes and import it by name: define it at the top level of a "
        "module, and pass what it closes over as env_kwargs"
    )
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise InvalidArgumentError(
            f"env is {_checks.shown(env)}, which has no name of its own; {remedy}"
        )
    if "<" in qualname:
        kind = "a lambda" if qualname.endswith("<lambda>") else "defined within a function"
        raise InvalidArgumentError(f"env, {module}.{qualname}, is {kind}; {remedy}")
    try:
        found = _look_up(sys.modules[module], qualname)
    except (KeyError, AttributeError):
        found = None
    # Each look-up of a class method makes another object. An inherited one has the name of the
    # class that defines it, but is bound to a subclass.
    is_found = found is env or (
        getattr(found, "__func__", None) is getattr(env, "__func__", env)
        and getattr(found, "__self__", None) is getattr(env, "__self__", None)
    )
    if not is_found:
        raise InvalidArgumentError(
            f"env is {_checks.shown(env)}, but {module}.{qualname} is another object; {remedy}"
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
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise MissingPackageError(
                f"environment {env_id!r} needs the module {module}, which could not be imported: "
                f"{error}"
            ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about an old version comes when it is made
            gymnasium.spec(name)
    except gymnasium.error.Error as error:  # unregistered, or malformed
        import difflib

        near = difflib.get_close_matches(name, list(gymnasium.registry), n=5, cutoff=0.5)
        offer = f"; near it are {', '.join(near)}" if near else ""
        raise NotFoundError(f"there is no environment {env_id!r}{offer} ({error})") from None
    return gymnasium
