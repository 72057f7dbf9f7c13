"""Weights by version, between processes and between peers in one process."""

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

import reverie
from first_touches import first_touches, threads

LIMIT_S = 60.0

# Takes weights until version 30, and prints the last version that it saw.
ACTOR = """
import sys
import reverie

rpc = reverie.Rpc(sys.argv[2])
rpc.connect(sys.argv[1])
weights = reverie.Weights(rpc, "policy", sources=["learner"], shared_memory=sys.argv[3] == "maps")
last = 0
while last < 30:
    last, value = weights.wait(last)
    assert (value["w"] == last).all() and (value["deep"][0] == 2 * last).all(), last
    value["w"][0] = -1  # its own
    assert value["name"] == f"version {last}"
print(last)
"""


def nest_of(version):
    return {
        "w": np.full(20_000, version, np.float32),
        "deep": [np.full((3, 5), 2 * version), np.float64(version)],
        "name": f"version {version}",
    }


@pytest.mark.parametrize("how", ["maps", "sends"])
def test_processes_receive_complete_versions(how):
    with reverie.Rpc("learner") as rpc:
        address = rpc.listen()
        weights = reverie.Weights(rpc, "policy")
        actors = [
            subprocess.Popen(
                [sys.executable, "-c", ACTOR, address, f"actor-{i}", how],
                stdout=subprocess.PIPE,
                text=True,
            )
            for i in range(3)
        ]
        for version in range(1, 31):
            weights.publish(version, nest_of(version))
        for actor in actors:
            out, _ = actor.communicate(timeout=LIMIT_S)
            assert out == "30\n"
        # What the actors wrote to their arrays does not show here.
        assert (weights.held().value["w"] == 30).all()


def _pair():
    learner, actor = reverie.Rpc("learner"), reverie.Rpc("actor")
    actor.connect(learner.listen())
    return learner, actor


def test_the_newest_version_is_received_and_older_ones_do_not_change():
    learner, actor = _pair()
    with learner, actor, reverie.Weights(learner, "w") as published:
        taken = reverie.Weights(actor, "w", sources=["learner"])
        assert taken.pull() is None
        assert taken.version is None
        published.publish(0, nest_of(0))
        published.publish(4, nest_of(4))
        fourth = taken.pull()
        assert fourth.version == taken.version == published.version == 4
        published.publish(9, None)
        assert taken.held() is fourth
        assert taken.wait(4, timeout_s=LIMIT_S) == (9, None)
        assert (fourth.value["w"] == 4).all()
        with pytest.raises(reverie.errors.DeadlineExceededError, match="10 or above"):
            taken.wait(9, timeout_s=0.05)


def test_changes_of_a_large_version_are_applied_on_no_thread_that_keeps_a_peer_alive():
    before = threads()
    learner, actor = _pair()
    with learner, actor:
        of_peers = threads() - before
        published = reverie.Weights(learner, "w", shared_memory=False)
        taken = reverie.Weights(actor, "w", sources=["learner"], shared_memory=False)
        array = np.zeros(2 << 20)
        published.publish(1, array)
        assert taken.pull().version == 1
        array[0] = 1.0
        touched = first_touches(of_peers)
        published.publish(2, array)
        assert (taken.pull().value == array).all()
        assert first_touches(of_peers) - touched < array.nbytes // 4


def test_torch_tensors_are_received_as_tensors():
    torch = pytest.importorskip("torch")
    learner, actor = _pair()
    with learner, actor:
        published = reverie.Weights(learner, "w")
        taken = reverie.Weights(actor, "w", sources=["learner"])
        layer = torch.nn.Linear(7, 5)
        published.publish(1, dict(layer.state_dict()))
        other = torch.nn.Linear(7, 5)
        other.load_state_dict(taken.wait().value)
        assert torch.equal(other.weight, layer.weight)


def test_a_late_peer_can_get_the_weights_from_another_peer():
    learner, actor = _pair()
    with actor:
        with learner:
            published = reverie.Weights(learner, "w")
            taken = reverie.Weights(actor, "w", sources=["learner"])
            published.publish(1, nest_of(1))
            assert taken.pull().version == 1
        with reverie.Rpc("late") as late:
            late.connect(actor.listen())
            weights = reverie.Weights(late, "w", sources=["learner", "actor"])
            assert (weights.pull().value["w"] == 1).all()


