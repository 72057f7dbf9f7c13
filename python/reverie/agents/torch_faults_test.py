"""PyTorch's learners with a lost device, gradients that are not finite, or a full disk."""

import os
import resource
import signal

import numpy as np
import pytest

from eventually import eventually
from reverie.agents import TrainSettings, train
from reverie.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
    UnavailableError,
)

torch = pytest.importorskip("torch")

from reverie.agents.torch_agent import TorchAgent  # noqa: E402
from reverie.agents.torch_training import TorchPolicy, TorchTrainer  # noqa: E402
from reverie.envs.pool import EnvPool  # noqa: E402

SHORT = TrainSettings(seed=1, steps=300, hidden=(16,), warmup_steps=100, batch_size=16)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def outcome(trainer):
    return trainer.episodes(), {
        name: tensor.numpy().tobytes() for name, tensor in trainer.best_policy().state.items()
    }


def lose_device(monkeypatch, after, error):
    """Makes the optimiser fail in the middle of step `after`, as if the device were unplugged."""
    step = torch.optim.Adam.step
    taken = [0]

    def failing(optimizer, *arguments, **options):
        taken[0] += 1
        if taken[0] >= after:
            with torch.no_grad():
                optimizer.param_groups[0]["params"][0].add_(1.0)
            raise error
        return step(optimizer, *arguments, **options)

    monkeypatch.setattr(torch.optim.Adam, "step", failing)


LOST = "CUDA error: device lost"


def test_a_lost_device_loses_only_the_work_since_the_last_checkpoint(tmp_path, monkeypatch):
    with TorchTrainer("ddqn", "CartPole-v1", SHORT) as trainer:
        trainer.start()
        trainer.wait()
        expected = outcome(trainer)
    given = TrainSettings(**vars(SHORT))
    with TorchTrainer("ddqn", "CartPole-v1", given) as trainer:
        trainer.start()
        eventually(lambda: trainer.progress().batches >= 10)
        trainer.save(tmp_path / "it")
        lose_device(monkeypatch, 1, RuntimeError(LOST))
        with pytest.raises(UnavailableError, match=f"{LOST}.*last checkpoint.*--device"):
            trainer.wait(60)
        assert trainer.progress().end == "failed"
        # Half a step cannot be resumed from, so the earlier checkpoint stays.
        with pytest.raises(FailedPreconditionError, match="between two steps"):
            trainer.save(tmp_path / "it")
    monkeypatch.undo()
    with TorchTrainer("ddqn", "CartPole-v1", given, resume=tmp_path / "it") as trainer:
        trainer.start()
        trainer.wait()
        assert outcome(trainer) == expected


@pytest.mark.parametrize("actors", [0, 1])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError(LOST), UnavailableError),
        (torch.OutOfMemoryError("no memory"), ResourceExhaustedError),
    ],
)
def test_train_reports_a_lost_device(tmp_path, monkeypatch, actors, error, expected):
    lose_device(monkeypatch, 5, error)
    settings = TrainSettings(**{**vars(SHORT), "actors": actors})
    with (
        pytest.warns(RuntimeWarning, match="no checkpoint was written"),
        pytest.raises(expected, match=str(error)),
    ):
        train("dqn", "CartPole-v1", settings, learner="torch", out=tmp_path / "run")


def made(algorithm, settings, env):
    with EnvPool(env, 1, num_workers=0) as pool:
        return TorchAgent(algorithm, pool.spec, settings)


def batch_for(agent, draw):
    is_discrete = agent.algorithm == "ddqn"
    width = 4 if is_discrete else 3
    action = draw.integers(2, size=16) if is_discrete else draw.uniform(-1, 1, (16, 1))
    return {
        "obs": draw.normal(size=(16, width)).astype(np.float32),
        "next_obs": draw.normal(size=(16, width)).astype(np.float32),
        "action": action if is_discrete else action.astype(np.float32),
        "reward": draw.normal(size=16).astype(np.float32),
        "discount": np.full(16, 0.9, np.float32),
        "weights": np.ones(16, np.float32),
    }


def weights(agent):
    return [p.detach().clone() for p in [*agent.critics.parameters(), *agent.actor.parameters()]]


