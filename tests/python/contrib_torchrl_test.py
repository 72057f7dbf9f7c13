"""TorchRL's data and losses with our replay buffer; skipped if it is not installed."""

import pytest

from reverie.errors import FailedPreconditionError, InvalidArgumentError, UnsupportedTypeError

pytest.importorskip("torchrl")
torch = pytest.importorskip("torch")

from tensordict import TensorDict  # noqa: E402
from torchrl.envs import GymWrapper  # noqa: E402
from torchrl.modules import QValueActor  # noqa: E402
from torchrl.objectives import DQNLoss  # noqa: E402

from reverie.contrib.torchrl import ReplayBuffer  # noqa: E402
from reverie.gym import GymVectorEnv  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def episodes(count, length=4):
    """``[count, length]``: numbered steps of episodes that terminate or are truncated by turns."""
    number = torch.arange(count * length).reshape(count, length, 1).float()
    last = torch.zeros(count, length, 1, dtype=torch.bool)
    last[:, -1] = True
    ends = last.clone()
    ends[1::2] = False  # every second episode is only truncated
    following = {
        "observation": number + 0.5 * last + 1,
        "reward": number,
        "done": last,
        "terminated": ends,
        "truncated": last & ~ends,
    }
    root = {
        "observation": number,
        "action": number[..., 0].long(),
        "sample_log_prob": -number[..., 0],
        "done": torch.zeros_like(last),
        "terminated": torch.zeros_like(last),
        "collector": TensorDict({"traj_ids": torch.zeros(count, length)}, [count, length]),
        "next": TensorDict(following, [count, length]),
    }
    return TensorDict(root, [count, length])


def test_samples_are_the_transitions_that_were_added():
    buffer = ReplayBuffer(100, batch_size=64, seed=1)
    buffer.extend(episodes(4))
    assert len(buffer) == 16
    batch = buffer.sample()
    assert batch.batch_size == torch.Size([64])
    number = batch["observation"]
    assert torch.equal(batch["action"], number[:, 0].long())
    assert torch.equal(batch["sample_log_prob"], -number[:, 0])
    assert torch.equal(batch["next", "reward"], number)
    is_last = number.long() % 4 == 3
    assert torch.equal(batch["next", "observation"], number + 1 + 0.5 * is_last)
    ended = is_last & (number.long() // 4 % 2 == 0)
    assert torch.equal(batch["next", "terminated"], ended)
    assert torch.equal(batch["next", "done"], ended)
    assert "collector" not in set(batch.keys())
    assert buffer.sample(5).batch_size == torch.Size([5])


@pytest.mark.parametrize(
    "name",
    ["mask", "reward", "obs", "next_obs", "discount", "weights", "tickets", "self", "extra", "a/b"],
)
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_entries_of_the_root_may_have_any_name(name, dtype):
    data = episodes(1)
    data[name] = torch.tensor([[1, 0, 1, 0]]).to(dtype)
    buffer = ReplayBuffer(100, batch_size=64, seed=1)
    buffer.extend(data)
    assert len(buffer) == 4
    batch = buffer.sample()
    assert batch[name].dtype == dtype
    assert torch.equal(batch[name].long(), 1 - batch["action"] % 2)
    assert batch["action"].unique().tolist() == [0, 1, 2, 3]
    assert torch.equal(batch["next", "reward"][:, 0].long(), batch["action"])


def test_nested_entries_are_returned_nested():
    data = episodes(2)
    number = data["observation"]

    def seen(at):
        parts = {"pos": at.expand(2, 4, 3).clone(), "cam": {"left": at.to(torch.uint8)}}
        return TensorDict(parts, [2, 4])

    data["observation"] = seen(number)
    data["next", "observation"] = seen(data["next", "observation"])
    data["params"] = TensorDict({"loc": -number, "scale": {"log": number / 2}}, [2, 4])
    data["action"] = TensorDict({"arm": number, "leg": number[..., 0].long()}, [2, 4])
    buffer = ReplayBuffer(100, batch_size=64, seed=1)
    buffer.extend(data)
    batch = buffer.sample()
    arm = batch["action", "arm"]
    assert batch["observation"].batch_size == batch["params", "scale"].batch_size == (64,)
    assert torch.equal(batch["observation", "pos"], arm.expand(64, 3))
    assert batch["next", "observation", "cam", "left"].dtype == torch.uint8
    assert torch.equal(batch["next", "observation", "cam", "left"].float(), arm + 1)
    assert torch.equal(batch["params", "loc"], -arm)
    assert torch.equal(batch["params", "scale", "log"], arm / 2)
    assert torch.equal(batch["action", "leg"], arm[:, 0].long())


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float16,
        torch.uint8,
        torch.bool,
        torch.int32,
    ],
)
def test_entries_of_any_element_type_come_back_as_given(dtype):
    data = episodes(2)
    for name in ("observation", "action", "sample_log_prob"):
        data[name] = data[name].abs().to(dtype)
    for name in ("observation", "reward"):
        data["next", name] = data["next", name].to(dtype)
    data["params"] = TensorDict({"loc": data["observation"]}, [2, 4])
    buffer = ReplayBuffer(100, batch_size=64, seed=1)
    buffer.extend(data)
    batch = buffer.sample()
    entries = ["observation", "action", "sample_log_prob", ("params", "loc")]
    for name in [*entries, ("next", "observation")]:
        assert batch[name].dtype == dtype
    action = batch["action"].float()
    assert set(action.tolist()) == set(data["action"].float().flatten().tolist())
    for name in entries:
        assert torch.equal(batch[name].float().flatten(), action)
    assert batch["next", "reward"].dtype == torch.float32
    assert torch.equal(batch["next", "reward"][:, 0], action)


