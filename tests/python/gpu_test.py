"""Tensors on a GPU in every room that takes tensors, and trainings on a GPU."""

import contextlib

import numpy as np
import pytest

import reverie
from eventually import eventually
from reverie.agents import TrainSettings, evaluate, train, tune_cores
from reverie.errors import InvalidArgumentError

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

from reverie.agents.torch_agent import TorchAgent  # noqa: E402
from reverie.agents.torch_training import TorchPolicy, TorchTrainer  # noqa: E402

GPU = "cuda:0"
SHORT = TrainSettings(seed=1, steps=700, hidden=(32,), warmup_steps=200, batch_size=32)


def test_batched_calls_are_gathered_on_the_device():
    places = []

    def forward(x):
        places.append((x.device.type, len(x)))
        return x * 3

    with reverie.Rpc("server") as server, reverie.Rpc("client") as client:
        server.define("forward", forward, batch_size=4, device=GPU)
        client.connect(server.listen())
        calls = [client.async_("server", "forward", torch.full((2,), float(i))) for i in range(8)]
        for i, call in enumerate(calls):
            assert torch.equal(call.result().cpu(), torch.full((2,), 3.0 * i))
    assert {place for place, _ in places} == {"cuda"}
    assert sum(count for _, count in places) == 8


@contextlib.contextmanager
def members(count):
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(reverie.Broker())
        address = broker.listen()
        made = []
        for i in range(count):
            rpc = stack.enter_context(reverie.Rpc(f"m{i}"))
            rpc.connect(address)
            made.append(stack.enter_context(reverie.Group(rpc, "g")))
        for group in made:
            group.wait(count)
        yield made


def test_an_all_reduce_returns_tensors_on_their_device():
    with members(2) as groups:
        ours = [{"w": torch.full((300, 7), i + 1.0, device=GPU)} for i in range(2)]
        rounds = [group.all_reduce("t", value) for group, value in zip(groups, ours, strict=True)]
        for done in rounds:
            result = done.result(60)["w"]
            assert result.device == torch.device(GPU)
            assert torch.equal(result.cpu(), torch.full((300, 7), 3.0))


def test_nests_of_tensors_on_gpus_and_the_host_are_reduced_alike():
    """One wait for all tensors of a nest, through one block of locked memory."""
    with members(2) as groups:

        def nest(i):
            base = torch.arange(24.0, device=GPU).reshape(4, 6) * (i + 1)
            return {
                "whole": base,
                "columns": base[:, 1:4].T,
                "empty": base[:0],
                "scalar": base[1, 1],
                "half": base.half(),
                "bfloat16": base.to(torch.bfloat16),
                "int64": base.long(),
                "needs gradients": base.clone().requires_grad_(),
                "host": base.cpu(),
                "numpy": base.cpu().numpy(),
                "large": torch.full((3 << 20,), i + 1.0, device=GPU),
                "odd": torch.full((5,), i + 1, dtype=torch.uint8, device=GPU),
            }

        for _ in range(3):
            ours = [nest(i) for i in range(2)]
            rounds = [group.all_reduce("n", n) for group, n in zip(groups, ours, strict=True)]
            for tensor in ours[0].values():  # what was queued later is not in the sum
                if isinstance(tensor, torch.Tensor) and not tensor.requires_grad:
                    tensor.zero_()
            for done in rounds:
                result = done.result(60)
                for name, one in nest(0).items():
                    if name == "numpy":
                        assert (result[name] == one * 3).all()
                        continue
                    assert result[name].device == one.device, name
                    assert result[name].dtype == one.dtype, name
                    assert torch.equal(result[name], one.detach() * 3), name


def test_members_with_models_on_a_gpu_train_one_model():
    with members(2) as groups, contextlib.ExitStack() as stack:
        models = [torch.nn.Linear(5, 3).to(GPU) for _ in groups]
        accumulators = [
            stack.enter_context(reverie.Accumulator("model", list(model.parameters()), (), group))
            for model, group in zip(models, groups, strict=True)
        ]
        steps = [0, 0]

        def turned():
            for i, (it, model) in enumerate(zip(accumulators, models, strict=True)):
                it.update()
                if it.wants_state():
                    it.set_state({"steps": steps[i]})
                if it.has_new_state():
                    it.state()
                if it.wants_gradients():
                    model(torch.full((4, 5), 1.0 + i, device=GPU)).square().mean().backward()
                    it.reduce_gradients(4)
                if it.has_gradients():
                    with torch.no_grad():
                        for parameter in model.parameters():
                            parameter -= 0.1 * parameter.grad
                    it.zero_gradients()
                    steps[i] += 1
            return min(steps) >= 5

        eventually(turned)
        for ours, theirs in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert ours.device == torch.device(GPU)
            if steps[0] == steps[1]:
                assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("algorithm", "env", "actors"),
    [
        ("dqn", "LunarLander-v3", 1),
        ("ddqn", "CartPole-v1", 0),
        ("ddpg", "Pendulum-v1", 1),
        ("td3", "Pendulum-v1", 0),
        ("sac", "Pendulum-v1", 1),
    ],
)
def test_each_algorithm_trains_on_a_gpu(tmp_path, algorithm, env, actors):
    settings = TrainSettings(**{**vars(SHORT), "actors": actors, "envs_per_actor": 4})
    result = train(
        algorithm, env, settings, learner="torch", device=GPU, out=tmp_path, final_episodes=1
    )
    assert (result.progress.end, result.progress.batches) == ("all steps", 500)
    assert np.isfinite(result.progress.loss)
    assert np.isfinite(result.greedy_returns).all()
    for tensor in TorchPolicy.load(tmp_path / "policy.safetensors").state.values():
        assert tensor.isfinite().all()
    assert np.isfinite(evaluate(tmp_path, episodes=1)).all()


