"""Programs written for moolib's groups and accumulators, run with ``reverie.moolib``."""

import asyncio
import signal
import subprocess
import sys

import numpy as np
import pytest

from eventually import eventually
from reverie import moolib

DEADLINE_S = 30.0


@pytest.fixture
def connected():
    """Makes peers that are connected to a broker."""
    broker_rpc = moolib.Rpc()
    broker_rpc.set_name("broker")
    broker = moolib.Broker(broker_rpc)
    address = f"ipc://groups-{moolib.create_uid()}"
    broker.listen(address)
    peers = []

    def made(name):
        rpc = moolib.Rpc()
        rpc.set_name(name)
        rpc.connect(address)
        peers.append(rpc)
        return rpc

    yield made
    for peer in peers:
        peer.close()
    broker.update()
    broker.close()


@pytest.fixture
def groups(connected):
    made = [moolib.Group(connected(f"m{i}"), "g") for i in range(3)]
    eventually(lambda: [group.update() for group in made] and in_all(made, 3))
    return made


def in_all(groups, count):
    return all(len(group.members()) == count for group in groups)


def test_membership_is_reported_as_in_moolib(connected):
    first = moolib.Group(connected("a"), "g")
    second = moolib.Group(connected("b"), "g")
    assert (first.name(), first.members(), first.sync_id(), first.active()) == ("g", [], 0, False)
    first.set_sort_order(3)
    first.set_timeout(10.0)
    eventually(lambda: (first.update(), second.update()) and in_all([first, second], 2))
    assert first.members() == second.members() == ["b", "a"]
    assert first.sync_id() == second.sync_id() != 0
    assert first.active()
    with pytest.raises(RuntimeError, match="before"):
        first.set_broker_name("other")
    first.leave()
    eventually(lambda: second.members() == ["b"])


def test_all_reduce_sums_tensors_and_applies_functions(groups):
    torch = pytest.importorskip("torch")
    sums = [g.all_reduce("sum", torch.full((3,), float(i))) for i, g in enumerate(groups)]
    for reduction in sums:
        assert isinstance(reduction, moolib.AllReduce)
        assert reduction.result(DEADLINE_S).tolist() == [3.0] * 3
        assert reduction.done()
        assert reduction.exception() is None
    longest = [g.all_reduce("max", "x" * i, op=max) for i, g in enumerate(groups)]
    assert [r.result() for r in longest] == ["xx"] * 3

    async def awaited():
        return [await g for g in [g.all_reduce("a", 1) for g in groups]]

    assert asyncio.run(awaited()) == [3] * 3


def test_failed_rounds_raise_runtime_errors(groups):
    late = groups[0].all_reduce("late", 1.0)
    with pytest.raises(RuntimeError, match="timed out"):
        late.wait(0.1)
    with pytest.raises(RuntimeError, match="under way"):
        groups[0].all_reduce("late", 1.0)
    late.cancel()
    with pytest.raises(RuntimeError, match="cancelled"):
        late.result()
    other = groups[0].all_reduce("other", 1.0)
    groups[2].leave()
    with pytest.raises(RuntimeError, match="group change"):
        other.result(DEADLINE_S)
    assert isinstance(other.exception(), moolib.RpcError)


def test_a_training_loop_written_for_moolib_runs(connected):
    members = []
    for i in range(2):
        group = moolib.Group(connected(f"m{i}"), "g")
        parameters = [np.full(4, float(i))]
        accumulator = moolib.Accumulator("model", parameters, [], group=group)
        accumulator.set_virtual_batch_size(4)
        members.append((group, parameters, accumulator))

    def turn():
        for group, parameters, accumulator in members:
            group.update()
            accumulator.update()
            if accumulator.wants_state():
                accumulator.set_state({"steps": 1})
            if accumulator.has_new_state():
                assert accumulator.state() == accumulator.state() == {"steps": 1}
            if accumulator.has_gradients():
                parameters[0] -= accumulator.gradients()[0]
                accumulator.zero_gradients()
            elif accumulator.wants_gradients():
                if group is members[0][0]:
                    accumulator.skip_gradients()
                else:
                    accumulator.reduce_gradients(2, [np.full(4, 0.25)])
        versions = {accumulator.model_version() for _, _, accumulator in members}
        return min(versions) >= 3 and len(versions) == 1

    eventually(turn)
    assert members[0][1][0].tobytes() == members[1][1][0].tobytes()
    for _, _, accumulator in members:
        assert accumulator.get_gradient_stats()["batch_size"] >= 4
        accumulator.close()


def test_an_accumulators_update_leaves_changes_to_its_groups_update(connected):
    group = moolib.Group(connected("a"), "g")
    accumulator = moolib.Accumulator("model", [np.zeros(4)], [], group=group)
    other = moolib.Group(connected("b"), "g")
    eventually(lambda: (accumulator.update(), other.update()) and in_all([group, other], 2))
    accumulator.update()
    assert group.update() is True
    accumulator.update()
    assert group.update() is False
    accumulator.close()


