"""Trainings with the user's own policy and learner, and with PyTorch."""

import json
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie.__main__ import main
from reverie.agents import Loop, TrainSettings, evaluate, loop_envs, train, tune_cores
from reverie.agents.episodes import environment_seed
from reverie.errors import (
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnsupportedTypeError,
)

SHORT = TrainSettings(seed=1, steps=400, hidden=(16,), warmup_steps=100, batch_size=16)


class Tabular:
    """Values that are linear in four numbers, learned with NumPy only."""

    def __init__(self, seed=1):
        self.random = np.random.default_rng(seed)
        self.weights = np.zeros((4, 2), np.float32)
        self.batches = 0
        self.progress = []

    def act(self, observation, *, step, explore):
        if explore and step < 200:
            return self.random.integers(2, size=len(observation))
        return (observation @ self.weights).argmax(1)

    def learn(self, batch, *, progress):
        self.batches += 1
        self.progress.append(progress)
        rows = np.arange(len(batch["reward"]))
        value = (batch["next_obs"] @ self.weights).max(1)
        target = batch["reward"] + batch["discount"] * value
        error = (batch["obs"] @ self.weights)[rows, batch["action"]] - target
        for row, action in enumerate(batch["action"]):
            self.weights[:, action] -= 1e-3 * error[row] * batch["obs"][row] / len(rows)
        return np.abs(error)


def run(agent, settings=SHORT, **options):
    with Loop(agent, agent, "CartPole-v1", settings, **options) as loop:
        loop.start()
        assert loop.wait(60)
        return loop


def test_a_custom_learner_is_trained():
    agent = Tabular()
    loop = run(agent)
    progress = loop.progress()
    assert (progress.end, progress.steps, progress.batches) == ("all steps", 400, 300)
    assert progress.measured_interval == 1.0
    assert agent.batches == 300
    assert agent.progress == sorted(agent.progress)
    assert sum(episode.length for episode in loop.episodes()) <= 400
    assert loop.buffer.max_priority > 0


def test_the_same_seed_gives_the_same_single_threaded_run():
    first, again = Tabular(), Tabular()
    episodes = [run(agent).episodes() for agent in (first, again)]
    assert episodes[0] == episodes[1]
    np.testing.assert_array_equal(first.weights, again.weights)


@pytest.mark.parametrize("backend", ["native", "thread"])
def test_acting_sampling_and_learning_run_on_threads(backend):
    settings = TrainSettings(
        seed=1,
        steps=600,
        warmup_steps=100,
        batch_size=16,
        actors=1,
        envs_per_actor=4,
        update_interval=2.0,
        evaluation_interval=200,
        evaluation_episodes=2,
    )
    agent = Tabular()
    loop = run(agent, settings, env_backend=backend)
    progress = loop.progress()
    assert progress.batches == progress.batch_count == 250
    assert abs(progress.measured_interval - 2.0) < 0.1
    assert len(loop.evaluations()) == 3
    assert 0 <= loop.idle_share() <= 1


@pytest.mark.parametrize("actors", [0, 1])
def test_every_batch_is_learned_from_if_the_interval_is_not_a_binary_fraction(actors):
    """100 + 330 * 1.1 is 463.00000000000006 in floats: a step that the training does not have."""
    settings = TrainSettings(**{**vars(SHORT), "steps": 463, "update_interval": 1.1})
    progress = run(Tabular(), TrainSettings(**{**vars(settings), "actors": actors})).progress()
    assert (progress.batches, progress.batch_count) == (330, 330)