def test_entries_that_are_no_tensors_are_refused_by_name():
    data = episodes(1)
    data["note"] = [["a", "b", "c", "d"]]
    buffer = ReplayBuffer(10)
    with pytest.raises(UnsupportedTypeError, match=r"data\['note'\] is .*exclude\('note'\)"):
        buffer.extend(data)
    assert len(buffer) == 0
    buffer.extend(data.exclude("note"))
    assert len(buffer) == 4


def test_priorities_are_updated_by_index():
    buffer = ReplayBuffer(100, batch_size=8, prioritized=True, alpha=1.0, seed=1)
    buffer.add(episodes(1)[0, 0])
    buffer.extend(episodes(1)[0, 1:])
    batch = buffer.sample()
    with pytest.raises(InvalidArgumentError, match="td_error"):
        buffer.update_tensordict_priority(batch)
    batch["td_error"] = torch.where(batch["action"] == 2, -5.0, 1e-6).requires_grad_()
    buffer.update_tensordict_priority(batch)
    assert (buffer.sample(64)["action"] == 2).sum() > 10
    buffer.empty()
    assert len(buffer) == 0


def test_images_are_stored_compressed_and_returned_unchanged():
    raw, packed = (ReplayBuffer(1000, codec=codec, seed=1) for codec in ("raw", "auto"))
    for begin in range(0, 600, 100):
        number = torch.arange(begin, begin + 101, dtype=torch.int32) % 256
        pictures = number.to(torch.uint8).reshape(-1, 1, 1).expand(-1, 36, 36)
        over = torch.zeros(100, 1, dtype=torch.bool)
        over[-1] = True
        following = {"pixels": pictures[1:], "reward": torch.ones(100, 1), "done": over}
        data = {"pixels": pictures[:-1], "action": number[:-1].long()}
        data["next"] = TensorDict(following, [100])
        for buffer in (raw, packed):
            buffer.extend(TensorDict(data, [100]))
    assert packed.replay.memory_bytes < 0.5 * raw.replay.memory_bytes
    batch = packed.sample(64)
    assert torch.equal(batch["pixels"][:, 7, 9].long(), batch["action"])
    assert torch.equal(batch["next", "pixels"][:, 7, 9].long(), (batch["action"] + 1) % 256)