@pytest.mark.parametrize(("algorithm", "name"), [("ddqn", "value network"), ("td3", "a critic")])
@pytest.mark.parametrize("asks_at_once", [True, False])
def test_a_gradient_that_is_not_finite_is_skipped_and_its_layer_named(
    monkeypatch, algorithm, name, asks_at_once
):
    """The CPU checks at once; a device skips the step itself and reports it later."""
    if not asks_at_once:
        monkeypatch.setattr(
            TorchAgent, "_asks_at_once", property(lambda _: False, lambda *_: None), raising=False
        )
    env = "CartPole-v1" if algorithm == "ddqn" else "Pendulum-v1"
    settings = TrainSettings(
        seed=1, hidden=(8,), **({"policy_delay": 1000} if algorithm == "td3" else {})
    )
    agent = made(algorithm, settings, env)
    draw = np.random.default_rng(1)
    agent.learn(batch_for(agent, draw), progress=0.0)
    before = weights(agent)
    bad = batch_for(agent, draw)
    bad["weights"][3] = np.nan
    words = rf"{name} is not finite in .*dense\.\d\.weight; no step was taken"
    if asks_at_once:
        with pytest.raises(InvalidArgumentError, match=words):
            agent.learn(bad, progress=0.0)
    else:
        agent.learn(bad, progress=0.0)
        with pytest.raises(InvalidArgumentError, match=words):
            agent.check_finite()
    assert all(torch.equal(one, other) for one, other in zip(before, weights(agent), strict=True))
    agent.learn(batch_for(agent, draw), progress=0.0)
    agent.check_finite()
    after = weights(agent)
    assert all(one.isfinite().all() for one in after)
    assert any((one != other).any() for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("algorithm", ["td3", "sac"])
@pytest.mark.parametrize("asks_at_once", [True, False])
def test_critics_do_not_step_if_the_gradient_of_the_policy_is_not_finite(
    monkeypatch, algorithm, asks_at_once
):
    if not asks_at_once:
        monkeypatch.setattr(
            TorchAgent, "_asks_at_once", property(lambda _: False, lambda *_: None), raising=False
        )
    agent = made(algorithm, TrainSettings(seed=1, hidden=(8,), policy_delay=1), "Pendulum-v1")
    draw = np.random.default_rng(1)
    agent.learn(batch_for(agent, draw), progress=0.0)
    bias = agent.actor.dense[-1].bias
    finite = bias.detach().clone()
    with torch.no_grad():
        bias[0] = np.nan
    before = [p.detach().clone() for p in agent.critics.parameters()]
    bad = batch_for(agent, draw)
    bad["discount"][:] = 0  # the targets do not depend on the policy

    def learn():
        agent.learn(bad, progress=0.0)
        agent.check_finite()

    with pytest.raises(InvalidArgumentError, match="the policy is not finite in dense"):
        learn()
    after = list(agent.critics.parameters())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    with torch.no_grad():
        bias.copy_(finite)
        if algorithm == "td3":  # on a device its target has followed it
            agent._target_actor.dense[-1].bias.copy_(finite)
    agent.learn(batch_for(agent, draw), progress=0.0)
    agent.check_finite()
    assert not any(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(one.isfinite().all() for one in weights(agent))


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_the_gradient_of_the_policy_is_of_the_critics_before_their_step(algorithm):
    """Else it depends on how far the critics step."""
    gradients = []
    for rate in (1e-4, 1.0):
        settings = TrainSettings(seed=1, hidden=(8,), policy_delay=1, learning_rate=rate)
        agent = made(algorithm, settings, "Pendulum-v1")
        agent.learn(batch_for(agent, np.random.default_rng(1)), progress=0.0)
        gradients.append([p.grad.clone() for p in agent.actor.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.mark.parametrize("algorithm", ["ddqn", "td3", "sac"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_termination_cuts_off_values_that_are_not_finite(algorithm, value):
    env = "CartPole-v1" if algorithm == "ddqn" else "Pendulum-v1"
    agent = made(algorithm, TrainSettings(seed=1, hidden=(8,)), env)
    with torch.no_grad():
        for critic in agent._target_critics:
            critic.dense[-1].bias.fill_(value)
    batch = batch_for(agent, np.random.default_rng(1))
    batch["discount"][:] = 0
    assert agent.learn(batch, progress=0.0).isfinite().all()
    assert all(one.isfinite().all() for one in weights(agent))


def test_a_full_disk_keeps_the_old_checkpoint_and_policy(tmp_path):
    with TorchTrainer("ddqn", "CartPole-v1", SHORT) as trainer:
        trainer.start()
        trainer.wait()
        trainer.save(tmp_path / "it")
        policy = trainer.best_policy()
        policy.save(tmp_path / "policy.safetensors")
        before = sorted(os.listdir(tmp_path)), sorted(os.listdir(tmp_path / "it"))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        try:
            with pytest.raises(ResourceExhaustedError):
                trainer.save(tmp_path / "it")
            with pytest.raises(OSError, match="large"):
                policy.save(tmp_path / "policy.safetensors")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
    assert (sorted(os.listdir(tmp_path)), sorted(os.listdir(tmp_path / "it"))) == before
    loaded = TorchPolicy.load(tmp_path / "policy.safetensors").state
    assert all(torch.equal(policy.state[name], tensor) for name, tensor in loaded.items())
    TorchTrainer("ddqn", "CartPole-v1", SHORT, resume=tmp_path / "it")


def test_an_evaluation_plays_one_policy_though_another_thread_learns(monkeypatch):
    settings = TrainSettings(
        seed=1,
        steps=700,
        hidden=(16,),
        warmup_steps=100,
        batch_size=16,
        actors=1,
        evaluation_interval=200,
        evaluation_episodes=2,
    )
    with TorchTrainer("ddpg", "Pendulum-v1", settings) as trainer:
        agent, loop = trainer.agent, trainer._loop
        evaluate, keep = loop._greedy_returns, trainer.keep_best
        evaluated, kept = [], []

        def networks():
            return torch.cat([part.flatten() for part in agent.acting_state().values()])

        def played(*arguments):
            before = networks()
            agent.publish()  # as the learner does every few steps
            returns = evaluate(*arguments)
            evaluated.append(networks())
            assert torch.equal(before, evaluated[-1])
            return returns

        def best():
            keep()
            kept.append(networks())

        monkeypatch.setattr(loop, "_greedy_returns", played)
        monkeypatch.setattr(trainer, "keep_best", best)
        trainer.start()
        assert trainer.wait(60.0)
        assert trainer.progress().end == "all steps"
    assert len(evaluated) == 3
    assert kept
    assert all(any(torch.equal(one, other) for other in evaluated) for one in kept)
