"""A short training over sockets: processes start, work together, end, and are restarted."""

import os

import pytest

from child_processes import children_of
from reverie.demo import served


class Told(list):
    """Records what a training reports; interrupts it at step ``stop_at``."""

    stop_at = None

    def __call__(self, kind, **numbers):
        self.append((kind, numbers))
        self.children = len(children_of(os.getpid()))
        if kind == "progress" and numbers["step"] == self.stop_at:
            raise InterruptedError

    def of(self, kind):
        return [numbers for name, numbers in self if name == kind]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A training that was interrupted in the middle, and the one that resumes it."""
    folder = tmp_path_factory.mktemp("served")
    before = len(children_of(os.getpid()))
    first, second = Told(), Told()
    first.stop_at = 1_500
    with pytest.raises(InterruptedError):
        served.learn(5, 2_000, 3, folder, first)
    assert len(children_of(os.getpid())) == before
    served.learn(5, 2_000, 3, folder, second)
    assert len(children_of(os.getpid())) == before
    return first, second, before


def test_the_server_and_actors_are_processes_that_end_with_the_run(runs):
    first, second, before = runs
    assert first.children == second.children == before + 4


def test_a_run_reports_its_progress_and_its_outcome(runs):
    first, second, _ = runs
    assert [at["step"] for at in first.of("progress")] == [1_250, 1_500]
    assert [at["step"] for at in second.of("progress")] == [1_750, 2_000]
    assert all(at["loss"] > 0 for at in first.of("progress") + second.of("progress"))
    (outcome,) = second.of("outcome")
    assert outcome["steps"] == 2_000
    assert 8 <= outcome["greedy_least"] <= outcome["greedy_mean"] <= 500
    tried = [at["step"] for at in first.of("evaluation") + second.of("evaluation")]
    assert tried == list(range(1_100, 2_001, 100))
    assert outcome["kept_step"] in tried


def test_a_restarted_run_resumes_with_all_confirmed_items(runs):
    _, second, _ = runs
    kind, restart = second[0]
    assert kind == "restart"
    assert restart["step"] == 1_500
    assert restart["found"] >= restart["confirmed"] >= 1_500 - served._AHEAD_BATCHES


def test_the_rate_limiter_keeps_inserts_and_samples_in_step(runs):
    _, second, _ = runs
    # Batches are drawn ahead, so a few more were sampled than used.
    sampled = 64 * (2_000 - 1_000)
    ahead = 64 * served._AHEAD_BATCHES
    inserts = sampled / second.of("progress")[-1]["samples_per_insert"]
    assert (sampled - 2 * ahead) / 64 <= inserts - 1_000 <= (sampled + 2 * ahead) / 64


def test_missing_actors_are_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(served, "PATIENCE_S", 1.0)
    with pytest.raises(RuntimeError, match=r"no batch came for 1 s; the actors are gone"):
        served.learn(5, 2_000, 0, tmp_path, Told())


def test_a_server_that_does_not_start_is_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(served, "_CONFIG", "tables = 3")
    with pytest.raises(RuntimeError, match=r"did not start: .*tables is 3; it must be an array"):
        served.learn(5, 2_000, 1, tmp_path, Told())
