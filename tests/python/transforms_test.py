"""Transforms that a replay buffer applies to each batch that it draws."""

import copy
import pickle

import numpy as np
import pytest

import reverie
from reverie import transforms as rt
from reverie.errors import InvalidArgumentError, UnsupportedTypeError


def filled(shape=(3,), count=50, dtype=np.float32, **options):
    rng = np.random.default_rng(1)
    buffer = reverie.ReplayBuffer(1000, seed=1, **options)
    obs = rng.normal(5, 2, shape).astype(dtype)
    for index in range(count):
        then = rng.normal(5, 2, shape).astype(dtype)
        buffer.add(obs, index, float(index), then, terminated=False)
        obs = then
    return buffer


def test_each_transform_gets_the_result_of_the_previous_one():
    def first(batch):
        return {**batch, "mine": batch["reward"] + 1}

    def second(batch):
        batch["mine"] *= 2
        return batch

    batch = filled(transforms=[first, second]).sample(16)
    np.testing.assert_array_equal(batch["mine"], 2 * (batch["reward"] + 1))


def test_transforms_do_not_change_stored_data():
    buffer = filled(transforms=[rt.ScaleReward(0.1, clip=1)])
    batch = buffer.sample(64)
    np.testing.assert_allclose(batch["reward"], np.minimum(batch["action"] * 0.1, 1), rtol=1e-6)
    assert buffer[-1]["reward"] == 49


def test_batches_of_a_dataset_are_transformed():
    with filled(transforms=[rt.ScaleReward(2)]).dataset(8) as batches:
        batch = next(batches)
    np.testing.assert_array_equal(batch["reward"], 2 * batch["action"])


def test_a_failing_transform_costs_a_dataset_with_a_device_no_earlier_batch():
    pytest.importorskip("torch")
    calls = []

    def fails_at_the_third(batch):
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("the third")
        return {**batch, "number": np.array(len(calls))}

    buffer = filled(transforms=[fails_at_the_third])
    with buffer.dataset(8, output="torch", device="cpu") as batches:
        assert int(next(batches)["number"]) == 1
        with pytest.raises(ValueError, match="the third"):
            next(batches)
        assert [int(next(batches)["number"]) for _ in range(2)] == [2, 4]


def test_tensors_are_made_from_transformed_batches():
    torch = pytest.importorskip("torch")
    batch = filled(transforms=[rt.ScaleReward(2)]).sample(8, output="torch")
    assert torch.equal(batch["reward"], 2 * batch["action"].float())


@pytest.mark.parametrize("output", ["torch", "jax"])
def test_a_transform_may_leave_out_tickets_and_add_what_is_no_array(output):
    pytest.importorskip(output)

    def learned(batch):
        return {"obs": batch["obs"], "mean": batch["reward"].mean(), "name": "a", "scale": 0.5}

    buffer = filled(transforms=[learned])
    with buffer.dataset(8, output=output) as batches:
        made = [buffer.sample(8, output=output), next(batches)]
    for batch in made:
        assert sorted(batch) == ["mean", "name", "obs", "scale"]
        assert type(batch["mean"]) is type(batch["obs"])
        assert (batch["name"], batch["scale"]) == ("a", 0.5)


@pytest.mark.parametrize("output", ["torch", "jax"])
@pytest.mark.parametrize(
    "view",
    [
        lambda array: array[:, ::-1],
        lambda array: array[:, ::2],
        lambda array: np.broadcast_to(array[:1], array.shape),
        lambda array: np.moveaxis(array, 0, 1)[::-1],
        lambda array: array.astype(">f4"),
    ],
    ids=["flipped", "strided", "repeated", "transposed", "big-endian"],
)
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_transforms_may_give_any_view(view, output):
    pytest.importorskip(output)

    def with_view(batch):
        return {**batch, "view": view(batch["obs"])}

    batch = filled((2, 3), transforms=[with_view]).sample(8, output=output)
    np.testing.assert_array_equal(np.asarray(batch["view"]), view(np.asarray(batch["obs"])))


def test_transforms_given_as_an_iterator_are_kept_by_a_copy():
    buffer = reverie.ReplayBuffer(10, transforms=iter([rt.ScaleReward(3)]))
    for copied in (copy.copy(buffer), copy.deepcopy(buffer)):
        copied.add(0.0, 0, 1.0, 0.0, terminated=True)
        assert copied.sample(1)["reward"].tolist() == [3]


def test_running_moments_match_those_of_all_data():
    rng = np.random.default_rng(3)
    seen = rng.normal(3, 4, (1000, 5))
    moments = rt.RunningMoments()
    assert moments.mean is None
    for part in np.split(seen, [1, 10, 10, 400]):
        moments.update(part)
    np.testing.assert_allclose(moments.mean, seen.mean(axis=0))
    np.testing.assert_allclose(moments.variance, seen.var(axis=0))
    assert moments.count == 1000
    for twin in (copy.deepcopy(moments), pickle.loads(pickle.dumps(moments))):
        twin.update(seen[:10])
        assert twin.count == 1010
    one = moments.normalized(seen[0])
    assert one.shape == (5,)
    assert one.dtype == np.float32


def test_normalized_observations_have_mean_0_and_variance_1():
    moments = rt.RunningMoments()
    buffer = filled(count=500, transforms=[rt.NormalizeObs(moments)])
    moments.update(buffer[:]["obs"])
    batch = buffer.sample(2000)
    assert abs(batch["obs"].mean()) < 0.1
    assert abs(batch["next_obs"].std() - 1) < 0.1
    own = filled(count=500, transforms=[rt.NormalizeObs(clip=1.5)])
    batch = own.sample(2000)
    assert abs(batch["obs"].mean()) < 0.1
    assert batch["obs"].max() == 1.5


