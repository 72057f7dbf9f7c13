"""Accumulators: several members in one process, whose training loops a test runs step by step."""

import contextlib
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import reverie
from eventually import eventually
from first_touches import first_touches, threads
from reverie import _model_arrays, errors

SHAPES = [(3, 2), (4,)]


class Member:
    """A member with a separate model, which takes steps of plain gradient descent."""

    def __init__(self, stack, address, name, value=0.0, rpc=None, **options):
        self.rpc = rpc or stack.enter_context(reverie.Rpc(name))
        self.rpc.connect(address)
        self.group = stack.enter_context(reverie.Group(self.rpc, "g"))
        self.parameters = [np.full(shape, value) for shape in SHAPES]
        self.accumulator = stack.enter_context(
            reverie.Accumulator("model", self.parameters, (), self.group, **options)
        )
        self.states = []
        self.steps = 0

    def turn(self):
        """One iteration of a training loop, without contributing gradients."""
        it = self.accumulator
        it.update()
        if it.wants_state():
            it.set_state({"steps": self.steps})
        if it.has_new_state():
            self.states.append(it.state())
            self.steps = self.states[-1]["steps"]
        if it.has_gradients():
            for parameter, gradient in zip(self.parameters, it.gradients(), strict=True):
                parameter -= 0.5 * gradient
            self.steps += 1
            it.zero_gradients()
            it.update()

    def give(self, value, samples):
        self.accumulator.reduce_gradients(samples, [np.full(shape, value) for shape in SHAPES])

    @property
    def bytes(self):
        return b"".join(parameter.tobytes() for parameter in self.parameters)


@pytest.fixture
def make():
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(reverie.Broker()).listen()

        def made(name, *args, **options):
            return Member(stack, address, name, *args, **options)

        made.address = address
        yield made


def until(members, condition):
    """Runs iterations of all loops until ``condition()`` holds."""

    def turned():
        for member in members:
            member.turn()
        return condition()

    eventually(turned)


def together(members):
    until(members, lambda: all(m.accumulator.connected() for m in members))
    assert len({m.accumulator.get_leader() for m in members}) == 1


def leader_of(members):
    (leader,) = [m for m in members if m.accumulator.is_leader()]
    return leader


def step(members, gives):
    """Makes one round with the contributions ``gives``, a list of (member, value, samples)."""
    before = {m: m.steps for m in members}
    for member, value, samples in gives:
        until(members, member.accumulator.wants_gradients)
        member.give(value, samples)
    until(members, lambda: all(m.steps == before[m] + 1 for m in members))


def test_members_start_with_the_leaders_model(make):
    members = [make("a", 1.0), make("b", 2.0), make("c", 3.0)]
    together(members)
    leader = leader_of(members)
    assert {m.bytes for m in members} == {leader.bytes}
    # A group of two may have formed before the third joined: then one member got the state twice.
    assert all(m.states for m in members if m is not leader)


def test_the_member_with_the_highest_version_sets_the_model(make):
    low = make("z", 1.0)
    high = make("a", 2.0)
    high.accumulator.set_model_version(7)
    with pytest.raises(errors.InvalidArgumentError, match="version is 3"):
        high.accumulator.set_model_version(3)
    together([low, high])
    until([low, high], lambda: low.accumulator.get_leader() == "a" and low.accumulator.connected())
    assert low.accumulator.model_version() == 7
    assert low.parameters[0][0, 0] == 2.0


def test_a_model_that_could_not_be_adopted_is_adopted_by_a_later_update(make):
    high, low = make("a", 2.0), make("z", 1.0)
    high.accumulator.set_model_version(7)
    low.parameters[1].flags.writeable = False  # the first array is overwritten, this one is not

    def refused():
        high.turn()
        try:
            low.turn()
        except ValueError as error:
            return str(error)
        return None

    assert "read-only" in eventually(refused)
    with pytest.raises(ValueError, match="read-only"):
        low.accumulator.update()
    assert not low.accumulator.connected()
    assert not low.accumulator.wants_gradients()
    assert not low.accumulator.has_new_state()
    low.parameters[1].flags.writeable = True
    together([high, low])
    assert low.bytes == high.bytes
    assert low.states


