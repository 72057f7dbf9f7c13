"""Groups of peers: in one process, and of processes that are killed, frozen and restarted."""

import asyncio
import collections
import contextlib
import enum
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors
from reverie.groups import Round

DEADLINE_S = 30.0


@pytest.fixture
def broker():
    with reverie.Broker() as broker:
        broker.listen()
        yield broker


@pytest.fixture
def join(broker):
    """Makes members; all of them leave at the end."""
    with contextlib.ExitStack() as stack:

        def made(name, **options):
            rpc = stack.enter_context(reverie.Rpc(name))
            rpc.connect(broker._rpc.addresses[0])
            return stack.enter_context(reverie.Group(rpc, "g", **options))

        yield made


@pytest.fixture
def three(join):
    groups = [join(f"m{i}") for i in range(3)]
    for group in groups:
        group.wait(3)
    return groups


def on_all(groups, begin):
    """The results of a round that each member starts."""
    rounds = [begin(group, i) for i, group in enumerate(groups)]
    return [round_.result(DEADLINE_S) for round_ in rounds]


def test_all_members_see_the_same_list_in_sort_order(join, broker):
    first = join("first", sort_order=2)
    first.wait(1)
    second = join("second", sort_order=1)
    assert first.wait(2) == second.wait(2) == ["second", "first"]
    assert first.epoch == second.epoch > 0
    assert first.update()
    assert not first.update()
    (listed,) = broker.groups()
    assert (listed["name"], listed["members"]) == ("g", ["second", "first"])
    first.set_sort_order(0)
    eventually(lambda: second.members == ["first", "second"])


def test_a_member_that_joins_anew_on_its_rpc_outlives_its_old_group(join, broker):
    other = join("other")
    with reverie.Rpc("returns") as rpc:
        rpc.connect(broker._rpc.addresses[0])
        group = reverie.Group(rpc, "g")
        other.wait(2)
        group.leave()
        eventually(lambda: other.members == ["other"])
        group = reverie.Group(rpc, "g")  # the old one is dropped only now
        gc.collect()
        other.wait(2)
        group.wait(2)
        both = [other, group]
        # Each member calls the other one.
        assert on_all(both, lambda g, i: g.broadcast("first", i, source="other")) == [0, 0]
        assert on_all(both, lambda g, i: g.broadcast("second", i, source="returns")) == [1, 1]
        group.leave()


def test_a_broker_made_anew_on_its_rpc_outlives_the_old_one():
    with reverie.Rpc("broker") as rpc, reverie.Rpc("member") as member:
        broker = reverie.Broker(rpc)
        broker.close()
        broker = reverie.Broker(rpc)  # the old one is dropped only now
        gc.collect()
        member.connect(rpc.listen())
        with reverie.Group(member, "g") as group:
            assert group.wait(1) == ["member"]
        broker.close()


Point = collections.namedtuple("Point", ["x", "y"])


def test_nests_are_reduced_leaf_by_leaf_and_keep_their_structure(three):
    def nest(i):
        return {
            "w": np.full((2, 3), i, np.float32),
            "list": [np.int64(i), 2.5 * i, i],
            "point": Point(np.arange(4)[::2] * i, np.zeros((0, 3))),
            2: (True,),
        }

    for result in on_all(three, lambda g, i: g.all_reduce("nest", nest(i), "max")):
        assert list(result) == ["w", "list", "point", 2]
        assert result["w"].tolist() == [[2.0] * 3] * 2
        assert result["w"].dtype == np.float32
        assert result["list"] == [2, 5.0, 2]
        assert isinstance(result["list"][1], float)
        assert isinstance(result["point"], Point)
        assert result["point"].x.tolist() == [0, 4]
        assert result["point"].y.shape == (0, 3)
        assert result[2] == (True,)


