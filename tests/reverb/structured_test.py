"""The structured writers of both libraries make the same items from the same steps."""

import random

import numpy as np
import pytest
import reverb

import reverie

_STEP = {"a": None, "b": (None, None)}
_LEAVES = 3


def leaf(step, i):
    return step["a"] if i == 0 else step["b"][i - 1]


def random_config(rng):
    """A random configuration that both libraries support.

    Slices have no step of 2 or more: dm-reverb also stores the rows in between.
    """
    columns = {}
    for name in "xyz"[: rng.randint(1, 3)]:
        start = -rng.randint(1, 5)
        kind = rng.randint(0, 2)
        if kind == 0:
            key = start
        elif kind == 1:
            key = slice(start, None)
        else:
            key = slice(start, rng.randint(start + 1, 0))
        columns[name] = (rng.randrange(_LEAVES), key)
    conditions = []
    for _ in range(rng.randint(0, 2)):
        left = rng.choice(["step_index", "steps_since_applied", "data", "is_end_episode"])
        test = rng.choice(["==", "!=", "<", "<=", ">", ">=", "%==", "%!="])
        conditions.append((left, rng.randrange(_LEAVES), test, rng.randint(0, 3)))
    return columns, conditions, rng.choice([None, 2.5, "td"])


def made(module, config):
    """The configuration, made with one of the libraries."""
    columns, conditions, priority = config
    step = module.create_reference_step(_STEP)
    builders = []
    for left, i, test, value in conditions:
        if left == "is_end_episode":
            builders.append(module.Condition.is_end_episode())
            continue
        side = (
            leaf(module.Condition.data(_STEP), i)
            if left == "data"
            else getattr(module.Condition, left)()
        )
        builders.append(
            {
                "==": lambda s, v: s == v,
                "!=": lambda s, v: s != v,
                "<": lambda s, v: s < v,
                "<=": lambda s, v: s <= v,
                ">": lambda s, v: s > v,
                ">=": lambda s, v: s >= v,
                "%==": lambda s, v: s % 3 == v,
                "%!=": lambda s, v: s % 3 != v,
            }[test](side, value)
        )
    if priority == "td":
        function = module.td_error(0.75, _STEP, lambda s: s["b"][1])
    elif priority is not None:
        function = module.constant_priority_fn(priority)
    else:
        function = None
    return module.create_config(
        pattern={name: leaf(step, i)[key] for name, (i, key) in columns.items()},
        table="t",
        conditions=builders,
        priority=function,
    )


def script(rng):
    """Random steps, complete or in parts, and ends of episodes."""
    value = 0
    calls = []
    for _ in range(25):
        parts = [[None] * _LEAVES, [None] * _LEAVES]
        for i in range(_LEAVES):
            if rng.random() < 0.85:
                parts[rng.randrange(2)][i] = value % 7
                value += 1
        if rng.random() < 0.3:
            calls.append(("append", parts[0], True))
        else:
            parts[1] = [a if b is None else b for a, b in zip(*parts, strict=True)]
        calls.append(("append", parts[1], False))
        if rng.random() < 0.15:
            calls.append(("end_episode", rng.random() < 0.5))
    calls.append(("end_episode", True))
    return calls


def play(writer, calls):
    for call in calls:
        if call[0] == "append":
            a, *b = [None if v is None else np.int64(v) for v in call[1]]
            writer.append({"a": a, "b": tuple(b)}, partial_step=call[2])
        else:
            writer.end_episode(clear_buffers=call[1])
    writer.flush()


def drain(client):
    items = []
    for _ in range(client.server_info()["t"].current_size):
        sample = next(client.sample("t", 1, emit_timesteps=False))
        items.append(([np.asarray(c).tolist() for c in sample.data], sample.info.priority))
        client.mutate_priorities("t", deletes=[sample.info.key])
    return items


def fifo(module):
    return module.Table(
        "t",
        sampler=module.selectors.Fifo(),
        remover=module.selectors.Fifo(),
        max_size=10_000,
        rate_limiter=module.rate_limiters.MinSize(1),
    )


@pytest.mark.parametrize("seed", range(100))
def test_both_libraries_make_the_same_items(dm_serve, seed):
    rng = random.Random(seed)
    configs = [random_config(rng) for _ in range(rng.randint(1, 3))]
    calls = script(rng)
    theirs = reverb.Client(f"localhost:{dm_serve(fifo(reverb)).port}")
    play(theirs.structured_writer([made(reverb.structured_writer, c) for c in configs]), calls)
    want = drain(theirs)
    with reverie.Store([fifo(reverie)]) as store:
        ours = store.client()
        play(ours.structured_writer([made(reverie.structured, c) for c in configs]), calls)
        assert drain(ours) == want


def test_reveries_structured_writer_works_with_dm_reverbs_server(dm_serve):
    rng = random.Random(7)
    configs = [random_config(rng) for _ in range(3)]
    calls = script(rng)
    address = f"localhost:{dm_serve(fifo(reverb)).port}"
    theirs = reverb.Client(address)
    play(theirs.structured_writer([made(reverb.structured_writer, c) for c in configs]), calls)
    want = drain(theirs)
    assert want
    ours = reverie.Client(address)
    play(ours.structured_writer([made(reverie.structured, c) for c in configs]), calls)
    assert drain(theirs) == want
