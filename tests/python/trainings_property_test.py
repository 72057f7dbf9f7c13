"""Random programs of three threads over trainings: the native one, and a loop of the user.

Each rule gives one call, valid or not, to one of three threads, which run them in parallel. A call
has the right result or raises an error of the package; what was saved is what was trained.
"""

import gc
import glob
import os
import random
import tempfile
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

import reverie
from calling_threads import CallingThread
from eventually import eventually

THREADS = 3
STEPS = 400
SETTINGS = reverie.TrainSettings(
    seed=1, steps=STEPS, warmup_steps=50, hidden=(4,), batch_size=4, actors=1
)

threads = st.integers(0, THREADS - 1)
which = st.sampled_from(["trainer", "loop"])
timeouts = st.sampled_from([0.0, 0.001, 0.01])
counts = st.sampled_from([0, 1, 5, 1 << 40, -1])
folders = st.sampled_from(["one", "one", "two", "", "none/at/all", "\0"])


class Agent:
    """A policy and learner for CartPole that counts the batches it has learned from."""

    def __init__(self):
        self.batches = np.zeros(1)

    def act(self, observation, *, step, explore):  # noqa: ARG002
        return np.zeros(len(observation), int)

    def learn(self, batch, *, progress):  # noqa: ARG002
        self.batches += 1
        return np.ones(len(batch["reward"]))

    def state_dict(self):
        return {"batches": self.batches.copy()}

    def load_state_dict(self, state):
        self.batches = state["batches"].copy()


def check_progress(now):
    assert 0 <= now.steps <= STEPS
    assert now.episodes >= 0


class Trainings(RuleBasedStateMachine):
    @initialize(saves=st.booleans())
    def begin(self, saves):
        self.folder = tempfile.TemporaryDirectory()
        self.errors = []
        self.workers = [CallingThread(self.errors) for _ in range(THREADS)]
        self.agent = Agent()
        self.training = {
            "trainer": reverie.agents.Trainer("dqn", "CartPole-v1", SETTINGS),
            "loop": reverie.agents.Loop(self.agent, self.agent, "CartPole-v1", SETTINGS),
        }
        self.saved = []
        if saves:
            self.save(0, "loop", "one")

    def path(self, kind, folder):
        return f"{self.folder.name}/{kind}-{folder}" if folder else ""

    @rule(thread=threads, kind=which)
    def start(self, thread, kind):
        self.workers[thread].do(self.training[kind].start)

    @rule(thread=threads, kind=which)
    def look(self, thread, kind):
        def call():
            training = self.training[kind]
            check_progress(training.progress())
            assert all(length > 0 for _, _, length in training.episodes())
            repr(training)

        self.workers[thread].do(call)

    @rule(thread=threads, kind=which, first=counts)
    def read_episodes(self, thread, kind, first):
        self.workers[thread].do(lambda: self.training[kind].episodes(first))

    @rule(thread=threads, kind=which, timeout_s=timeouts)
    def wait(self, thread, kind, timeout_s):
        self.workers[thread].do(lambda: self.training[kind].wait(timeout_s))

    @rule(thread=threads, kind=which, folder=folders)
    def save(self, thread, kind, folder):
        def call():
            path = self.training[kind].save(self.path(kind, folder))
            # A later one of another thread may have replaced it.
            assert path <= max(glob.glob(f"{os.path.dirname(path)}/checkpoint-*"), default="")
            self.saved.append((kind, self.path(kind, folder)))

        self.workers[thread].do(call)

    @rule(thread=threads, folder=folders)
    def load(self, thread, folder):
        self.workers[thread].do(lambda: self.training["loop"].load(self.path("loop", folder)))

    @rule(thread=threads, episodes=counts)
    def evaluate(self, thread, episodes):
        def call():
            trainer = self.training["trainer"]
            policy = trainer.policy()
            assert np.isfinite(policy(np.zeros((2, 4), np.float32))).all()
            if episodes < 10:
                trainer.evaluate(policy, episodes=episodes)
            trainer.best_policy()

        self.workers[thread].do(call)

    @rule(thread=threads, kind=which)
    def stop(self, thread, kind):
        self.workers[thread].do(self.training[kind].stop)

    @rule()
    def settle(self):
        for worker in self.workers:
            worker.settle()
        assert self.errors == []

    def teardown(self):
        if not hasattr(self, "workers"):
            return
        for index, name in enumerate(self.training):
            self.workers[index].do(self.training[name].stop)
        for worker in self.workers:
            worker.stop()
        assert self.errors == []
        self.check_what_was_saved()
        self.folder.cleanup()

    def check_what_was_saved(self):
        """Checks that a training of the same kind can resume from the last save in each folder."""
        # Dropping them releases the folders, once no refused call's error refers to them either.
        dropped = [weakref.ref(training) for training in self.training.values()]
        self.training.clear()
        eventually(lambda: gc.collect() >= 0 and not any(reference() for reference in dropped))
        for kind, path in dict.fromkeys(self.saved):
            if kind == "trainer":
                with reverie.agents.Trainer("dqn", "CartPole-v1", SETTINGS, resume=path) as resumed:
                    check_progress(resumed.progress())
            else:
                agent = Agent()
                with reverie.agents.Loop(agent, agent, "CartPole-v1", SETTINGS) as resumed:
                    resumed.load(path)
                    check_progress(resumed.progress())
                    assert agent.batches[0] == resumed.progress().batches


def run_programs(number, examples, steps):
    print(f"REVERIE_SEED={number}")
    rules = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # no shrinking, since threads do not repeat what they did
        suppress_health_check=list(HealthCheck),
    )
    # `seed` decorates a test function, which here is the class.
    run_state_machine_as_test(seed(number)(Trainings), settings=rules)


def test_random_programs_over_trainings_behave_correctly_or_are_refused():
    run_programs(int(os.environ.get("REVERIE_SEED", "1")), examples=6, steps=30)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_minute_of_random_programs_over_trainings_behaves_correctly():
    number = int(os.environ.get("REVERIE_SEED", random.randrange(2**32)))
    run_programs(number, examples=150, steps=50)