def test_a_nest_that_is_changed_during_its_round_does_not_change_the_result(three):
    given = [
        {"b": i, "c": 10.0 * i, "list": [i, {"x": np.full(2, i)}], "point": Point(i, [i])}
        for i in range(3)
    ]
    rounds = [g.all_reduce("nest", nest) for g, nest in zip(three, given, strict=True)]
    for nest in given:
        del nest["c"]
        nest["a"] = 9.0
        nest["list"][1].clear()
        nest["list"].append(7)
        nest["point"].y.append(8)
    for round_ in rounds:
        result = round_.result(DEADLINE_S)
        assert result["list"][1].pop("x").tolist() == [3, 3]
        assert result == {"b": 3, "c": 30.0, "list": [3, {}], "point": Point(3, [3])}
        assert list(result) == ["b", "c", "list", "point"]


@pytest.mark.parametrize(
    ("op", "expected"), [("sum", 6), ("mean", 2), ("min", 1), ("max", 3), ("product", 6)]
)
def test_all_reduce_supports_each_operation(three, op, expected):
    results = on_all(three, lambda g, i: g.all_reduce("op", np.array([i + 1.0]), op))
    assert [r.tolist() for r in results] == [[expected]] * 3


def test_all_members_get_the_same_bytes(three):
    draws = [np.random.default_rng(i).normal(size=300_000).astype(np.float32) for i in range(3)]
    results = on_all(three, lambda g, i: g.all_reduce("sum", draws[i]))
    again = on_all(three, lambda g, i: g.all_reduce("sum", draws[i]))
    assert len({r.tobytes() for r in (*results, *again)}) == 1
    np.testing.assert_allclose(results[0], sum(draws), rtol=1e-4, atol=1e-4)
    assert all(draw is not result for draw, result in zip(draws, results, strict=True))


def test_torch_tensors_are_returned_as_tensors(three):
    torch = pytest.importorskip("torch")

    def tensors(i):
        return {
            "half": torch.full((3,), i + 1.0, dtype=torch.float16),
            "brain": torch.full((2, 2), i + 1.0, dtype=torch.bfloat16),
            "none": torch.ones((0, 2), dtype=torch.bfloat16),
            "turned": torch.arange(6.0).reshape(2, 3).t().requires_grad_(),
        }

    for result in on_all(three, lambda g, i: g.all_reduce("t", tensors(i))):
        assert result["half"].dtype == torch.float16
        assert result["half"].tolist() == [6.0] * 3
        assert result["brain"].dtype == torch.bfloat16
        assert result["none"].shape == (0, 2)
        assert result["brain"].tolist() == [[6.0] * 2] * 2
        assert torch.equal(result["turned"], 3 * torch.arange(6.0).reshape(2, 3).t())


def test_tensors_of_derived_classes_are_returned_as_tensors(three):
    torch = pytest.importorskip("torch")

    class Image(torch.Tensor):
        pass

    image = torch.ones(2).as_subclass(Image).requires_grad_()
    for result in on_all(three, lambda g, _: g.all_reduce("t", image)):
        assert torch.equal(result, torch.full((2,), 3.0))


def test_tensors_without_dense_values_are_refused(three):
    torch = pytest.importorskip("torch")
    for data, kind in (
        (torch.eye(2).to_sparse(), "torch.sparse_coo"),
        (torch.ones(2, device="meta"), "meta"),
    ):
        with pytest.raises(errors.UnsupportedTypeError, match=kind):
            three[0].all_reduce("x", {"w": data})
    with pytest.raises(errors.UnsupportedTypeError, match=r"torch\.float32"):
        three[0].all_reduce("x", {"w": torch.float32})


def test_a_masked_array_is_refused_rather_than_reduced_with_its_hidden_values(three):
    with pytest.raises(errors.UnsupportedTypeError, match="mask would be lost"):
        three[0].all_reduce("x", {"w": np.ma.masked_array([1.0, 2.0], [False, True])})


class Part(enum.Enum):
    ACTOR = 1
    CRITIC = 2


@pytest.mark.parametrize(
    "keys", [tuple(Part), (1j, 2j), (("a", 1), ("a", "b"))], ids=["enum", "complex", "tuple"]
)
def test_keys_of_a_nest_that_cannot_be_sorted_are_refused(three, keys):
    with pytest.raises(errors.UnsupportedTypeError, match="cannot be sorted"):
        three[0].all_reduce("x", dict.fromkeys(keys, 1.0))


