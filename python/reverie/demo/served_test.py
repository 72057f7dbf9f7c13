"""A short training over sockets: processes come, work together, and go."""

from pathlib import Path

import pytest

from reverie.demo import served
from reverie.demo.learning import Settings
from reverie.demo.messages import Evaluation, Progress, Restart

SHORT = Settings(warm_up_items=200, checks=4, check_episodes=2, final_episodes=3, items_max=500)


def children():
    """The processes that this one has started and not waited for."""
    return [
        int(child)
        for task in Path("/proc/self/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


@pytest.fixture(scope="module")
def short_run():
    before = children()
    messages = []
    during = []

    def tell(message):
        messages.append(message)
        during.append(len(children()) - len(before))

    outcome = served.train(5, 1_000, tell, actors=3, settings=SHORT)
    assert children() == before
    return messages, outcome, during


def test_a_server_and_actors_are_processes_of_their_own_and_end_with_it(short_run):
    _, _, during = short_run
    assert set(during) == {4}


def test_it_tells_what_the_embedded_form_tells(short_run):
    messages, outcome, _ = short_run
    checks = [message for message in messages if isinstance(message, Evaluation)]
    assert [check.step for check in checks] == [0, 250, 500, 750, 1_000]
    progress = [message for message in messages if isinstance(message, Progress)]
    assert [message.step for message in progress] == [250, 500, 750, 1_000]
    assert all(message.loss > 0 for message in progress)
    assert progress[-1].episode_return >= 8
    assert outcome.kept_step in (check.step for check in checks)
    assert outcome.greedy_episodes == 3


def test_the_rate_limiter_keeps_actors_and_learner_together(short_run):
    _, outcome, _ = short_run
    learned = 64 * (1_000 - 203)
    inserts = learned / outcome.samples_per_insert
    # Batches are drawn ahead, so a few more were sampled than learned from.
    assert 1_000 - served._AHEAD_BATCHES - 1 <= inserts <= 1_000 + served._AHEAD_BATCHES


class Stopped(Exception):  # noqa: N818 - no error
    """Ends a training in the middle."""


def test_a_training_goes_on_where_it_was(tmp_path):
    """And its rate limiter with it: the learner waits for nothing that was there."""

    def stop(message):
        if isinstance(message, Progress) and message.step == 500:
            raise Stopped

    with pytest.raises(Stopped):
        served.train(5, 1_000, stop, actors=2, settings=SHORT, folder=tmp_path)
    messages = []
    outcome = served.train(5, 1_000, messages.append, actors=2, settings=SHORT, folder=tmp_path)
    restart = messages[0]
    assert isinstance(restart, Restart)
    assert restart.step == 500
    assert restart.found >= restart.confirmed >= 500 - served._AHEAD_BATCHES
    checks = [message.step for message in messages if isinstance(message, Evaluation)]
    assert checks == [750, 1_000]
    assert 40 < outcome.samples_per_insert < 64
    assert outcome.kept_step in (0, 250, 500, 750, 1_000)


def test_actors_that_are_gone_are_told_of(monkeypatch):
    monkeypatch.setattr(served, "_PATIENCE_S", 1.0)
    with pytest.raises(RuntimeError, match=r"no batch came for 1 s; the actors are gone"):
        served.train(5, 1_000, lambda _: None, actors=0, settings=SHORT)


def test_what_an_actor_said_last_is_told(monkeypatch):
    monkeypatch.setattr(served, "_PATIENCE_S", 2.0)
    monkeypatch.setattr(served.dataclasses, "asdict", lambda _: {"hidden": [], "no_such": 1})
    with pytest.raises(RuntimeError, match=r"(?s)actors are gone:.*no_such"):
        served.train(5, 1_000, lambda _: None, actors=2, settings=SHORT)


def test_a_server_that_does_not_start_is_told_of(monkeypatch):
    monkeypatch.setattr(served, "_CONFIG", "tables = 3")
    with pytest.raises(RuntimeError, match=r"did not start: .*tables is 3; it must be an array"):
        served.train(5, 1_000, lambda _: None, actors=1, settings=SHORT)