def test_training_on_a_gpu_matches_training_on_a_cpu(monkeypatch):
    """With the same seed and batches the networks stay close to those of a CPU."""
    outcomes = []
    settings = TrainSettings(**{**vars(SHORT), "steps": 400})
    for device in ("cpu", GPU):
        with TorchTrainer("ddqn", "CartPole-v1", settings, device=device) as trainer:
            monkeypatch.setattr(trainer.agent, "act", lambda obs, **_: np.arange(len(obs)) % 2)
            trainer.start()
            assert trainer.wait(120)
            outcomes.append(trainer.best_policy().state)
    for name, ours in outcomes[0].items():
        torch.testing.assert_close(outcomes[1][name], ours, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("then", [GPU, "cpu"])
def test_a_training_on_a_gpu_resumes_on_a_gpu_or_cpu(tmp_path, then):
    settings = TrainSettings(**{**vars(SHORT), "actors": 1, "steps": 5_000})
    with TorchTrainer("sac", "Pendulum-v1", settings, device=GPU) as trainer:
        trainer.start()
        eventually(lambda: trainer.progress().batches >= 50)
        trainer.save(tmp_path)
        saved = trainer.progress().batches
        trainer.stop()
    settings = TrainSettings(**vars(settings))
    with TorchTrainer("sac", "Pendulum-v1", settings, device=then, resume=tmp_path) as trainer:
        assert 50 <= trainer.progress().batches <= saved
        trainer.start()
        eventually(lambda: trainer.progress().batches >= saved + 50)
        trainer.stop()


def test_tune_cores_measures_the_device():
    tuning = tune_cores("ddqn", "CartPole-v1", SHORT, cores=2, learner="torch", device=GPU)
    assert 1 <= tuning.actor_cores <= 2  # no core is kept for the learner
    assert (tuning.learner_cores, tuning.settings.learners) == (1, 1)


def test_a_gradient_that_is_not_finite_is_refused_and_named():
    with TorchTrainer("ddqn", "CartPole-v1", SHORT, device=GPU) as trainer:
        agent = trainer.agent
    batch = {
        "obs": torch.full((32, 4), float("nan"), device=GPU),
        "next_obs": torch.zeros(32, 4, device=GPU),
        "action": torch.zeros(32, dtype=torch.int64, device=GPU),
        "reward": torch.zeros(32, device=GPU),
        "discount": torch.ones(32, device=GPU),
        "weights": torch.ones(32, device=GPU),
    }
    before = {name: value.clone() for name, value in agent.actor.state_dict().items()}
    agent.learn(batch, progress=0.0)
    for name, value in agent.actor.state_dict().items():
        assert torch.equal(value, before[name])
    with pytest.raises(InvalidArgumentError, match=r"not finite in dense\.0\.weight"):
        agent.check_finite()


def test_the_learner_on_a_gpu_learns_from_images():
    with reverie.EnvPool("CartPole-v1", 1) as pool:
        spec = pool.spec

    class Pictures:
        def __getattr__(self, name):
            return getattr(spec, name)

        observation = type("Space", (), {"shape": (84, 84, 4), "dtype": np.dtype(np.uint8)})()
        spaces = ()

    agent = TorchAgent("ddqn", Pictures(), SHORT, device=GPU)
    obs = np.random.default_rng(1).integers(0, 256, (32, 84, 84, 4), dtype=np.uint8)
    assert agent.act(obs, step=10**6, explore=False).shape == (32,)
    batch = {
        "obs": obs,
        "next_obs": obs,
        "action": np.zeros(32, np.int64),
        "reward": np.ones(32, np.float32),
        "discount": np.zeros(32, np.float32),
        "weights": np.ones(32, np.float32),
    }
    first = float(agent.learn(batch, progress=0.0).mean())
    for _ in range(100):
        last = float(agent.learn(batch, progress=0.0).mean())
    assert last < first / 2


def test_batches_on_the_device_are_not_overwritten_by_later_transfers():
    obs = np.zeros(4, np.float32)
    buffer = reverie.ReplayBuffer(1_000, seed=1)
    for i in range(1_000):
        buffer.add(obs + i, 0, float(i), obs + i + 1, False)
    kept = [buffer.sample(64, output="torch", device=GPU, pin_memory=True) for _ in range(200)]
    for batch in kept:
        row = batch["obs"].cpu()
        assert torch.equal(row[:, 0], batch["reward"].cpu())
        assert torch.equal(row + 1, batch["next_obs"].cpu())