@pytest.mark.parametrize("actors", [0, 1])
def test_a_loop_passes_on_observations_of_dict_and_tuple_spaces(actors):
    gymnasium = pytest.importorskip("gymnasium")
    spaces = gymnasium.spaces

    class Nested(gymnasium.Env):
        """Episodes of four steps; each observation says its step, and which episode it is of."""

        observation_space = spaces.Dict(
            at=spaces.Box(0, 99, (2,), np.float32),
            which=spaces.Tuple([spaces.Discrete(1000), spaces.MultiBinary(3)]),
        )
        action_space = spaces.Discrete(2)
        episode = 0

        def seen(self):
            at = np.full(2, self.steps, np.float32)
            return {"at": at, "which": (self.episode, np.array([1, 0, 1], np.int8))}

        def reset(self, *, seed=None, options=None):  # noqa: ARG002
            super().reset(seed=seed)
            self.steps = 0
            self.episode += 1
            return self.seen(), {}

        def step(self, _action):
            self.steps += 1
            return self.seen(), 1.0, self.steps == 4, False, {}

    class Agent:
        batches = 0

        def act(self, observation, *, step, explore):  # noqa: ARG002
            count = len(observation["at"])
            assert observation["at"].shape == (count, 2)
            assert (observation["at"] < 4).all()  # of an episode that goes on
            assert observation["which"][0].shape == (count,)
            assert observation["which"][1].tolist() == [[1, 0, 1]] * count
            return np.zeros(count, int)

        def learn(self, batch, *, progress):  # noqa: ARG002
            self.batches += 1
            obs, then = batch["obs"], batch["next_obs"]
            np.testing.assert_array_equal(then["at"], obs["at"] + 1)
            np.testing.assert_array_equal(then["which"][0], obs["which"][0])
            np.testing.assert_array_equal(batch["terminated"], then["at"][:, 0] == 4)

    agent = Agent()
    settings = TrainSettings(
        seed=1, steps=60, warmup_steps=20, batch_size=16, actors=actors, envs_per_actor=2
    )
    with Loop(agent, agent, Nested, settings, env_backend="thread") as loop:
        loop.start()
        assert loop.wait(60)
        assert loop.evaluate(episodes=3) == [4.0] * 3
        assert loop.buffer.stats["cuts"] == 0
        assert {episode.episode_return for episode in loop.episodes()} == {4.0}
    assert agent.batches == 40


def endless(reward=1.0):
    """A function that makes environments whose episodes have no end."""
    gymnasium = pytest.importorskip("gymnasium")

    class Endless(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):  # noqa: ARG002
            super().reset(seed=seed)
            return np.zeros(4, np.float32), {}

        def step(self, action):  # noqa: ARG002
            return np.zeros(4, np.float32), reward, False, False, {}

    return Endless


@pytest.mark.parametrize("actors", [0, 1])
def test_stop_ends_an_evaluation_whose_episodes_have_no_end(actors):
    evaluates = threading.Event()

    class Watched(Tabular):
        def act(self, observation, *, step, explore):
            if not explore:
                evaluates.set()
            return super().act(observation, step=step, explore=explore)

    settings = TrainSettings(**{**vars(SHORT), "actors": actors, "evaluation_interval": 150})
    agent = Watched()
    with Loop(agent, agent, endless(), settings, env_backend="thread") as loop:
        loop.start()
        assert evaluates.wait(60)
        loop.stop()
        assert loop.wait(0)
        assert (loop.progress().end, loop.evaluations()) == ("stopped", [])


def test_an_evaluation_counts_episodes_without_an_end_with_their_return_so_far(monkeypatch):
    monkeypatch.setattr(loop_envs, "_EVALUATION_STEPS_MAX", 50)
    agent = Tabular()
    with Loop(agent, agent, endless(2.0), SHORT, env_backend="thread") as loop:
        assert loop.evaluate(episodes=2) == [100.0, 100.0]


def test_a_reward_that_is_not_finite_ends_an_evaluation():
    agent = Tabular()
    with (
        Loop(agent, agent, endless(float("nan")), SHORT, env_backend="thread") as loop,
        pytest.raises(InvalidArgumentError, match="gave a reward or an observation"),
    ):
        loop.evaluate(episodes=2)