def test_a_nest_that_is_too_deep_or_contains_itself_is_refused(three):
    itself: list = [1.0]
    itself.append(itself)
    deep = 1.0
    for _ in range(101):
        deep = [deep]
    for nest in (itself, deep):
        with pytest.raises(errors.InvalidArgumentError, match="more than 100 deep"):
            three[0].all_reduce("x", nest)
    for result in on_all(three, lambda g, _: g.all_reduce("x", deep[0])):
        while isinstance(result, list):
            (result,) = result
        assert result == 3.0


def test_functions_combine_any_values_in_the_order_of_members(three):
    order = three[0].members

    def add(a, b):
        return {"names": a["names"] + b["names"]}

    results = on_all(three, lambda g, _: g.all_reduce("fold", {"names": [g.rpc.name]}, add))
    assert results == [{"names": order}] * 3


def test_a_function_that_raises_fails_only_its_own_member(three):
    def bad(_a, _b):
        raise ZeroDivisionError("mine")

    ops = [lambda a, b: a + b, bad, lambda a, b: a + b]
    rounds = [g.all_reduce("fold", i, ops[i]) for i, g in enumerate(three)]
    assert rounds[0].result(DEADLINE_S) == rounds[2].result(DEADLINE_S) == 3
    with pytest.raises(ZeroDivisionError, match="mine"):
        rounds[1].result(DEADLINE_S)


def test_a_function_that_raised_is_called_with_the_same_values_again(three):
    fails = [True]

    def added(a, b):
        a += b
        if fails.pop() if fails else False:
            raise InterruptedError
        return a

    ops = [added, np.add, np.add]
    rounds = [g.all_reduce("fold", np.full(100_000, i + 1), ops[i]) for i, g in enumerate(three)]
    with pytest.raises(InterruptedError):
        rounds[0].result(DEADLINE_S)
    for round_ in rounds:
        assert (round_.result(DEADLINE_S) == 6).all()