@pytest.mark.parametrize("maps", [True, False])
def test_weights_of_a_restarted_publisher_are_taken_though_its_versions_are_lower(maps):
    with reverie.Rpc("actor") as actor:
        address = actor.listen()
        taken = reverie.Weights(actor, "w", sources=["learner"], shared_memory=maps)
        for version in (100, 90, 90):
            with reverie.Rpc("learner") as learner:
                learner.connect(address)
                published = reverie.Weights(learner, "w")
                published.publish(version, nest_of(version))
                held = taken.held()
                assert taken.wait(None if held is None else held.version, timeout_s=LIMIT_S) == (
                    taken.held()
                )
                assert taken.version == version
                assert taken.held() is not held
                published.publish(version + 1, nest_of(version + 1))
                assert (taken.pull().value["w"] == version + 1).all()


@pytest.mark.parametrize("maps", [True, False])
def test_what_a_peer_writes_to_its_arrays_is_not_passed_on(maps):
    learner, actor = _pair()
    with learner, actor, reverie.Rpc("late") as late:
        published = reverie.Weights(learner, "w")
        published.publish(1, nest_of(1))
        taken = reverie.Weights(actor, "w", sources=["learner"], shared_memory=maps)
        mine = taken.pull().value
        mine["w"][:] = -1
        late.connect(actor.listen())
        weights = reverie.Weights(late, "w", sources=["actor"], shared_memory=False)
        assert (weights.pull().value["w"] == 1).all()
        assert (taken.held().value["w"] == -1).all()


def test_a_thread_that_takes_an_old_version_does_not_hide_the_new_one_from_others():
    with reverie.Rpc("learner") as rpc:
        weights = reverie.Weights(rpc, "w")
        weights.publish(1, 1.0)
        native = weights._native
        other = threading.Thread(target=weights.held)

        class Slow:
            """Takes version 1 while version 2 comes and another thread takes that."""

            def held(self):
                found = native.held()
                if other.ident is None:
                    native.publish(2, 2.0)
                    other.start()
                    other.join(0.2)  # it may wait for this one
                return found

            def __getattr__(self, name):
                return getattr(native, name)

        weights._native = Slow()
        weights.held()
        other.join()
        assert weights.held() == (2, 2.0)


def test_weights_made_anew_on_their_rpc_outlive_the_closed_ones():
    learner, actor = _pair()
    with learner, actor:
        published = reverie.Weights(learner, "w")
        published.close()
        published = reverie.Weights(learner, "w")  # the old ones are dropped only now
        gc.collect()
        published.publish(1, nest_of(1))
        taken = reverie.Weights(actor, "w", sources=["learner"])
        assert (taken.pull(timeout_s=LIMIT_S).value["w"] == 1).all()


def test_misuse_of_weights_is_refused():
    learner, actor = _pair()
    with learner, actor:
        published = reverie.Weights(learner, "w")
        published.publish(3, 1)
        with pytest.raises(reverie.errors.InvalidArgumentError, match="versions must increase"):
            published.publish(3, 2)
        with pytest.raises(reverie.errors.AlreadyExistsError, match="'w'"):
            reverie.Weights(learner, "w")
        with pytest.raises(reverie.errors.InvalidArgumentError, match="this peer"):
            reverie.Weights(learner, "x", sources=["learner"])
        with pytest.raises(reverie.errors.UnavailableError, match="no source"):
            published.pull()
        with pytest.raises(TypeError, match="no encoding"):
            published.publish(4, object())
        published.close()
        published.close()
        again = reverie.Weights(learner, "w")
        with pytest.raises(reverie.errors.NotFoundError):
            reverie.Weights(actor, "v", sources=["absent"]).pull(timeout_s=LIMIT_S)
        again.close()


def test_a_wait_names_the_reason_why_no_version_came():
    with reverie.Rpc("actor") as actor, reverie.Rpc("learner") as learner:
        actor.connect(learner.listen())
        published = reverie.Weights(learner, "w")
        taken = reverie.Weights(actor, "w", sources=["learner"])
        with pytest.raises(reverie.errors.DeadlineExceededError, match=r"or above yet$"):
            taken.wait(timeout_s=0.5)
        published.close()
        learner.close()
        with pytest.raises(reverie.errors.DeadlineExceededError, match=r"or above yet: .*learner"):
            taken.wait(timeout_s=2.0)
        taken.close()