def test_batches_can_be_arrays_of_jax():
    jax = pytest.importorskip("jax")

    class Watched(Tabular):
        def learn(self, batch, *, progress):
            of_jax = {name for name, column in batch.items() if isinstance(column, jax.Array)}
            assert of_jax == batch.keys() - {"tickets"}
            on_host = {name: np.asarray(column) for name, column in batch.items()}
            return jax.numpy.asarray(super().learn(on_host, progress=progress))

    agent, plain = Watched(), Tabular()
    loop = run(agent, output="jax")
    assert loop.progress().batches == 300
    assert loop.episodes() == run(plain).episodes()
    np.testing.assert_array_equal(agent.weights, plain.weights)


def test_each_evaluation_has_episodes_of_its_own_whatever_the_seed(monkeypatch):
    seeds = []

    def kept(_, episodes, seed, is_stopped):  # noqa: ARG001
        seeds.append(environment_seed(seed))
        return [0.0]

    monkeypatch.setattr(Loop, "_greedy_returns", kept)
    changed = {"seed": 2**50 + 3, "evaluation_interval": 100, "evaluation_episodes": 1}
    run(Tabular(), TrainSettings(**{**vars(SHORT), **changed}))
    assert len(set(seeds)) == len(seeds) == 4


@pytest.mark.parametrize("actors", [0, 1])
def test_what_the_learner_knows_about_its_gradients_ends_the_training(actors):
    class Checked(Tabular):
        def _check_finite(self):
            raise InvalidArgumentError("the last gradient was not finite")

    settings = TrainSettings(**{**vars(SHORT), "actors": actors})
    with pytest.raises(InvalidArgumentError, match="the last gradient"):
        run(Checked(), settings)


def test_errors_may_be_of_half_precision():
    torch = pytest.importorskip("torch")

    class Half(Tabular):
        def learn(self, batch, *, progress):
            return torch.from_numpy(super().learn(batch, progress=progress)).bfloat16()

    for prioritized in (False, True):
        settings = TrainSettings(**{**vars(SHORT), "prioritized": prioritized})
        assert run(Half(), settings).progress().end == "all steps"


def test_stop_ends_every_thread():
    settings = TrainSettings(seed=1, steps=10**9, warmup_steps=100, batch_size=16, actors=1)
    agent = Tabular()
    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        assert not loop.wait(0)
        loop.start()
        with pytest.raises(FailedPreconditionError):
            loop.start()
        eventually(lambda: loop.progress().batches >= 20)
        assert not loop.wait(0)
        loop.stop()
        assert loop.wait(0)
        assert loop.progress().end == "stopped"
    with pytest.raises(FailedPreconditionError):
        loop.start()


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("actors", [0, 1])
@pytest.mark.parametrize("what", ["act", "learn", "nan"])
def test_an_error_raised_by_the_agent_ends_the_training(actors, what, prioritized):
    class Broken(Tabular):
        def act(self, observation, *, step, explore):
            if what == "act" and step > 150:
                raise ZeroDivisionError("act")
            return super().act(observation, step=step, explore=explore)

        def learn(self, batch, *, progress):
            if what == "learn":
                raise ZeroDivisionError("learn")
            errors = super().learn(batch, progress=progress)
            return np.full_like(errors, np.nan) if what == "nan" else errors

    given = {"actors": actors, "prioritized": prioritized}
    settings = TrainSettings(seed=1, steps=400, warmup_steps=100, batch_size=16, **given)
    agent = Broken()
    expected = InvalidArgumentError if what == "nan" else ZeroDivisionError
    with Loop(agent, agent, "CartPole-v1", settings) as loop:
        loop.start()
        with pytest.raises(expected, match="finite" if what == "nan" else what):
            loop.wait(60)
        assert loop.progress().end == "failed"