def test_a_state_can_be_read_again_and_again_on_both_sides(connected):
    members = []
    for i in range(2):
        group = moolib.Group(connected(f"m{i}"), "g")
        members.append((group, moolib.Accumulator("model", [np.full(4, float(i))], [], group)))
    with pytest.raises(RuntimeError, match="no new state"):
        members[0][1].state()
    state = {"steps": 1, "moments": [np.ones(2), (2.5, None)]}

    def turn():
        for group, accumulator in members:
            group.update()
            accumulator.update()
            if accumulator.wants_state():
                accumulator.set_state(state)
        return any(accumulator.has_new_state() for _, accumulator in members)

    eventually(turn)
    state["moments"][0][:] = 7.0
    state["steps"] = 2
    for _ in range(2):
        for _, accumulator in members:
            got = accumulator.state()
            assert got["steps"] == 1
            assert got["moments"][0].tolist() == [1.0, 1.0]
            assert got["moments"][1] == (2.5, None)
            assert not accumulator.has_new_state()
    for _, accumulator in members:
        accumulator.close()


def test_the_broker_runs_as_a_program():
    port = 20_000 + int(moolib.create_uid(), 16) % 12_000  # below the ephemeral ports
    process = subprocess.Popen(
        [sys.executable, "-m", "reverie.moolib.broker", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == f"Broker listening at 127.0.0.1:{port}\n"
        rpc = moolib.Rpc()
        rpc.connect(f"127.0.0.1:{port}")
        group = moolib.Group(rpc, "g")
        eventually(lambda: group.update() or group.active())
        rpc.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
        assert process.stderr.read() == ""


def test_main_uses_the_names_of_the_module(monkeypatch, capsys):
    made = []
    tokens = []

    class Fake:
        def __init__(self, *arguments, **options):
            made.append(arguments)
            tokens.append(options.get("token"))

        def set_name(self, name):
            made.append(name)

        def listen(self, address):
            made.append(address)

        def update(self):
            raise KeyboardInterrupt

        def close(self):
            made.append("closed")

    monkeypatch.setattr(moolib, "Rpc", Fake)
    monkeypatch.setattr(moolib, "Broker", Fake)
    moolib.broker.main(["127.0.0.1:5"])
    assert made[1] == "broker"
    assert made[-2:] == ["127.0.0.1:5", "closed"]
    assert capsys.readouterr().out == "Broker listening at 127.0.0.1:5\n"
    monkeypatch.setenv("REVERIE_TOKEN", "")  # as a script passes a variable that is not set
    for arguments in ([], ["--token", ""]):
        moolib.broker.main(arguments)
        assert made[-2:] == ["127.0.0.1:4431", "closed"]
    assert set(tokens) == {None}
    monkeypatch.setenv("REVERIE_TOKEN", "secret")
    moolib.broker.main([])
    assert made[-2:] == ["0.0.0.0:4431", "closed"]
    assert "secret" in tokens


def test_gradients_are_zero_before_the_first_are_computed(connected):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    group = moolib.Group(connected("a"), "g")
    accumulator = moolib.Accumulator("model", model.parameters(), model.buffers(), group)
    assert model.weight.grad.tolist() == [[0.0, 0.0]]
    assert model.bias.grad is None
    assert float(torch.nn.utils.clip_grad_norm_(model.parameters(), 40.0)) == 0.0
    accumulator.close()


def test_gradients_may_be_zeroed_before_a_round_has_ended(connected):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    group = moolib.Group(connected("a"), "g")
    accumulator = moolib.Accumulator("model", model.parameters(), model.buffers(), group)
    model(torch.ones(2)).backward()
    assert model.weight.grad.tolist() == [[1.0, 1.0]]
    accumulator.zero_gradients()  # as optimizer.zero_grad()
    assert model.weight.grad.tolist() == [[0.0, 0.0]]
    eventually(lambda: (accumulator.update(),) and accumulator.wants_gradients())
    model(torch.ones(2)).backward()
    accumulator.reduce_gradients(1)
    eventually(lambda: accumulator.update() or accumulator.has_gradients())
    assert model.weight.grad.tolist() == [[1.0, 1.0]]
    accumulator.zero_gradients()
    assert not accumulator.has_gradients()
    assert model.weight.grad.tolist() == [[0.0, 0.0]]
    accumulator.close()
    with pytest.raises(RuntimeError, match="closed"):
        accumulator.zero_gradients()


def test_what_was_closed_before_its_first_use_stays_closed():
    rpc = moolib.Rpc()
    rpc.close()
    with pytest.raises(RuntimeError, match="closed"):
        rpc.listen("127.0.0.1:0")
    broker = moolib.Broker(moolib.Rpc())
    broker.close()
    with pytest.raises(RuntimeError, match="closed"):
        broker.listen("127.0.0.1:0")