def test_a_batch_that_transforms_have_changed_is_filled_again():
    def renamed(batch):
        return {**batch, "extra": batch.pop("reward"), "obs": {"all": batch["obs"]}}

    for make in (
        lambda: [rt.NormalizeObs()],
        lambda: [renamed],
        lambda: [rt.ScaleReward(), rt.NormalizeObs()],
    ):
        ours, theirs = (filled(count=500, dtype=np.int32, transforms=make()) for _ in range(2))
        batch = ours.sample(8)
        theirs.sample(8)
        for _ in range(3):
            batch = ours.sample(8, out=batch)
            wanted = theirs.sample(8)
            for name, value in wanted.items():
                np.testing.assert_equal(batch[name], value)


def test_a_batch_in_use_is_not_touched_by_a_call_that_is_refused():
    refused = []

    def again(batch):
        if "half" in batch:  # it is being finished: another thread would come here
            with pytest.raises(reverie.errors.FailedPreconditionError, match="in use"):
                buffer.sample(8, out=batch)
            refused.append(batch["obs"])
        batch["half"] = batch["obs"] = batch["obs"] / 2
        return batch

    buffer = filled(dtype=np.int32, transforms=[rt.ScaleReward(), again])
    batch = buffer.sample(8)
    given = buffer.sample(8, out=batch)
    assert given is batch
    assert refused[0].dtype == np.int32  # made again by the call that was accepted
    np.testing.assert_array_equal(batch["obs"], refused[0] / 2)


def test_moments_of_sequences_are_those_of_their_steps():
    norm = rt.NormalizeObs(clip=100)
    buffer = reverie.ReplayBuffer(
        100, sequence_length=4, period=3, burn_in=1, transforms=[norm], seed=1
    )
    for step in range(6):  # a sequence of 4 steps, and one of 3 with an earlier one and padding
        now, then = (np.array([x, 10 * x], np.float32) for x in (step + 1, step + 2))
        buffer.add(now, 0, 1.0, then, terminated=step == 5)
    batch = buffer.sample(2, distinct=True)
    steps = np.array([1, 2, 3, 4, 4, 5, 6])
    np.testing.assert_allclose(norm.moments.mean, [steps.mean(), 10 * steps.mean()])
    np.testing.assert_allclose(norm.moments.variance, [steps.var(), 100 * steps.var()])
    assert norm.moments.count == 7
    wanted = (steps - steps.mean()) / steps.std()
    for column in (0, 1):
        counted = np.sort(batch["obs"][..., column][batch["mask"]])
        np.testing.assert_allclose(counted, wanted, rtol=1e-6)
    actors = norm.moments.normalized(np.array([1.0, 10.0]))  # one observation
    np.testing.assert_allclose(actors, [wanted[0]] * 2, rtol=1e-6)


def test_observations_of_another_shape_are_not_broadcast_to_the_moments():
    moments = rt.RunningMoments()
    moments.update(np.arange(12.0).reshape(4, 3))
    for shape in ((1,), (2,), (4, 1), ()):
        with pytest.raises(InvalidArgumentError, match=r"last axes must be \(3,\)"):
            moments.normalized(np.zeros(shape))
    assert moments.normalized(np.zeros((5, 2, 3))).shape == (5, 2, 3)


def test_nests_are_normalised_leaf_by_leaf():
    moments = rt.RunningMoments()
    moments.update({"a": np.array([[1.0], [3.0]]), "b": np.array([[0, 10], [0, 30]])})
    assert moments.mean["b"].tolist() == [0, 20]
    made = moments.normalized({"a": np.array([3.0]), "b": np.array([0, 30])})
    np.testing.assert_allclose(made["a"], [1], rtol=1e-6)
    np.testing.assert_allclose(made["b"], [0, 1], rtol=1e-6)


def test_join_stack_turns_frame_stacks_into_channels():
    buffer = filled((3, 4, 5), frame_stack=2, transforms=[rt.JoinStack()])
    raw = filled((3, 4, 5), frame_stack=2).sample(8)
    batch = buffer.sample(8)
    assert batch["obs"].shape == (8, 6, 4, 5)
    np.testing.assert_array_equal(batch["next_obs"][:, 3:], raw["next_obs"][:, 1])


def test_join_stack_keeps_the_steps_of_sequences_apart():
    options = {"sequence_length": 3, "transforms": [rt.JoinStack()]}
    batch = filled((3, 4, 5), frame_stack=2, **options).sample(8)
    raw = filled((3, 4, 5), frame_stack=2, sequence_length=3).sample(8)
    assert raw["obs"].shape == (8, 3, 2, 3, 4, 5)
    np.testing.assert_array_equal(batch["obs"], raw["obs"].reshape(8, 3, 6, 4, 5))
    assert filled((3, 4, 5), **options).sample(8)["obs"].shape == (8, 3, 3, 4, 5)


def test_wrong_arguments_are_refused():
    with pytest.raises(UnsupportedTypeError, match="a transform is 3; it must be a function"):
        reverie.ReplayBuffer(10, transforms=[3])
    with pytest.raises(UnsupportedTypeError, match="returned None; it must return the batch"):
        filled(transforms=[lambda _: None]).sample(4)
    with pytest.raises(InvalidArgumentError, match="clip is 0"):
        rt.ScaleReward(clip=0)
    with pytest.raises(UnsupportedTypeError, match="moments is 3"):
        rt.NormalizeObs(3)
    moments = rt.RunningMoments()
    moments.update(np.zeros((2, 3)))
    with pytest.raises(InvalidArgumentError, match="it must be"):
        moments.update(np.zeros((2, 4)))
    with pytest.raises(UnsupportedTypeError, match="with a leading axis"):
        moments.update(1.0)