def test_wrong_arguments_are_refused():
    agent = Tabular()
    with pytest.raises(UnsupportedTypeError, match="act"):
        Loop(object(), agent, "CartPole-v1")
    with pytest.raises(UnsupportedTypeError, match="learn"):
        Loop(agent, object(), "CartPole-v1")
    with pytest.raises(InvalidArgumentError, match="learners"):
        Loop(agent, agent, "CartPole-v1", TrainSettings(learners=2))
    with pytest.raises(InvalidArgumentError, match="batch_size"):
        Loop(agent, agent, "CartPole-v1", TrainSettings(batch_size=0))
    with pytest.raises(reverie.ReverieError, match="CartPol"):
        Loop(agent, agent, "CartPol-v1")
    with pytest.raises(InvalidArgumentError, match="device"):
        train("dqn", "CartPole-v1", SHORT, device="cuda:0")
    with pytest.raises(InvalidArgumentError, match="learner"):
        train("dqn", "CartPole-v1", SHORT, learner="tensorflow")


# --- PyTorch.

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread():
    """Uses one thread, since more do not help with networks as small as these, and wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


PICTURES = """
    import gymnasium
    import numpy as np


    class Squares(gymnasium.Env):
        '''A bright half: the action is its side.'''

        observation_space = gymnasium.spaces.Box(0, 255, (12, 12, 1), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.count = 0
            return self._picture(), {}

        def step(self, action):
            reward = float(action == self.side)
            self.count += 1
            return self._picture(), reward, self.count == 10, False, {}

        def _picture(self):
            self.side = int(self.np_random.integers(2))
            picture = np.zeros((12, 12, 1), np.uint8)
            picture[:, 6 * self.side : 6 * self.side + 6] = 255
            return picture


    gymnasium.register("Squares-v0", Squares)
"""


@pytest.fixture
def squares(tmp_path, monkeypatch):
    gymnasium = pytest.importorskip("gymnasium")
    (tmp_path / "square_envs.py").write_text(textwrap.dedent(PICTURES))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "square_envs:Squares-v0"
    sys.modules.pop("square_envs", None)
    gymnasium.registry.pop("Squares-v0", None)


@pytest.mark.parametrize(
    ("algorithm", "env", "settings"),
    [
        ("dqn", "CartPole-v1", {"actors": 1}),
        ("ddqn", "CartPole-v1", {"n_step": 3, "prioritized": False}),
        ("ddpg", "Pendulum-v1", {"steps": 200}),
        ("td3", "Pendulum-v1", {"steps": 200, "actors": 1, "envs_per_actor": 2}),
        ("sac", "Pendulum-v1", {"steps": 200}),
    ],
)
def test_all_five_algorithms_train_with_pytorch(algorithm, env, settings, tmp_path):
    given = TrainSettings(**{**vars(SHORT), **settings})
    out = tmp_path / "run"
    result = train(algorithm, env, given, learner="torch", final_episodes=2, out=out)
    assert result.progress.end == "all steps"
    assert result.progress.batches == result.progress.batch_count
    assert all(tensor.isfinite().all() for tensor in result.policy.state.values())
    assert json.loads((out / "settings.json").read_text())["learner"] == "torch"
    assert len(evaluate(out, episodes=2)) == 2


def test_the_same_seed_gives_the_same_single_threaded_pytorch_run():
    runs = [train("ddqn", "CartPole-v1", SHORT, learner="torch", final_episodes=1) for _ in "ab"]
    assert runs[0].episodes == runs[1].episodes


def test_a_step_of_the_pytorch_learner_matches_the_native_rule():
    """Compares a batch's TD errors with the rule worked out in NumPy with the same weights."""
    from reverie.agents.torch_agent import TorchAgent
    from reverie.envs.pool import EnvPool

    with EnvPool("CartPole-v1", 1, num_workers=0) as pool:
        spec = pool.spec
    settings = TrainSettings(seed=2, hidden=(8,), learning_rate=1e-3)
    agent = TorchAgent("ddqn", spec, settings)
    draw = np.random.default_rng(1)
    batch = {
        "obs": draw.normal(size=(5, 4)).astype(np.float32),
        "next_obs": draw.normal(size=(5, 4)).astype(np.float32),
        "action": draw.integers(2, size=5),
        "reward": draw.normal(size=5).astype(np.float32),
        "discount": np.array([0.9, 0.9, 0, 0.9, 0.9], np.float32),
        "weights": np.ones(5, np.float32),
    }
    state = {k: v.numpy().copy() for k, v in agent.actor.state_dict().items()}

    def values(obs):
        hidden = np.maximum(obs @ state["dense.0.weight"].T + state["dense.0.bias"], 0)
        return hidden @ state["dense.2.weight"].T + state["dense.2.bias"]

    rows = np.arange(5)
    best = values(batch["next_obs"]).argmax(1)
    target = batch["reward"] + batch["discount"] * values(batch["next_obs"])[rows, best]
    error = values(batch["obs"])[rows, batch["action"]] - target
    errors = agent.learn(batch, progress=0.0)
    np.testing.assert_allclose(errors.numpy(), np.abs(error), rtol=1e-4, atol=1e-5)
    # Adam's first step has the size of the learning rate, against the sign of the gradient.
    moved = agent.actor.state_dict()["dense.2.bias"].numpy() - state["dense.2.bias"]
    slope = np.zeros(2)
    np.add.at(slope, batch["action"], np.clip(error, -1, 1) / 5)
    np.testing.assert_allclose(moved, -1e-3 * np.sign(slope), rtol=1e-3)


@pytest.mark.parametrize(("tau", "moves_at"), [(0.005, [3, 6]), (0.0, [2, 4, 6])])
def test_the_targets_of_td3_in_pytorch_follow_with_the_policy_or_are_copied(tau, moves_at):
    """A share with each step of the policy, or a copy every target_interval gradient steps."""
    from reverie.agents.torch_agent import TorchAgent
    from reverie.envs.pool import EnvPool

    with EnvPool("Pendulum-v1", 1, num_workers=0) as pool:
        spec = pool.spec
    settings = TrainSettings(seed=2, hidden=(8,), policy_delay=3, tau=tau, target_interval=2)
    agent = TorchAgent("td3", spec, settings)
    draw = np.random.default_rng(1)
    batch = {
        "obs": draw.normal(size=(5, 3)).astype(np.float32),
        "next_obs": draw.normal(size=(5, 3)).astype(np.float32),
        "action": draw.uniform(-1, 1, (5, 1)).astype(np.float32),
        "reward": draw.normal(size=5).astype(np.float32),
        "discount": np.full(5, 0.9, np.float32),
        "weights": np.ones(5, np.float32),
    }

    def copied(modules):
        return [p.detach().numpy().copy() for module in modules for p in module.parameters()]

    def have_moved(before, modules):
        return any((a != b).any() for a, b in zip(before, copied(modules), strict=True))

    targets = [agent._target_critics, agent._target_actor]
    for number in range(1, 7):
        before = [copied([agent.critics]), copied([agent.actor]), copied(targets)]
        agent.learn(batch, progress=0.0)
        assert have_moved(before[0], [agent.critics])
        assert have_moved(before[1], [agent.actor]) == (number % 3 == 0)
        assert have_moved(before[2], targets) == (number in moves_at)


def test_one_thread_acts_with_the_newest_weights_of_pytorch():
    from reverie.agents.torch_agent import TorchAgent
    from reverie.envs.pool import EnvPool

    with EnvPool("CartPole-v1", 1, num_workers=0) as pool:
        spec = pool.spec
    draw = np.random.default_rng(1)
    batch = {
        "obs": draw.normal(size=(5, 4)).astype(np.float32),
        "next_obs": draw.normal(size=(5, 4)).astype(np.float32),
        "action": draw.integers(2, size=5),
        "reward": draw.normal(size=5).astype(np.float32),
        "discount": np.full(5, 0.9, np.float32),
        "weights": np.ones(5, np.float32),
    }
    for actors, is_newest in ((0, True), (1, False)):
        agent = TorchAgent("ddqn", spec, TrainSettings(seed=2, hidden=(8,), actors=actors))
        agent.learn(batch, progress=0.0)
        learned = agent.actor.state_dict()
        acting = agent.acting_state()
        assert all(torch.equal(acting[name], learned[name]) for name in learned) == is_newest


def test_actions_whose_range_no_float_holds_are_refused_by_pytorch():
    import dataclasses

    from reverie.agents.torch_agent import TorchAgent
    from reverie.envs.pool import EnvPool

    with EnvPool("Pendulum-v1", 1, num_workers=0) as pool:
        spec = pool.spec
    most = np.full_like(spec.action_high, np.finfo(np.float32).max)
    wide = dataclasses.replace(spec, action_low=-most, action_high=most)
    for algorithm in ("ddpg", "td3", "sac"):
        with pytest.raises(InvalidArgumentError, match="finite difference"):
            TorchAgent(algorithm, wide, SHORT)


def test_convolutional_networks_learn_from_images(squares):
    settings = TrainSettings(
        seed=1,
        steps=500,
        hidden=(32,),
        warmup_steps=100,
        batch_size=32,
        gamma=0.0,
        epsilon_share=0.3,
        epsilon_last=0.02,
        learning_rate=2e-3,
    )
    result = train(
        "dqn", squares, settings, learner="torch", env_backend="thread", final_episodes=5
    )
    assert result.greedy_return > 8.5  # of 10; a random policy gets 5


def test_settings_that_the_pytorch_learner_does_not_support_are_refused():
    with pytest.raises(InvalidArgumentError, match="use ddpg, td3 or sac"):
        train("dqn", "Pendulum-v1", SHORT, learner="torch")
    with pytest.raises(InvalidArgumentError, match="use dqn or ddqn"):
        train("sac", "CartPole-v1", SHORT, learner="torch")
    with pytest.raises(InvalidArgumentError, match="device"):
        train("dqn", "CartPole-v1", SHORT, learner="torch", device="cuda:97")
    with pytest.raises(EnvError):
        train(
            "dqn",
            "CartPole-v1",
            SHORT,
            learner="torch",
            env_backend="thread",
            env_options={"no_such": 1},
        )


def test_tune_cores_measures_the_pytorch_learner():
    tuning = tune_cores("ddqn", "CartPole-v1", SHORT, cores=3, measure_s=0.02, learner="torch")
    assert len(tuning.actor_curve) == len(tuning.learner_curve) == 3
    assert min(tuning.actor_curve + tuning.learner_curve) > 0
    assert (tuning.learner_cores, tuning.settings.learners) == (1, 1)
    assert 1 <= tuning.actor_cores == tuning.settings.actors <= 2  # the third core is the learner's
    one = tune_cores("sac", "Pendulum-v1", SHORT, cores=1, measure_s=0.02, learner="torch")
    assert (one.settings.actors, one.settings.learners) == (0, 1)


def test_tune_cores_measures_many_environments_with_long_returns():
    settings = TrainSettings(
        seed=1, envs_per_actor=512, n_step=5, warmup_steps=4_000, hidden=(8,), batch_size=16
    )
    options = {"cores": 1, "measure_s": 0.01, "learner": "torch"}
    assert tune_cores("dqn", "CartPole-v1", settings, **options).steps_per_s > 0


def test_tune_cores_measures_convolutional_networks(squares):
    options = {"cores": 2, "measure_s": 0.02, "learner": "torch", "env_backend": "thread"}
    tuning = tune_cores("dqn", squares, SHORT, **options)
    assert min(tuning.actor_curve + tuning.learner_curve) > 0
    assert (tuning.settings.actors, tuning.settings.learners) == (1, 1)


def test_all_cores_act_if_an_accelerator_learns(monkeypatch):
    curves = [100.0, 200.0, 300.0], 290.0
    monkeypatch.setattr("reverie.agents.torch_cores.torch_curves", lambda *_, **__: curves)
    options = {"cores": 3, "learner": "torch"}
    tuning = tune_cores("ddqn", "CartPole-v1", SHORT, device="cuda:0", **options)
    assert (tuning.actor_cores, tuning.learner_cores, tuning.steps_per_s) == (3, 1, 290.0)
    assert tune_cores("ddqn", "CartPole-v1", SHORT, **options).actor_cores == 2
    with pytest.raises(InvalidArgumentError, match="give learner='torch'"):
        tune_cores("ddqn", "CartPole-v1", SHORT, device="cuda:0")


def test_the_command_splits_the_cores_for_the_pytorch_learner(capsys):
    arguments = ["--algorithm", "ddqn", "--env", "CartPole-v1", "--hidden", "16"]
    arguments += ["--learner", "torch"]
    assert main(["tune-cores", *arguments, "--cores", "2", "--check-s", "2"]) == 0
    said = capsys.readouterr().out
    assert "1 to act and 1 to learn" in said
    assert "steps/s; the prediction is off by" in said
    auto = ["--actors", "auto", "--learners", "auto", "--steps", "1200", "--final-episodes", "1"]
    assert main(["train", *arguments, *auto, "--quiet"]) == 0


@pytest.mark.parametrize("algorithm", ["ddqn", "sac"])
def test_progress_reports_the_loss_of_the_pytorch_learner(algorithm):
    env = "CartPole-v1" if algorithm == "ddqn" else "Pendulum-v1"
    result = train(algorithm, env, SHORT, learner="torch", agent_timeout_s=60.0, final_episodes=1)
    assert 0 < result.progress.loss < 1e4


def test_progress_reports_the_learners_loss_attribute_if_it_is_a_number():
    agent = Tabular()
    assert np.isnan(run(agent).progress().loss)
    agent = Tabular()
    agent.loss = np.float32(0.25)
    assert run(agent).progress().loss == 0.25
    agent = Tabular()
    agent.loss = lambda: 1
    assert np.isnan(run(agent).progress().loss)


@pytest.mark.parametrize("actors", [0, 1])
def test_priorities_reach_the_replay_buffer_if_batches_are_on_a_device(actors):
    """A tensor on PyTorch's device "meta" has a shape and no values, and cannot be copied back."""
    agent = Tabular()
    learned = []

    def learn(batch, *, progress):  # noqa: ARG001
        learned.append(batch["obs"].device.type)
        return np.full(len(batch["reward"]), 5.0)

    agent.learn = learn
    settings = TrainSettings(**{**vars(SHORT), "actors": actors})
    loop = run(agent, settings, output="torch", device="meta")
    assert learned == ["meta"] * loop.progress().batches
    assert loop.buffer.max_priority > 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_learns_while_the_next_batch_is_transferred():
    settings = TrainSettings(seed=1, steps=3_000, batch_size=256, actors=1, envs_per_actor=16)
    result = train("ddqn", "LunarLander-v3", settings, learner="torch", device="cuda:0")
    assert result.progress.end == "all steps"


FORKING = """
import os, sys
import numpy as np
import reverie
from reverie.agents import Loop, TrainSettings

class Agent:
    def act(self, observation, *, step, explore):
        return np.zeros(len(observation), int)
    def learn(self, batch, *, progress):
        return None
    def state_dict(self):
        return {"w": np.zeros(1)}
    def load_state_dict(self, state):
        pass

agent = Agent()
settings = TrainSettings(seed=1, steps=10**9, actors=1, warmup_steps=100)
with Loop(agent, agent, "CartPole-v1", settings) as loop:
    loop.start()
    for number in range(5):
        child = os.fork()
        if child == 0:
            calls = (loop.start, loop.wait, loop.stop, loop.progress, loop.episodes)
            for call in (*calls, loop.evaluations, lambda: loop.save("x"), lambda: loop.load("x")):
                try:
                    call()
                except reverie.errors.FailedPreconditionError as error:
                    assert "fork" in str(error), error
                else:
                    os._exit(1)
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
sys.exit(3)
"""


def test_a_forked_child_gets_an_error_and_can_exit(tmp_path):
    """Threads of the parent may hold any lock at the fork, and do not exist in the child."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