def test_gradients_that_could_not_be_taken_are_taken_by_a_later_update(make, monkeypatch):
    members = [make("a"), make("b")]
    together(members)
    for member in members:
        member.accumulator.set_virtual_batch_size(10)
    set_count = 0

    def set_grads(_parameters, _arrays):
        nonlocal set_count
        set_count += 1
        if set_count == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(_model_arrays, "set_grads", set_grads)
    until(members, members[0].accumulator.wants_gradients)
    members[0].give(3.0, 10)

    def turned():
        for member in members:
            member.turn()

    with pytest.raises(KeyboardInterrupt):
        eventually(turned)
    (late,) = [member for member in members if not member.accumulator.connected()]
    assert not late.accumulator.has_gradients()
    assert not late.accumulator.wants_gradients()
    until(members, lambda: all(member.steps == 1 for member in members))
    for member in members:
        assert all((parameter == -1.5).all() for parameter in member.parameters)


class _InterruptedNative:
    """Passes calls on, and raises KeyboardInterrupt at the end of the first update with a sum."""

    def __init__(self, native):
        self._native = native
        self._was_interrupted = False

    def __getattr__(self, name):
        return getattr(self._native, name)

    def update(self, is_busy):
        view = self._native.update(is_busy)
        if view[6] is not None and not self._was_interrupted:
            self._was_interrupted = True
            raise KeyboardInterrupt
        return view


def test_an_update_interrupted_as_gradients_arrive_loses_none(make, monkeypatch):
    members = [make("a"), make("b")]
    together(members)
    for member in members:
        member.accumulator.set_virtual_batch_size(10)
    late = members[1].accumulator
    monkeypatch.setattr(late, "_native", _InterruptedNative(late._native))
    until(members, members[0].accumulator.wants_gradients)
    members[0].give(3.0, 10)

    def turned():
        for member in members:
            member.turn()

    with pytest.raises(KeyboardInterrupt):
        eventually(turned)
    assert not late.has_gradients()
    until(members, lambda: all(member.steps == 1 for member in members))
    step(members, [(members[1], 4.0, 10)])
    for member in members:
        assert member.accumulator.model_version() == 2
        assert all((parameter == -3.5).all() for parameter in member.parameters)


class _Sums:
    """The result of a round in which two contributions were summed."""

    def __init__(self, *arrays):
        self._arrays = arrays

    def array(self, i):
        return self._arrays[i - 1]


