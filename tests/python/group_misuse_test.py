"""A member's mistakes raise errors in that member and harm no other; programs that hang."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie import errors

DEADLINE_S = 30.0

_DEBUGGED = """
import sys
import numpy as np
import reverie

rpc = reverie.Rpc("debugged")
rpc.connect(sys.argv[1])
group = reverie.Group(rpc, "g")
group.wait(2)
print("in", flush=True)
breakpoint()
print("sum", group.all_reduce("sum", np.ones(1000)).result()[0], flush=True)
group.leave()
"""


@pytest.fixture
def member():
    """Makes members of the group g, all with the same broker."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(reverie.Broker())
        address = broker.listen()

        def made(name, **options):
            rpc = stack.enter_context(reverie.Rpc(name))
            rpc.connect(address)
            return stack.enter_context(reverie.Group(rpc, "g", **options))

        made.address = address
        yield made


@pytest.mark.parametrize("stands_s", [4.0, pytest.param(60.0, marks=pytest.mark.full)])
def test_a_member_paused_in_a_debugger_stays_in_the_group_and_is_named(member, stands_s):
    group = member("here")
    process = subprocess.Popen(
        [sys.executable, "-c", _DEBUGGED, member.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONBREAKPOINT": "pdb.set_trace"},
    )
    try:
        assert process.stdout.readline() == "in\n"
        group.wait(2)
        epoch = group.epoch
        round_ = group.all_reduce("sum", np.ones(1000))
        begin = time.monotonic()
        eventually(lambda: "'debugged', which has not begun it" in group.why_waiting())
        assert not round_.wait(stands_s - (time.monotonic() - begin))
        assert "'debugged'" in group.why_waiting()
        assert group.epoch == epoch
        process.stdin.write("continue\n")
        process.stdin.flush()
        assert round_.result(DEADLINE_S)[0] == 2.0
        assert "sum 2.0" in process.communicate(timeout=DEADLINE_S)[0]
    finally:
        process.kill()
        process.communicate()


def test_groups_of_one_name_under_two_brokers_do_not_mix():
    with contextlib.ExitStack() as stack:
        addresses = []
        for name in ("b1", "b2"):
            rpc = stack.enter_context(reverie.Rpc(name))
            addresses.append(stack.enter_context(reverie.Broker(rpc)).listen())
        groups = {}
        for name, broker in (("a", "b1"), ("b", "b1"), ("c", "b2")):
            rpc = stack.enter_context(reverie.Rpc(name))
            for address in addresses:  # every peer connects to both brokers
                rpc.connect(address)
            groups[name] = stack.enter_context(reverie.Group(rpc, "g", broker=broker))
            groups[name].wait(1)  # members are in the order in which they join
        assert groups["a"].wait(2) == groups["b"].wait(2) == ["a", "b"]
        assert groups["c"].wait(1) == ["c"]
        # A peer can only be a member of one of them.
        with pytest.raises(errors.AlreadyExistsError, match="member of group 'g'"):
            reverie.Group(groups["c"].rpc, "g", broker="b1")
        alone = groups["c"].all_reduce("sum", 5).result(DEADLINE_S)
        both = [groups[name].all_reduce("sum", 1) for name in ("a", "b")]
        assert alone == 5
        assert [one.result(DEADLINE_S) for one in both] == [2, 2]
        groups["c"].leave()
        groups["c"] = stack.enter_context(reverie.Group(groups["c"].rpc, "g", broker="b1"))
        assert groups["c"].wait(3) == ["a", "b", "c"]


def test_a_round_with_different_shapes_fails_on_all_members(member):
    groups = [member(name) for name in ("a", "b")]
    for group in groups:
        group.wait(2)
    for size in (3, 5):  # two consecutive rounds of one epoch
        rounds = [group.all_reduce("sum", np.ones(size)) for group in groups]
        assert [len(one.result(DEADLINE_S)) for one in rounds] == [size] * 2
    rounds = [groups[0].all_reduce("sum", np.ones(3)), groups[1].all_reduce("sum", np.ones(4))]
    for one in rounds:
        with pytest.raises(errors.InvalidArgumentError, match="float64"):
            one.result(DEADLINE_S)
    rounds = [group.all_reduce("sum", np.ones(3)) for group in groups]
    assert [one.result(DEADLINE_S)[0] for one in rounds] == [2.0] * 2


def test_a_closed_peer_cannot_join_and_a_closed_group_cannot_reduce(member):
    group, other = member("a"), member("b")
    group.wait(2)
    group.leave()
    with pytest.raises(errors.ReverieError):
        group.all_reduce("sum", 1)
    with reverie.Rpc("gone") as rpc:
        rpc.connect(member.address)
    with pytest.raises((errors.FailedPreconditionError, errors.CancelledError)):
        reverie.Group(rpc, "g")
    eventually(lambda: other.members == ["b"])
    assert other.all_reduce("sum", 7).result(DEADLINE_S) == 7


def _train(accumulators, gradients, steps):
    """Runs both loops until each has taken ``steps`` steps; returns the sums that each got."""
    taken = [[] for _ in accumulators]

    def turn():
        for i, it in enumerate(accumulators):
            it.update()
            if it.wants_state():
                it.set_state(None)
            if it.has_new_state():
                it.state()
            if it.has_gradients():
                taken[i].append(it.gradients()[0].copy())
                for parameter, gradient in zip(it.parameters(), it.gradients(), strict=True):
                    parameter -= gradient
                it.zero_gradients()
            elif it.wants_gradients() and len(taken[i]) < steps:
                gradient = gradients(i)
                if gradient is not None:
                    it.reduce_gradients(1, [gradient])
        return all(len(one) >= steps for one in taken)

    eventually(turn, 120.0)
    return taken


@pytest.fixture
def pair(member):
    with contextlib.ExitStack() as stack:

        def made(**options):
            groups = [member(name) for name in ("a", "b")]
            for group in groups:
                group.wait(2)
            return [
                stack.enter_context(
                    reverie.Accumulator("model", [np.zeros(1000, np.float32)], (), group, **options)
                )
                for group in groups
            ]

        yield made


def test_nan_gradients_are_summed_by_default(pair):
    it, other = pair()
    bad = np.full(1000, np.nan, np.float32)
    given = []

    def gradients(i):  # the other one waits, since either could complete a round alone
        if i == 0:
            given.append(bad)
        return (bad if i == 0 else np.ones(1000, np.float32)) if given else None

    sums = _train([it, other], gradients, 3)
    assert np.isnan(np.stack(sums[0])).any()
    it.close()
    other.close()


def test_infinite_gradients_are_refused_if_finite_is_set(pair):
    it, other = pair(finite=True)
    bad = np.full(1000, np.inf, np.float32)
    refused = []

    def gradients(i):
        if i == 1:
            return np.ones(1000, np.float32) if refused else None
        try:
            it.reduce_gradients(1, [bad])
        except errors.InvalidArgumentError as error:
            refused.append(str(error))
        return None

    sums = _train([it, other], gradients, 3)
    assert "gradients[0] holds values that are not finite, on 'a'" in refused[0]
    assert all(np.isfinite(one).all() for both in sums for one in both)


def test_a_decreasing_model_version_is_refused(pair):
    it, other = pair()
    _train([it, other], lambda _: np.ones(1000, np.float32), 2)
    with pytest.raises(errors.InvalidArgumentError, match="versions must increase"):
        it.set_model_version(0)
    _train([it, other], lambda _: np.ones(1000, np.float32), 1)


@pytest.fixture
def alone(member):
    """The only member, with a model of two parameters."""
    parameters = [np.zeros((3, 2), np.float32), np.zeros(4, np.float32)]
    with reverie.Accumulator("model", parameters, (), member("a")) as it:
        it.set_virtual_batch_size(2)
        yield it


def _gradients(value):
    return [np.full((3, 2), value, np.float32), np.full(4, value, np.float32)]


def _until_wanted(it):
    eventually(lambda: (it.update(), it.wants_gradients())[1])


def _check_that_a_round_sums(it, *values):
    """The next round has what is given here alone: ``values``, each of one sample."""
    for value in values:
        _until_wanted(it)
        it.reduce_gradients(1, _gradients(value))
    eventually(lambda: (it.update(), it.has_gradients())[1])
    mean = sum(values) / len(values)
    assert [one.tolist() for one in it.gradients()] == [one.tolist() for one in _gradients(mean)]
    counts = {"num_gradients": len(values), "num_skipped": 0, "batch_size": len(values)}
    assert it.get_gradient_stats() == counts


def test_unwanted_gradients_are_refused_and_not_summed(alone):
    def check_that_more_are_refused(match="ask wants_gradients"):
        with pytest.raises(errors.FailedPreconditionError, match=match):
            alone.reduce_gradients(8, _gradients(100.0))

    check_that_more_are_refused()  # there is no leader yet
    _until_wanted(alone)
    alone.skip_gradients()
    check_that_more_are_refused()
    _until_wanted(alone)
    alone.reduce_gradients(1, _gradients(1.0))
    check_that_more_are_refused()  # twice, without an update() between
    _until_wanted(alone)
    alone.reduce_gradients(1, _gradients(3.0))
    eventually(lambda: (alone.update(), alone.has_gradients())[1])
    check_that_more_are_refused()  # a step is to be taken
    assert alone.gradients()[1].tolist() == [2.0] * 4
    assert alone.get_gradient_stats()["batch_size"] == 2
    alone.zero_gradients()
    _check_that_a_round_sums(alone, 1.0, 5.0)
    alone.close()
    check_that_more_are_refused(match="closed")


def test_gradients_with_a_batch_size_out_of_range_are_not_counted(alone):
    _until_wanted(alone)
    for size in (0, -1, -(1 << 70), (1 << 40) + 1):
        with pytest.raises(errors.InvalidArgumentError, match=f"batch_size is {size}; it must be"):
            alone.reduce_gradients(size, _gradients(100.0))
    for size in (True, 1.5, None, "1"):
        with pytest.raises(errors.UnsupportedTypeError, match=f"batch_size is {size!r}; it must"):
            alone.reduce_gradients(size, _gradients(100.0))
    _check_that_a_round_sums(alone, 1.0, 5.0)


def test_sparse_gradients_are_refused_and_not_summed(member):
    torch = pytest.importorskip("torch")
    layer = torch.nn.Embedding(4, 2, sparse=True)
    with reverie.Accumulator("model", layer.parameters(), (), member("a")) as it:
        _until_wanted(it)
        layer(torch.tensor([1])).sum().backward()
        gradient = layer.weight.grad
        for given in (None, [gradient]):
            with pytest.raises(errors.UnsupportedTypeError, match=r"gradients\[0\].*sparse=False"):
                it.reduce_gradients(1, given)
        it.reduce_gradients(1, [gradient.to_dense()])  # the layer's own stays sparse
        eventually(lambda: (it.update(), it.has_gradients())[1])
        assert layer.weight.grad.tolist() == gradient.to_dense().tolist()


def test_gradients_may_be_views_of_one_buffer(member):
    """As with a flat buffer of all gradients, or those of DistributedDataParallel."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 3)
    buffer = torch.zeros(9)
    layer.weight.grad, layer.bias.grad = buffer[:6].view(3, 2), buffer[6:]
    with reverie.Accumulator("model", layer.parameters(), (), member("a")) as it:
        _until_wanted(it)
        buffer += 2.0
        it.reduce_gradients(1)
        assert buffer.tolist() == [0.0] * 9
        eventually(lambda: (it.update(), it.has_gradients())[1])
        assert buffer.tolist() == [2.0] * 9
        it.zero_gradients()
        assert buffer.tolist() == [0.0] * 9


def test_gradients_may_be_marked_conjugates_or_part_of_a_graph(member):
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with reverie.Accumulator("model", [weight], (), member("a")) as it:
        _until_wanted(it)
        weight.grad = torch.tensor([1 + 1j, 2j]).conj()
        assert weight.grad.is_conj()
        it.reduce_gradients(1)
        weight.grad = (2 * weight).view(2)  # as of create_graph=True
        eventually(lambda: (it.update(), it.has_gradients())[1])
        assert weight.grad.tolist() == [1 - 1j, -2j]
        assert not weight.grad.requires_grad
        it.zero_gradients()
        assert weight.grad.tolist() == [0, 0]


def test_calls_of_another_thread_are_refused_and_change_nothing(alone):
    _until_wanted(alone)
    calls = {
        "update": alone.update,
        "reduce_gradients": lambda: alone.reduce_gradients(1, _gradients(100.0)),
        "skip_gradients": alone.skip_gradients,
        "zero_gradients": alone.zero_gradients,
        "set_state": alone.set_state,
    }
    over = threading.Event()

    def elsewhere():
        refusals = dict.fromkeys(calls, 0)
        while not over.is_set() or min(refusals.values()) < 50:
            for name, call in calls.items():
                with pytest.raises(
                    errors.FailedPreconditionError, match="another thread"
                ) as raised:
                    call()
                assert str(raised.value).startswith(f"{name}() on another thread")
                refusals[name] += 1
        return refusals

    with ThreadPoolExecutor(2) as threads:
        others = [threads.submit(elsewhere) for _ in range(2)]
        try:
            for i in range(20):
                _check_that_a_round_sums(alone, float(i), 3.0)
                alone.zero_gradients()
        finally:
            over.set()
        for other in others:
            other.result(DEADLINE_S)


def test_the_first_thread_that_updates_owns_the_accumulator(member):
    group = member("a")
    for i in range(20):
        with reverie.Accumulator(f"m{i}", [np.zeros(4, np.float32)], (), group) as it:
            it.set_virtual_batch_size(2)  # on a thread that does not update it
            together = threading.Barrier(4)

            def first(it=it, together=together):
                together.wait(DEADLINE_S)
                try:
                    it.update()
                except errors.FailedPreconditionError:
                    return False
                return True

            with ThreadPoolExecutor(4) as threads:
                outcomes = [threads.submit(first) for _ in range(4)]
                assert sum(one.result(DEADLINE_S) for one in outcomes) == 1


def test_gradients_that_do_not_match_the_parameters_are_not_summed(alone):
    _until_wanted(alone)
    whole = _gradients(100.0)
    for given, match in (
        ([], "has 0 arrays; it must have one for each of the 2 parameters"),
        (whole[:1], "has 1 arrays; it must have one for each of the 2 parameters"),
        ([*whole, whole[1]], "has 3 arrays; it must have one for each of the 2 parameters"),
        (whole[::-1], r"gradients\[0\] has the shape \(4,\); parameter 0 has \(3, 2\)"),
        ([whole[0], np.ones(5)], r"gradients\[1\] has the shape \(5,\); parameter 1 has \(4,\)"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=match):
            alone.reduce_gradients(1, given)
    _check_that_a_round_sums(alone, 1.0, 5.0)
    alone.zero_gradients()
    _until_wanted(alone)
    alone.parameters()[0].shape = (2, 3)  # in place, by the program
    with pytest.raises(errors.InvalidArgumentError, match=r"gradients\[0\] is \(2, 3\)"):
        alone.reduce_gradients(1, [np.ones((2, 3)), whole[1]])
    alone.parameters()[0].shape = (3, 2)
    _check_that_a_round_sums(alone, 1.0, 5.0)


def test_a_model_that_has_changed_its_shape_is_not_sent(pair):
    it, other = pair()
    _train([it, other], lambda _: np.ones(1000, np.float32), 1)
    giver, taker = (it, other) if it.is_leader() else (other, it)
    taker.close()
    giver.parameters()[0].shape = (10, 100)
    with pytest.raises(errors.InvalidArgumentError) as raised:
        giver.set_state(None)
    me = giver.group.rpc.name
    assert f"parameters[0] is float32[10, 100] on '{me}'; it must stay float32[1000]" in str(
        raised.value
    )
    giver.parameters()[0].shape = (1000,)
    giver.set_state(None)


def test_a_member_whose_model_has_changed_its_shape_refuses_a_model(member):
    groups = {name: member(name) for name in ("a", "b")}
    for group in groups.values():
        group.wait(2)
    with contextlib.ExitStack() as stack:
        a, b = (
            stack.enter_context(
                reverie.Accumulator("model", [np.full(4, value, np.float32)], (), groups[name])
            )
            for name, value in (("a", 1.0), ("b", 2.0))
        )
        a.set_model_version(5)  # so a leads, and b gets its model
        b.parameters()[0].shape = (2, 2)

        def refused():
            a.update()
            if a.wants_state():
                a.set_state(None)
            try:
                b.update()
            except errors.InvalidArgumentError as error:
                return str(error)
            return None

        message = eventually(refused)
        assert "parameters[0] is float32[2, 2] on 'b'; it must stay float32[4]" in message
        assert b.parameters()[0].tolist() == [[2.0, 2.0]] * 2
        eventually(lambda: groups["a"].members == ["a"])  # which goes on without it
        _train([a], lambda _: np.ones(4, np.float32), 1)


def test_settings_of_a_closed_accumulator_are_refused(alone):
    alone.close()
    for name in ("set_virtual_batch_size", "set_parallel_gradients", "set_model_version"):
        with pytest.raises(errors.FailedPreconditionError, match=rf"{name}\(\).*closed"):
            getattr(alone, name)(3)
    assert alone.model_version() == 0


@pytest.mark.parametrize("rounds", [300, pytest.param(10_000, marks=pytest.mark.full)])
def test_members_keep_identical_parameters_over_many_rounds(pair, rounds):
    its = pair()
    draws = [np.random.default_rng(seed) for seed in (1, 2)]
    _train(its, lambda i: draws[i].standard_normal(1000, np.float32), rounds)
    versions = {it.model_version() for it in its}
    while len(versions) > 1:  # a member that is a step behind catches up
        _train(its, lambda _: None, 0)
        for it in its:
            it.update()
        versions = {it.model_version() for it in its}
    assert its[0].parameters()[0].tobytes() == its[1].parameters()[0].tobytes()
