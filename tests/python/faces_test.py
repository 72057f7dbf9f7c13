"""What an interactive user sees of the package: signatures, help, and classes to derive from."""

import importlib
import inspect
import pydoc

import numpy as np
import pytest

import reverie

MODULES = [
    "reverie",
    "reverie.agents",
    "reverie.envs.native",
    "reverie.extensions",
    "reverie.gym",
    "reverie.moolib",
    "reverie.nn",
    "reverie.rate_limiters",
    "reverie.rl",
    "reverie.selectors",
    "reverie.structured",
]
# Classes that only the library makes.
NOT_MADE = {"Batch", "BlockedReport", "ColumnHistory", "TrajectoryColumn"}
SPECIAL = ("__getitem__", "__iter__", "__len__", "__next__")


def public():
    """Name and object of each public function, class, method and property."""
    found = {}
    for module in map(importlib.import_module, MODULES):
        names = getattr(module, "__all__", None) or [n for n in vars(module) if n[0] != "_"]
        for name in names:
            one = getattr(module, name)
            if not callable(one) or not str(getattr(one, "__module__", "")).startswith("reverie"):
                continue
            found.setdefault(f"{module.__name__}.{name}", one)
            if not isinstance(one, type):
                continue
            for member in dir(one):
                owner = next(kind for kind in one.__mro__ if member in vars(kind))
                is_ours = owner.__module__.startswith("reverie")
                if is_ours and (not member.startswith("_") or member in SPECIAL):
                    found[f"{module.__name__}.{name}.{member}"] = vars(owner)[member]
    return found


PUBLIC = public()


def test_public_names_are_found():
    assert len(PUBLIC) > 300
    assert "reverie.ReplayBuffer.add" in PUBLIC


def test_every_public_name_has_a_docstring():
    described = (property, staticmethod, classmethod, type)
    silent = [
        name
        for name, one in PUBLIC.items()
        if (isinstance(one, described) or callable(one)) and not inspect.getdoc(one)
    ]
    assert silent == []


def test_every_public_function_and_method_has_a_signature():
    without = []
    for name, one in PUBLIC.items():
        function = one.__func__ if isinstance(one, (staticmethod, classmethod)) else one
        is_class = isinstance(function, type)
        if not callable(function) or (
            is_class and (name.split(".")[-1] in NOT_MADE or issubclass(function, Exception))
        ):
            continue
        try:
            inspect.signature(function)
        except (TypeError, ValueError) as error:
            without.append(f"{name}: {error}")
    assert without == []


def test_signatures_of_native_methods_list_their_parameters():
    add = inspect.signature(reverie.ReplayBuffer.add)
    assert list(add.parameters)[:3] == ["self", "obs", "action"]
    assert add.parameters["truncated"].default is False
    assert add.parameters["mask"].kind is inspect.Parameter.KEYWORD_ONLY
    buffer = reverie.ReplayBuffer(10)
    bound = inspect.signature(buffer.add)
    assert next(iter(bound.parameters)) == "obs"
    assert list(bound.parameters) == list(add.parameters)[1:]
    assert inspect.signature(buffer.clear).parameters == {}
    close = inspect.signature(reverie._reverie.EnvPoolCore.close)
    assert close.parameters["at_exit"].default is False
    assert inspect.signature(reverie.load_plugin).parameters["path"].annotation is str


def test_help_shows_a_native_method_with_its_arguments():
    text = pydoc.render_doc(reverie.ReplayBuffer, renderer=pydoc.plaintext)
    assert "sample(self, batch_size: int, *, beta" in text
    assert "Draws a batch" in text


def test_overridden_methods_of_a_pool_subclass_are_called():
    class Doubled(reverie.EnvPool):
        steps = resets = 0

        def step(self, actions, batch=0, *, env_ids=None):
            self.steps += 1
            return super().step(actions, batch, env_ids=env_ids)

        def reset(self, seed=None, *, batch=0):
            self.resets += 1
            return super().reset(seed, batch=batch)

    for output in ("numpy", "torch"):
        with Doubled("CartPole-v1", 2, output=output) as pool:
            pool.reset(seed=1).result()
            rewards = pool.step(np.zeros(2, np.int64)).result().reward
            assert np.asarray(rewards).tolist() == [1.0, 1.0]
            assert (pool.steps, pool.resets) == (1, 1)


def test_a_plain_pool_calls_the_native_step_directly():
    with reverie.EnvPool("CartPole-v1", 2) as pool:
        assert pool.step.__func__ is not reverie.EnvPool.step


def test_overridden_methods_of_a_batcher_subclass_are_called():
    class Counting(reverie.Batcher):
        def __init__(self, size):
            super().__init__(size)
            self.seen = []

        def stack(self, nest):
            self.seen.append("stack")
            super().stack(nest)

        def cat(self, nest):
            self.seen.append("cat")
            super().cat(nest)

        def get(self, timeout_s=None):
            self.seen.append("get")
            return super().get(timeout_s)

    batcher = Counting(2)
    batcher.stack(np.float32(1))
    batcher.stack(np.float32(2))
    assert batcher.get().tolist() == [1.0, 2.0]
    batcher.cat(np.ones(2, np.float32))
    assert batcher.get(1.0).tolist() == [1.0, 1.0]
    assert batcher.seen == ["stack", "stack", "get", "cat", "get"]


def test_overridden_methods_of_a_replay_buffer_subclass_are_called():
    class Scaled(reverie.ReplayBuffer):
        def add(self, obs, action, reward, next_obs, terminated, truncated=False, **extra):
            super().add(obs, action, 10 * reward, next_obs, terminated, truncated, **extra)

    buffer = Scaled(10, seed=1)
    buffer.add(np.zeros(2), 0, 0.5, np.ones(2), True)
    assert buffer.sample(1)["reward"].tolist() == [5.0]


@pytest.mark.parametrize("name", sorted(NOT_MADE | {"TrajectoryColumn"}))
def test_classes_that_only_the_library_creates_cannot_be_subclassed(name):
    with pytest.raises(TypeError, match=name):
        type("Mine", (getattr(reverie, name),), {})


def test_batch_types_can_be_used_in_annotations():
    assert reverie.Dataset[reverie.Batch] is not None
    assert reverie.Batch[dict] is not None
