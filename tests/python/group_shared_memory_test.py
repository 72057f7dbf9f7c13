"""All-reduces through shared memory, between processes on this host."""

import contextlib
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors

LIMIT_S = 60.0

# Makes rounds with several names until its standard input ends.
MEMBER = """
import hashlib, sys
import numpy as np
import reverie

address, name, seed = sys.argv[1:]
rpc = reverie.Rpc(name)
rpc.connect(address)
group = reverie.Group(rpc, "g", shared_memory=name != "sends")
rng = np.random.default_rng(int(seed))
nest = {
    "small": rng.standard_normal(5),
    "half": rng.standard_normal((70, 31)).astype(np.float16),
    "large": rng.standard_normal(300_000).astype(np.float32),
    "steps": float(seed),
}
group.wait(3)
first = group.all_reduce("nest", nest, "mean")
second = group.all_reduce("other", nest["large"], "max")
for got in (first.result(), second.result()):
    leaves = got.values() if isinstance(got, dict) else [got]
    print(hashlib.md5(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest())
print(group.shares_memory, flush=True)
sys.stdin.read()
"""


def digests(names):
    """What members with these names print, each in a process."""
    with reverie.Broker() as broker:
        address = broker.listen()
        members = [
            subprocess.Popen(
                [sys.executable, "-c", MEMBER, address, name, str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed, name in enumerate(names)
        ]
        try:
            return [[m.stdout.readline().strip() for _ in range(3)] for m in members]
        finally:
            for member in members:
                member.kill()
                member.communicate()


def test_shared_memory_gives_the_same_bytes_as_sending():
    shared = digests(["a", "b", "c"])
    sent = digests(["a", "b", "sends"])
    assert [lines[2] for lines in shared] == ["True"] * 3
    assert [lines[2] for lines in sent] == ["False"] * 3
    assert len({lines[1] for lines in shared + sent}) == 1


def _pair(broker, **options):
    address = broker.listen()
    rpcs = [reverie.Rpc(f"m{i}") for i in range(2)]
    for rpc in rpcs:
        rpc.connect(address)
    groups = [reverie.Group(rpc, "g", **options) for rpc in rpcs]
    for group in groups:
        group.wait(2)
    return rpcs, groups


def _share(groups):
    """A round, in which the members find out that they share memory."""
    rounds = [group.all_reduce("x", np.ones(5)) for group in groups]
    assert rounds[0].result(LIMIT_S)[0] == 2.0
    assert groups[0].shares_memory is True


def _memories():
    return sum("reverie-group" in line for line in Path("/proc/self/maps").read_text().splitlines())


def _share_and_leave():
    with reverie.Broker() as broker:
        rpcs, groups = _pair(broker)
        rounds = [group.all_reduce("x", np.ones(100_000)) for group in groups]
        for one in rounds:
            assert one.result(LIMIT_S)[7] == 2.0
        assert groups[0].shares_memory is True
        for group in groups:
            group.leave()
        for rpc in rpcs:
            rpc.close()


def _descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_leaving_a_group_leaves_no_memory_or_descriptors():
    _share_and_leave()  # opens what a process keeps
    before = _descriptors(), os.listdir("/dev/shm")
    for _ in range(3):
        _share_and_leave()
        eventually(lambda: _memories() == 0, LIMIT_S)
    eventually(lambda: _descriptors() <= before[0], LIMIT_S)
    assert os.listdir("/dev/shm") == before[1]


def test_members_of_two_hosts_share_memory_within_each():
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(reverie.Broker()).listen()
        groups = []
        for i, host in enumerate(["x", "y", "x", "x", "y"]):
            rpc = stack.enter_context(reverie.Rpc(f"m{i}"))
            rpc.connect(address)
            groups.append(stack.enter_context(reverie.Group(rpc, "g", sort_order=i, host=host)))
        for group in groups:
            group.wait(5)
            assert group.host_count is None
        for size in (3, 200_000):
            nests = [{"a": np.full(size, 1.0 + i), "b": np.full(2, i, "i4")} for i in range(5)]
            rounds = [g.all_reduce("r", nest) for g, nest in zip(groups, nests, strict=True)]
            sums = [one.result(LIMIT_S) for one in rounds]
            assert all(got["a"].tolist() == [15.0] * size for got in sums)
            assert all(got["b"].tolist() == [10, 10] for got in sums)
        assert {group.host_count for group in groups} == {2}
        assert all(group.shares_memory for group in groups)
        with pytest.raises(errors.InvalidArgumentError, match="host"):
            reverie.Group(groups[0].rpc, "other", host="h" * 513)


def test_rounds_complete_without_a_waiting_thread():
    with reverie.Broker() as broker:
        rpcs, groups = _pair(broker)
        for size in (10, 300_000):
            rounds = [group.all_reduce("x", np.ones(size)) for group in groups]
            eventually(lambda ends=rounds: all(one.done() for one in ends), LIMIT_S)
            assert rounds[1].result()[-1] == 2.0
        for rpc in rpcs:
            rpc.close()


def test_members_may_begin_rounds_in_any_order_from_many_threads():
    with reverie.Broker() as broker:
        rpcs, groups = _pair(broker)
        names = [f"round {i}" for i in range(40)]
        wrong = []

        def bring(group, order):
            begun = [(i, group.all_reduce(names[i], np.full(20_000, i))) for i in order]
            for i, one in begun:
                if (one.result(LIMIT_S) != 2 * i).any():
                    wrong.append(i)

        threads = [
            threading.Thread(target=bring, args=(group, list(range(40))[half::2][::sign]))
            for group, sign in zip(groups, (1, -1), strict=True)
            for half in (0, 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        assert not wrong
        assert groups[0].shares_memory is True
        for rpc in rpcs:
            rpc.close()


def test_another_shape_or_another_kind_of_round_is_refused_by_name():
    with reverie.Broker() as broker:
        rpcs, groups = _pair(broker)
        _share(groups)
        rounds = [g.all_reduce("y", {"w": np.ones(5 + i)}) for i, g in enumerate(groups)]
        for one in rounds:
            with pytest.raises(reverie.errors.InvalidArgumentError, match="w float64"):
                one.result(LIMIT_S)
        rounds = [groups[0].all_reduce("z", np.ones(5)), groups[1].all_gather("z", 1)]
        for one in rounds:
            with pytest.raises(reverie.errors.InvalidArgumentError, match="values"):
                one.result(LIMIT_S)
        rounds = [groups[0].all_gather("v", 1), groups[1].all_reduce("v", np.ones(5))]
        for one in rounds:
            with pytest.raises(reverie.errors.InvalidArgumentError, match="values"):
                one.result(LIMIT_S)
        for rpc in rpcs:
            rpc.close()


def test_a_round_that_is_cancelled_or_late_ends_on_all_members():
    with reverie.Broker() as broker:
        rpcs, groups = _pair(broker)
        _share(groups)
        for turn in range(100):  # a quick member may have the result before the round is cancelled
            name = f"late {turn}"
            alone = groups[0].all_reduce(name, np.ones(5), timeout_s=0.05)
            with pytest.raises(reverie.errors.DeadlineExceededError):
                alone.result(LIMIT_S)
            error = groups[1].all_reduce(name, np.ones(5)).exception(LIMIT_S)
            if error is not None:
                break
        assert isinstance(error, reverie.errors.DeadlineExceededError)
        alone = groups[0].all_reduce("gone", np.ones(5))
        alone.cancel()
        for one in (alone, groups[1].all_reduce("gone", np.ones(5))):
            with pytest.raises(reverie.errors.CancelledError):
                one.result(LIMIT_S)
        rounds = [g.all_reduce("gone", np.ones(5)) for g in groups]
        assert rounds[0].result(LIMIT_S)[0] == 2.0
        for rpc in rpcs:
            rpc.close()