def test_an_interrupted_division_of_gradients_is_completed_by_a_later_update(make, monkeypatch):
    accumulator = make("a").accumulator
    accumulator._average = "contributions"
    shapes = [parameter.shape for parameter in accumulator._parameters]
    sums = _Sums(*(np.full(shape, 6, np.float32) for shape in shapes))
    means = []
    divide = np.divide
    calls = 0

    def interrupted(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return divide(*args, **kwargs)

    monkeypatch.setattr(np, "divide", interrupted)
    with pytest.raises(KeyboardInterrupt):
        accumulator._take_gradients(means, (2, 0, 2, sums))
    accumulator._take_gradients(means, (2, 0, 2, sums))
    assert len(means) == len(shapes)
    assert all((mean == 3).all() for mean in means)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_sums_of_small_integers_are_divided_by_any_count(make, dtype):
    accumulator = make("a").accumulator
    accumulator._average = "samples"
    sums = _Sums(*(np.full(p.shape, 100, dtype) for p in accumulator._parameters))
    means = []
    accumulator._take_gradients(means, (1, 0, 80_000, sums))
    assert all(mean.dtype == np.float64 and (mean == 100 / 80_000).all() for mean in means)


def test_all_members_apply_the_same_mean_whoever_contributes(make):
    members = [make("a"), make("b"), make("c")]
    together(members)
    for member in members:
        member.accumulator.set_virtual_batch_size(10)
    a, b, _ = members
    # The mean over samples is (4 * 1.0 + 6 * 2.0) / 10; c contributes nothing, b twice.
    step(members, [(a, 1.0, 4), (b, 2.0, 2), (b, 2.0, 4)])
    assert a.parameters[1].tolist() == [-0.8] * 4
    assert len({m.bytes for m in members}) == 1
    stats = members[2].accumulator.get_gradient_stats()
    assert stats == {"num_gradients": 3, "num_skipped": 1, "batch_size": 10}
    assert {m.accumulator.model_version() for m in members} == {1}
    for i in range(50):
        step(members, [(members[i % 3], 1.0 / (i + 3), 10)])
    assert len({m.bytes for m in members}) == 1


@pytest.mark.parametrize(("average", "expected"), [("contributions", 1.5), ("sum", 3.0)])
def test_gradients_can_be_averaged_in_other_ways(make, average, expected):
    members = [make("a", average=average), make("b", average=average)]
    together(members)
    for member in members:
        member.accumulator.set_virtual_batch_size(4)
    step(members, [(members[0], 1.0, 1), (members[1], 2.0, 3)])
    assert members[0].parameters[1].tolist() == [-0.5 * expected] * 4


def test_several_rounds_may_be_in_flight_and_are_applied_in_order(make):
    members = [make("a"), make("b")]
    for member in members:
        member.accumulator.set_parallel_gradients(3)
    together(members)
    for i in range(1000):  # a round may take several contributions, on a busy machine many
        if all(m.steps >= 10 for m in members):
            break
        until(members, members[i % 2].accumulator.wants_gradients)
        members[i % 2].give(float(i), 1)
    assert all(m.steps >= 10 for m in members)
    until(members, lambda: members[0].steps == members[1].steps)
    assert members[0].bytes == members[1].bytes


def test_a_large_sum_is_zeroed_on_no_thread_that_keeps_a_peer_alive(make, monkeypatch):
    size_bytes = 16 << 20
    monkeypatch.setitem(globals(), "SHAPES", [(size_bytes // 8,)])
    before = threads()
    with reverie.Rpc("a") as first, reverie.Rpc("b") as second:
        of_peers = threads() - before
        members = giver, other = make("a", rpc=first), make("b", rpc=second)
        together(members)
        for member in members:
            member.accumulator.set_virtual_batch_size(10)
        # After a round of arrays all members know that they share memory.
        for one in [member.group.all_reduce("first", np.zeros(1)) for member in members]:
            one.result(60.0)
        until(members, giver.accumulator.wants_gradients)
        touched = first_touches(of_peers)
        giver.give(3.0, 10)
        until([giver], lambda: giver.steps == 1)  # the other's program makes no call
        assert first_touches(of_peers) - touched < size_bytes // 4
        until(members, lambda: other.steps == 1)
        assert giver.bytes == other.bytes


def test_a_joining_member_gets_the_model_and_steps_with_the_others(make):
    members = [make("a", 1.0), make("b", 1.0)]
    together(members)
    for i in range(5):
        step(members, [(members[i % 2], float(i), 1)])
    members.append(make("z", 9.0))
    until(members, lambda: len(members[2].states) == 1)
    together(members)
    assert members[2].steps == members[0].steps
    assert members[2].accumulator.model_version() == 5
    assert len({m.bytes for m in members}) == 1
    for i in range(5):
        step(members, [(members[i % 3], float(i), 1)])
    assert len({m.bytes for m in members}) == 1


def test_a_state_that_is_too_large_for_a_message_is_refused_and_a_smaller_one_arrives(make):
    members = [make("a"), make("b")]

    def asked():
        for member in members:
            member.accumulator.update()
        return [m.accumulator for m in members if m.accumulator.wants_state()]

    (giver,) = eventually(asked)
    with pytest.raises(errors.InvalidArgumentError, match=r"7340\d+ bytes of values.*as arrays"):
        giver.set_state({"replay": bytes(70 << 20)})
    assert giver.wants_state()
    giver.set_state({"steps": 0, "replay": np.ones(1 << 17)})
    together(members)
    (state,) = [member.states[-1] for member in members if member.states]
    assert state["replay"].sum() == 1 << 17


def test_a_member_can_close_its_accumulator_and_make_it_again(make):
    members = [make("a"), make("b", 1.0)]
    together(members)
    step(members, [(members[0], 1.0, 2)])
    for member in members:  # the first member of the group, which holds elections, and the other
        member.accumulator.close()
        member.accumulator = reverie.Accumulator("model", member.parameters, (), member.group)
        together(members)
        step(members, [(members[1], 2.0, 1)])
        assert members[0].bytes == members[1].bytes
    for member in members:
        member.accumulator.close()


def test_a_joiner_gets_the_model_from_another_member_if_the_leader_is_stuck(make):
    members = [make("a"), make("b")]
    together(members)
    until(members, lambda: all(m.accumulator.wants_gradients() for m in members))
    still = leader_of(members)
    (other,) = [m for m in members if m is not still]
    other.give(1.0, 1)
    until(members, lambda: all(m.steps == 1 for m in members))
    joiner = make("c", value=5.0)
    moving = [other, joiner]
    until(moving, lambda: all(m.accumulator.connected() for m in moving))
    assert still.rpc.name in {m.accumulator.get_leader() for m in moving}
    assert joiner.bytes == other.bytes
    joiner.give(1.0, 1)
    until(moving, lambda: all(m.steps == 2 for m in moving))
    until([still, *moving], lambda: still.steps == 2 and still.bytes == joiner.bytes)
    assert sorted(still.group.members) == ["a", "b", "c"]


def test_the_others_continue_when_the_leader_leaves(make):
    members = [make("a"), make("b"), make("c")]
    together(members)
    step(members, [(members[0], 1.0, 1)])
    gone = leader_of(members)
    gone.group.leave()
    rest = [m for m in members if m is not gone]
    until(rest, lambda: all(len(m.group.members) == 2 for m in rest))
    together(rest)
    step(rest, [(rest[0], 1.0, 1)])
    assert rest[0].bytes == rest[1].bytes
    assert rest[0].accumulator.model_version() == 2


_TRAINS = """
import sys
import numpy as np
import reverie

with reverie.Rpc("other") as rpc:
    rpc.connect(sys.argv[1])
    with reverie.Group(rpc, "g") as group:
        model = [np.zeros((3, 2)), np.zeros(4)]
        with reverie.Accumulator("model", model, (), group) as it:
            while True:
                it.update()
                if it.wants_state():
                    it.set_state({"steps": 0})
                if it.has_new_state():
                    it.state()
                if it.has_gradients():
                    it.zero_gradients()
                elif it.wants_gradients():
                    it.reduce_gradients(1, [np.ones((3, 2)), np.ones(4)])
                    print("brought", flush=True)
"""


def test_a_member_ended_by_ctrl_c_leaves_the_group_at_once(make):
    here = make("here")
    other = subprocess.Popen(
        [sys.executable, "-c", _TRAINS, make.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until([here], lambda: here.group.members == ["here", "other"] and here.steps >= 3)
        assert other.stdout.readline() == "brought\n"
        other.send_signal(signal.SIGINT)
        begin = time.monotonic()
        until([here], lambda: here.group.members == ["here"])
        assert time.monotonic() - begin < 2.0
        _, said = other.communicate(timeout=30)
        assert other.returncode == -signal.SIGINT
        assert said.rstrip().endswith("KeyboardInterrupt")
    finally:
        other.kill()
        other.communicate()
    steps = here.steps
    until([here], here.accumulator.wants_gradients)
    here.give(1.0, 1)
    until([here], lambda: here.steps > steps)


def test_a_member_with_another_model_is_refused_naming_the_parameter(make):
    good = [make("x"), make("y")]
    together(good)
    step(good, [(good[0], 1.0, 1)])
    other = make("a")
    other.accumulator.close()
    wrong = reverie.Accumulator("model", [np.zeros((3, 2)), np.zeros(5)], (), other.group)

    def refused():
        for member in good:
            member.turn()
        try:
            wrong.update()
        except errors.InvalidArgumentError as error:
            return str(error)
        return None

    message = eventually(refused)
    assert "parameters[1]" in message
    assert "[5]" in message
    until(good, lambda: all(len(m.group.members) == 2 for m in good))
    together(good)
    step(good, [(good[0], 1.0, 1)])


def test_misuse_raises_and_changes_nothing(make):
    member = make("a", finite=True)
    it = member.accumulator
    for call in (it.skip_gradients, it.zero_gradients, it.gradients, it.state, it.set_state):
        with pytest.raises(errors.FailedPreconditionError):
            call()
    with pytest.raises(errors.FailedPreconditionError, match="wants_gradients"):
        member.give(1.0, 1)
    together([member])
    until([member], it.wants_gradients)
    with pytest.raises(errors.InvalidArgumentError, match="batch_size"):
        member.give(1.0, 0)
    with pytest.raises(errors.InvalidArgumentError, match=r"gradients\[1\]"):
        it.reduce_gradients(1, [np.zeros((3, 2)), np.zeros(5)])
    with pytest.raises(errors.InvalidArgumentError, match="one for each"):
        it.reduce_gradients(1, [np.zeros((3, 2))])
    with pytest.raises(errors.InvalidArgumentError, match="not finite"):
        member.give(np.nan, 1)
    with pytest.raises(errors.AlreadyExistsError):
        reverie.Accumulator("model", member.parameters, (), member.group)
    raised = []

    def elsewhere():
        try:
            it.update()
        except errors.FailedPreconditionError as error:
            raised.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "another thread" in raised[0]
    step([member], [(member, 1.0, 1)])
    it.close()
    it.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        it.update()


def test_members_with_jax_trees_train_one_model(make):
    jnp = pytest.importorskip("jax.numpy")
    rpcs = [make(name).rpc for name in ("a", "b")]  # the members of these peers are not used
    with contextlib.ExitStack() as stack:
        members = []
        for i, rpc in enumerate(rpcs):
            group = stack.enter_context(reverie.Group(rpc, "trees"))
            tree = {"w": jnp.full((2, 3), float(i)), "b": (jnp.zeros(3, jnp.bfloat16),)}
            accumulator = reverie.Accumulator("m", tree, (), group)
            members.append(stack.enter_context(accumulator))
            assert members[-1].parameters()["w"].shape == (2, 3)

        def turn():
            for it in members:
                it.update()
                if it.wants_state():
                    it.set_state(None)
                if it.has_gradients():
                    old, mean = it.parameters(), it.gradients()
                    with pytest.raises(errors.InvalidArgumentError, match="parameters is None"):
                        it.zero_gradients()
                    with pytest.raises(errors.InvalidArgumentError, match="structure"):
                        it.zero_gradients([old["w"]])
                    it.zero_gradients(
                        {"w": old["w"] - mean["w"], "b": (old["b"][0] - mean["b"][0],)}
                    )
                elif it.wants_gradients():
                    with pytest.raises(errors.InvalidArgumentError, match="structure"):
                        it.reduce_gradients(1, {"w": gradient["w"]})
                    it.reduce_gradients(1, gradient)
            return (
                members[0].model_version() >= 6
                and members[0].model_version() == members[1].model_version()
                and not any(it.has_gradients() for it in members)
                and len(members[0].group.members) == 2
            )

        gradient = {"w": jnp.full((2, 3), 0.5), "b": (jnp.full(3, 0.25, jnp.bfloat16),)}
        eventually(turn)
        one, two = (it.parameters() for it in members)
        assert one["b"][0].dtype == jnp.bfloat16
        assert (one["w"] == two["w"]).all()
        assert (one["b"][0] == two["b"][0]).all()
        assert float(one["b"][0][0]) == -0.25 * members[0].model_version()


def test_members_with_torch_modules_train_one_model():
    torch = pytest.importorskip("torch")
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(reverie.Broker()).listen()
        members = []
        for i in range(2):
            torch.manual_seed(i)
            model = torch.nn.Linear(3, 1)
            model.register_buffer("seen", torch.full((2,), float(i)))
            rpc = stack.enter_context(reverie.Rpc(f"m{i}"))
            rpc.connect(address)
            group = stack.enter_context(reverie.Group(rpc, "g"))
            accumulator = reverie.Accumulator("m", model.parameters(), model.buffers(), group)
            stack.callback(accumulator.close)
            accumulator.set_virtual_batch_size(8)
            members.append((model, torch.optim.Adam(model.parameters(), 0.05), accumulator))
        target = torch.tensor([[1.0, -2.0, 3.0]])
        losses = []

        def turn():
            for model, optimizer, accumulator in members:
                accumulator.update()
                if accumulator.wants_state():
                    accumulator.set_state({"optimizer": optimizer.state_dict()})
                if accumulator.has_new_state():
                    optimizer.load_state_dict(accumulator.state()["optimizer"])
                if accumulator.has_gradients():
                    optimizer.step()
                    accumulator.zero_gradients()
                elif accumulator.wants_gradients():
                    x = torch.randn(4, 3)
                    loss = ((model(x) - x @ target.T) ** 2).mean()
                    loss.backward()
                    accumulator.reduce_gradients(4)
                    losses.append(loss.item())
            return (
                members[0][2].model_version() >= 60
                and all(not m[2].has_gradients() for m in members)
                and members[0][2].model_version() == members[1][2].model_version()
            )

        eventually(turn)
        (first, _, _), (second, _, _) = members
        assert all(
            torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
        )
        assert torch.equal(first.seen, second.seen)
        assert np.mean(losses[-20:]) < np.mean(losses[:20])