@pytest.mark.parametrize("how", ["all_reduce", "all_gather", "broadcast"])
def test_a_member_may_write_to_its_result_while_others_receive_it(broker, how):
    with contextlib.ExitStack() as stack:
        groups = []
        for i in range(2):
            rpc = stack.enter_context(
                reverie.Rpc(f"m{i}", transports=["tcp"], dead_after_s=DEADLINE_S)
            )
            rpc.connect(broker._rpc.addresses[0])
            groups.append(stack.enter_context(reverie.Group(rpc, "g")))
        for group in groups:
            group.wait(2, DEADLINE_S)

        def begin(group, i):
            mine = np.full(3_000_000, i + 1.0)
            if how == "all_reduce":
                return group.all_reduce("r", mine, lambda a, b: a.__iadd__(b))
            if how == "all_gather":
                return group.all_gather("r", mine)
            return group.broadcast("r", mine, source="m0")

        expected = {"all_reduce": [3.0], "all_gather": [1.0, 2.0], "broadcast": [1.0]}[how]
        wrong = []

        def take(round_):
            try:
                result = round_.result(DEADLINE_S)
            except errors.ReverieError as error:
                wrong.append(error)
                return
            arrays = [result["m0"], result["m1"]] if how == "all_gather" else [result]
            for array, value in zip(arrays, expected, strict=True):
                if not (array == value).all():
                    wrong.append((array.min(), array.max()))
                array[:] = -1.0

        rounds = [begin(group, i) for i, group in enumerate(groups)]
        threads = [threading.Thread(target=take, args=(round_,)) for round_ in rounds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_values_are_gathered_and_broadcast(three):
    gathered = on_all(
        three, lambda g, i: g.all_gather("values", {"i": i, "a": np.arange(i), "b": np.ones(3)})
    )
    for result in gathered:
        assert list(result) == three[0].members
        assert {name: value["i"] for name, value in result.items()} == {"m0": 0, "m1": 1, "m2": 2}
        assert result["m2"]["a"].tolist() == [0, 1]
        assert result["m1"]["b"].tolist() == [1.0] * 3
    big = np.random.default_rng(0).normal(size=200_000)
    for result in on_all(
        three, lambda g, i: g.broadcast("b", big if i == 1 else None, source="m1")
    ):
        assert result.tobytes() == big.tobytes()
    assert on_all(three, lambda g, _: g.barrier()) == [None] * 3


@pytest.fixture
def four():
    """Members that stay, even if this machine takes long to send many bytes."""
    with contextlib.ExitStack() as stack:

        def peer(name):
            return stack.enter_context(reverie.Rpc(name, dead_after_s=DEADLINE_S))

        address = stack.enter_context(reverie.Broker(peer("broker"))).listen()
        groups = []
        for i in range(4):
            rpc = peer(f"m{i}")
            rpc.connect(address)
            groups.append(stack.enter_context(reverie.Group(rpc, "g")))
        for group in groups:
            group.wait(4)
        yield groups


@pytest.mark.parametrize("sizes", [(0, 0, 0, 65), (17, 17, 17, 17)])
def test_values_that_are_too_large_for_a_message_end_the_round_on_all_members(four, sizes):
    rounds = [g.all_gather("x", bytes(size << 20)) for g, size in zip(four, sizes, strict=True)]
    for round_ in rounds:
        with pytest.raises(errors.InvalidArgumentError, match=r"67108864.*give large values"):
            round_.result(DEADLINE_S)
    # Arrays are not counted.
    gathered = on_all(four, lambda g, i: g.all_gather("x", np.zeros(sizes[i] << 17)))
    assert [gathered[0][f"m{i}"].nbytes >> 20 for i in range(4)] == list(sizes)


def test_a_value_that_is_too_large_for_a_message_is_not_broadcast(four):
    big = bytes(65 << 20)
    rounds = [g.broadcast("x", big if i == 1 else None, source="m1") for i, g in enumerate(four)]
    for round_ in rounds:
        with pytest.raises(errors.InvalidArgumentError, match=r"67108864.*give large values"):
            round_.result(DEADLINE_S)


def test_rounds_can_be_awaited(three):
    async def both():
        rounds = [g.all_reduce("sum", 1.5) for g in three]
        return await asyncio.gather(*(asyncio.ensure_future(awaited(r)) for r in rounds))

    async def awaited(round_):
        return await round_

    assert asyncio.run(both()) == [4.5] * 3


def test_a_round_waits_for_all_members_and_names_the_missing_ones(three):
    rounds = [g.all_reduce("sum", 1) for g in three[:2]]
    assert not rounds[0].wait(0.05)
    with pytest.raises(errors.DeadlineExceededError, match="continues"):
        rounds[0].result(0.0)
    eventually(lambda: "'m2', which has not begun it" in three[0].why_waiting())
    assert "'m1'" not in three[0].why_waiting()
    with pytest.raises(errors.AlreadyExistsError, match="under way"):
        three[0].all_reduce("sum", 1)
    rounds.append(three[2].all_reduce("sum", 1))
    assert [r.result(DEADLINE_S) for r in rounds] == [3] * 3
    assert three[0].why_waiting() == ""


def test_arrays_of_different_shapes_are_refused_by_name_on_all_members(three):
    rounds = [
        g.all_reduce("sum", {"layer": {"w": np.zeros(3 + (i == 1))}}) for i, g in enumerate(three)
    ]
    for round_ in rounds:
        with pytest.raises(errors.InvalidArgumentError, match="layer/w float64"):
            round_.result(DEADLINE_S)


def test_invalid_arguments_of_rounds_are_refused(three, broker):
    group = three[0]
    for data in (object(), "text", np.array(["a"])):
        with pytest.raises((errors.UnsupportedTypeError, errors.InvalidArgumentError)):
            group.all_reduce("x", data)
    with pytest.raises(errors.InvalidArgumentError, match="'mean', which int64"):
        group.all_reduce("x", {"n": np.arange(3)}, "mean")
    with pytest.raises(errors.InvalidArgumentError, match="op"):
        group.all_reduce("x", 1.0, "median")
    with pytest.raises(errors.NotFoundError, match="absent"):
        group.broadcast("x", 1, source="absent")
    with pytest.raises(errors.UnsupportedTypeError, match="rounds"):
        Round()
    with pytest.raises(errors.AlreadyExistsError, match="leave"):
        reverie.Group(group.rpc, "g")
    with pytest.raises(errors.AlreadyExistsError):
        reverie.Broker(broker._rpc)
    with pytest.raises(errors.InvalidArgumentError, match="broker"):
        reverie.Group(broker._rpc, "g")
    group.leave()
    group.leave()
    with pytest.raises(errors.ReverieError):
        group.all_reduce("x", 1.0)
    with pytest.raises(errors.FailedPreconditionError, match="left"):
        group.wait(1)


def test_a_member_that_waits_for_others_joins_again_and_does_not_stall(join):
    group = join("early", stall_timeout_s=0.3)
    assert group.wait() == ["early"]
    eventually(lambda: group.members == [])
    timer = threading.Timer(1.0, join, ("late",))
    timer.start()
    assert group.wait(2, timeout_s=DEADLINE_S) == ["early", "late"]
    timer.join()


def test_a_round_of_a_member_that_stalls_or_leaves_says_which(join):
    group = join("m")
    join("other")
    group.wait(2)
    round_ = group.barrier()
    group.set_stall_timeout(0.1)
    with pytest.raises(errors.GroupChangedError, match="did not advance") as raised:
        round_.result(DEADLINE_S)
    assert raised.value.lost == ()
    group.set_stall_timeout(None)
    group.wait(2)
    round_ = group.barrier()
    group.leave()
    with pytest.raises(errors.CancelledError, match="this member has left"):
        round_.result(DEADLINE_S)
    with pytest.raises(errors.FailedPreconditionError, match="this member has left"):
        group.barrier()


def test_without_a_broker_a_wait_fails_naming_the_broker():
    with reverie.Rpc() as rpc, reverie.Group(rpc, "g") as group:
        with pytest.raises(errors.DeadlineExceededError, match="broker"):
            group.wait(1, timeout_s=0.1)
        with pytest.raises(errors.FailedPreconditionError, match="no members"):
            group.all_reduce("x", 1.0)
        assert group.members == []
        assert "broker" in group.why_waiting()


def test_members_continue_without_the_broker_and_rejoin_a_new_one():
    with reverie.Broker() as first:
        address = first.listen()
        rpcs = [reverie.Rpc(f"m{i}") for i in range(2)]
        for rpc in rpcs:
            rpc.connect(address)
        groups = [reverie.Group(rpc, "g") for rpc in rpcs]
        for group in groups:
            group.wait(2)
        epoch = groups[0].epoch
        assert on_all(groups, lambda g, i: g.all_reduce("sum", i)) == [1, 1]
    assert on_all(groups, lambda g, i: g.all_reduce("sum", i)) == [1, 1]
    with reverie.Broker() as second:
        second.listen(address)
        eventually(lambda: second.groups() and not second.groups()[0]["missing"])
        assert second.groups()[0]["epoch"] == epoch
        assert on_all(groups, lambda g, i: g.all_reduce("sum", i)) == [1, 1]
        assert groups[1].epoch == epoch
        for group, rpc in zip(groups, rpcs, strict=True):
            group.leave()
            rpc.close()


MEMBER = """
import sys
import numpy as np
import reverie

rpc = reverie.Rpc(sys.argv[2])
rpc.connect(sys.argv[1])
group = reverie.Group(rpc, "g")
group.wait(int(sys.argv[3]))
print("in", flush=True)
while True:
    try:
        members = group.wait(1)
        round_ = group.all_reduce("sum", np.ones(40_000, np.float32))
        total = round_.result()
    except reverie.errors.GroupChangedError:
        continue
    assert (total == len(round_.members)).all(), total
"""


@pytest.fixture
def start(broker):
    """Starts processes of members, which reduce for ever; they are killed at the end."""
    processes = []

    def started(name, count):
        arguments = [broker._rpc.addresses[0], name, str(count)]
        processes.append(
            subprocess.Popen([sys.executable, "-c", MEMBER, *arguments], stdout=subprocess.PIPE)
        )
        return processes[-1]

    yield started
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def sums_of(group, count):
    """Makes rounds until one has ``count`` members; returns the seconds that took."""
    begin = time.monotonic()
    while time.monotonic() - begin < DEADLINE_S:
        try:
            round_ = group.all_reduce("sum", np.ones(40_000, np.float32))
            total = round_.result(DEADLINE_S)
        except (errors.GroupChangedError, errors.FailedPreconditionError):
            group.wait(1)
            continue
        assert (total == len(round_.members)).all()
        if len(round_.members) == count:
            return time.monotonic() - begin
    raise AssertionError(f"no round of {count} members: {group.members}, {group.why_waiting()}")


def test_a_killed_or_frozen_process_is_dropped_and_can_rejoin(join, start):
    group = join("here")
    others = [start(f"p{i}", 3) for i in range(2)]
    sums_of(group, 3)
    others[0].kill()
    assert sums_of(group, 2) < 5.0  # 2 s on a quiet machine
    start("p0", 3)
    sums_of(group, 3)
    os.kill(others[1].pid, signal.SIGSTOP)
    assert sums_of(group, 2) < 5.0
    os.kill(others[1].pid, signal.SIGCONT)
    sums_of(group, 3)
    assert others[1].poll() is None


@pytest.mark.parametrize("changes", [6])
def test_sums_are_correct_after_random_kills_and_joins(join, start, changes):
    draws = np.random.default_rng(5)
    group = join("here")
    alive = {f"p{i}": start(f"p{i}", 1) for i in range(3)}
    sums_of(group, 4)
    for change in range(changes):
        if len(alive) > 1 and (draws.random() < 0.5 or len(alive) == 3):
            name = sorted(alive)[draws.integers(len(alive))]
            alive.pop(name).kill()
        else:
            name = f"q{change}"
            alive[name] = start(name, 1)
        sums_of(group, len(alive) + 1)


def test_ctrl_c_ends_a_wait(join):
    group = join("a")
    other = join("b")
    group.wait(2)
    other.wait(2)
    round_ = group.all_reduce("sum", 1)
    main = threading.main_thread().ident
    timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        round_.result()
    timer = threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        group.wait(3)
    round_.cancel()
    with pytest.raises(errors.CancelledError):
        round_.result()


def test_closing_the_rpc_of_a_member_ends_its_waits(three):
    round_ = three[0].barrier()
    timer = threading.Timer(0.2, three[0]._rpc.close)
    timer.start()
    with pytest.raises(errors.CancelledError, match="left group"):
        round_.result(DEADLINE_S)
    timer.join()
    with pytest.raises(errors.ReverieError):
        three[0].wait(4, timeout_s=DEADLINE_S)
    assert three[0].members == []
    eventually(lambda: three[1].members == ["m1", "m2"])


def test_calls_in_a_forked_child_are_refused(three):
    child = os.fork()
    if child == 0:
        try:
            three[0].all_reduce("x", 1.0)
        except errors.FailedPreconditionError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert on_all(three, lambda g, i: g.all_reduce("x", i)) == [3] * 3


def test_the_broker_command_serves_until_sigterm():
    process = subprocess.Popen(
        [sys.executable, "-m", "reverie", "broker", "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        line = process.stdout.readline()
        assert line.startswith("Broker listening at 127.0.0.1:")
        with reverie.Rpc("m") as rpc:
            rpc.connect(line.split()[-1])
            with reverie.Group(rpc, "g") as group:
                assert group.wait(1) == ["m"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    bad = [sys.executable, "-m", "reverie", "broker", "--listen", "nowhere"]
    ended = subprocess.run(bad, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "nowhere" in ended.stderr
