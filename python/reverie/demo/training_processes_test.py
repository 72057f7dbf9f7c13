"""Trainings that fail, and trainings that are stopped."""

import os

import pytest

from reverie.demo import training_processes as module
from reverie.demo.messages import Failure, Outcome
from reverie.demo.training_processes import TrainingProcesses


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """Replaces the worker by a program; ``seed`` and ``tell`` are at its hand."""

    def replace(text):
        program = tmp_path / "program.py"
        program.write_text(f"import sys\nseed = int(sys.argv[1])\n{text}\n")
        monkeypatch.setattr(module, "_WORKER", (str(program),))

    return replace


def told(seeds, *, size=2):
    with TrainingProcesses(seeds, 2_000, size=size) as processes:
        return sorted(processes.messages(), key=lambda message: message.seed)


OUTCOME = (
    "from reverie.demo.messages import Outcome, to_line\n"
    "print(to_line(Outcome(seed, int(sys.argv[2]), 1.0, 60.0, 0, 500.0, 500.0, 100)))"
)


def test_every_seed_is_trained(worker):
    worker(OUTCOME)
    messages = told(range(5))
    assert [message.seed for message in messages] == [0, 1, 2, 3, 4]
    assert {type(message) for message in messages} == {Outcome}
    assert {message.steps for message in messages} == {2_000}


def test_a_training_is_told_its_actors(worker):
    worker(f"assert sys.argv[3] == '3', sys.argv\n{OUTCOME}")
    with TrainingProcesses([0], 2_000, size=1, actors=3) as processes:
        assert [type(message) for message in processes.messages()] == [Outcome]


def test_a_process_gets_one_thread_for_its_linear_algebra(worker):
    worker(f"import os\nassert os.environ['OPENBLAS_NUM_THREADS'] == '1'\n{OUTCOME}")
    assert isinstance(told([0])[0], Outcome)


def test_what_a_failing_process_said_last_is_its_failure(worker):
    worker("raise OSError('no such luck')")
    (message,) = told([3])
    assert isinstance(message, Failure)
    assert "no such luck" in message.text


def test_a_process_that_ends_without_a_word_is_a_failure(worker):
    worker("pass")
    assert told([3]) == [Failure(3, "its process ended with status 0 and no outcome")]


def test_a_word_that_is_no_message_is_a_failure(worker):
    worker("print('hello')")
    (message,) = told([3])
    assert isinstance(message, Failure)


def test_one_failure_leaves_the_other_seeds_be(worker):
    worker(f"if seed == 1: sys.exit(3)\n{OUTCOME}")
    assert [type(message) for message in told([0, 1, 2])] == [Outcome, Failure, Outcome]


def test_leaving_ends_what_still_runs(worker):
    worker(
        "import os, threading\nfrom reverie.demo.messages import Failure, to_line\n"
        "print(to_line(Failure(seed, str(os.getpid()))), flush=True)\nthreading.Event().wait()"
    )
    with TrainingProcesses([0, 1, 2], 2_000, size=2) as processes:
        messages = processes.messages()
        ids = [int(next(messages).text) for _ in range(2)]
    for process_id in ids:
        with pytest.raises(ProcessLookupError):
            os.kill(process_id, 0)