def test_the_torchrl_wrapper_steps_reverie_environments():
    envs = GymWrapper(GymVectorEnv("CartPole-v1", 4, autoreset_mode="SameStep"))
    steps = envs.rollout(60, break_when_any_done=False)
    assert steps.batch_size == torch.Size([4, 60])
    buffer = ReplayBuffer(1000, seed=1)
    buffer.extend(steps)
    # The last episode of each environment is not over, and is cut off before the next one's steps.
    ended = int(steps["next", "done"].sum())
    assert buffer.replay.stats["episodes"] == ended > 0
    assert buffer.replay.stats["cuts"] <= 4
    batch = buffer.sample(200)
    moved = batch["observation"][:, 0] + 0.02 * batch["observation"][:, 1]
    torch.testing.assert_close(moved, batch["next", "observation"][:, 0])
    envs.close()


def test_wrong_arguments_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"codec.*gzip"):
        ReplayBuffer(10, codec="gzip")
    with pytest.raises(InvalidArgumentError, match="device is 'gpu', which torch does not know"):
        ReplayBuffer(10, device="gpu")
    buffer = ReplayBuffer(10)
    with pytest.raises(UnsupportedTypeError, match="must be a TensorDict"):
        buffer.extend({"action": 1})
    with pytest.raises(InvalidArgumentError, match="action and next"):
        buffer.extend(TensorDict({"observation": torch.zeros(2)}, [2]))
    with pytest.raises(InvalidArgumentError, match="batch_size is None"):
        buffer.sample()
    with pytest.raises(FailedPreconditionError, match="add steps first"):
        buffer.sample(1)
    buffer.extend(episodes(1))
    with pytest.raises(InvalidArgumentError, match="the first had"):
        buffer.extend(episodes(1).exclude("sample_log_prob"))


@pytest.mark.parametrize("name", ["reward", "done", "terminated"])
def test_several_rewards_or_flags_of_a_transition_are_refused(name):
    buffer = ReplayBuffer(10)
    steps = episodes(1)
    steps["next", name] = steps["next", name].expand(1, 4, 2).clone()
    with pytest.raises(InvalidArgumentError, match=rf"{name}.*\(4, 2\) for 4 transitions"):
        buffer.extend(steps)
    assert len(buffer) == 0


def test_the_losses_multiply_by_the_weights_of_a_prioritized_draw():
    network = torch.nn.Linear(1, 16)
    policy = QValueActor(network, in_keys=["observation"], action_space="categorical")
    losses = []
    for beta in (0.0, 1.0):
        buffer = ReplayBuffer(16, batch_size=16, prioritized=True, alpha=1.0, beta=beta, seed=1)
        buffer.extend(episodes(4))
        batch = buffer.sample()
        buffer.update_priority(batch["index"], 1.0 + batch["action"].float())
        batch = buffer.sample()
        loss = DQNLoss(policy, action_space="categorical")
        loss.make_value_estimator(gamma=0.9)
        losses.append(float(loss(batch)["loss"]))
        assert (batch["priority_weight"] == 1).all() == (beta == 0)
    assert losses[0] != losses[1]
    uniform = ReplayBuffer(16, batch_size=4)
    uniform.extend(episodes(4))
    assert "priority_weight" not in set(uniform.sample().keys())


def test_a_program_that_seeds_torch_draws_the_same_again():
    def drawn(seed):
        torch.manual_seed(seed)
        buffer = ReplayBuffer(16, batch_size=16)
        buffer.extend(episodes(4))
        return buffer.sample()["action"].tolist()

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_priority_of_zero_is_drawn_again():
    buffer = ReplayBuffer(4, batch_size=4, prioritized=True, seed=1)
    buffer.extend(episodes(1))
    for _ in range(3):
        batch = buffer.sample()
        buffer.update_priority(batch["index"], torch.zeros(4))
    assert len(buffer.sample()) == 4
