"""How vector environments behave: one suite for Gymnasium's two and ours."""

import _thread
import contextlib
import copy
import os
import threading

import numpy as np
import pytest

import reverie
import reverie.gym
from reverie.errors import (
    DeadlineExceededError,
    EnvError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces
AutoresetMode = gymnasium.vector.AutoresetMode
MODES = list(AutoresetMode)
COUNT = 3


class Scripted(gymnasium.Env):
    """Draws observations, rewards, ends and infos of many kinds from its seed."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012

    def __init__(self, observation_space=None, action_space=None, render_mode=None):
        # A copy, because a space holds a random generator.
        self.observation_space = copy.deepcopy(observation_space) or spaces.Box(
            -3, 2, (2,), np.float32
        )
        self.action_space = action_space or spaces.Discrete(3)
        self.render_mode = render_mode
        self.size = 4
        self.taken = []

    def _observation(self):
        self.observation_space.seed(int(self.np_random.integers(1 << 30)))
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observation(), {"options": options} if options else {}

    def step(self, action):
        assert self.action_space.contains(action), (action, type(action))
        self.taken.append(action)
        self.steps += 1
        dice = self.np_random.random(4)
        info = {}
        if dice[2] < 0.5:
            info = {
                "steps": self.steps,
                "speed": np.float32(dice[0]),
                "place": np.arange(3) * self.steps,
                "text": "x" * self.steps,
                "nothing": None,
                "inner": {"fast": bool(dice[3] < 0.5), "deep": {"list": [1, self.steps]}},
            }
        return self._observation(), 0.1 + dice[0], dice[1] < 0.2, self.steps >= 4, info

    def render(self):
        return np.full((2, 2, 3), self.steps, np.uint8)

    def grown(self, by, *, times=1):
        return self.size + by * times


def scripted(**options):
    return lambda: Scripted(**options)


KINDS = {
    "sync": lambda fns, mode: gymnasium.vector.SyncVectorEnv(fns, autoreset_mode=mode),
    # Without shared memory, which cannot hold texts, graphs and sequences.
    "async": lambda fns, mode: gymnasium.vector.AsyncVectorEnv(
        fns, autoreset_mode=mode, shared_memory=False
    ),
    "threads": lambda fns, mode: reverie.gym.GymVectorEnv(
        fns, autoreset_mode=mode, backend="thread"
    ),
    "caller": lambda fns, mode: reverie.gym.GymVectorEnv(
        fns, autoreset_mode=mode, backend="thread", num_workers=0
    ),
    "processes": lambda fns, mode: reverie.gym.GymVectorEnv(
        fns, autoreset_mode=mode, backend="process", num_workers=1 + (len(fns) == COUNT)
    ),
}


def vectors_of(kind):
    """Makes vector environments of one kind, and closes them."""
    made = []

    def vector(fns=None, mode=AutoresetMode.NEXT_STEP):
        made.append(KINDS[kind](fns or [scripted()] * COUNT, mode))
        return made[-1]

    vector.kind = kind
    yield vector
    for one in made:
        one.close()


# Processes take long to start, and otherwise behave like threads.
FEW = [*list(KINDS)[:4], pytest.param("processes", marks=pytest.mark.full(minutes=0.02))]


@pytest.fixture(params=FEW)
def make(request):
    yield from vectors_of(request.param)


@pytest.fixture(params=list(KINDS))
def make_any(request):
    yield from vectors_of(request.param)


def oracle(fns=None, mode=AutoresetMode.NEXT_STEP):
    return gymnasium.vector.SyncVectorEnv(fns or [scripted()] * COUNT, autoreset_mode=mode)


def assert_same(ours, theirs):
    """Checks that values, types and dtypes are equal."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict)
        assert sorted(ours) == sorted(theirs)
        for key, value in theirs.items():
            assert_same(ours[key], value)
    elif isinstance(theirs, (tuple, list)):
        assert type(ours) is type(theirs)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:
        assert ours.dtype == object
        assert_same(list(ours), list(theirs))
    elif isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


def same_story(ours, theirs, steps=25):
    """Checks that the same seeds and actions give equal results."""
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    theirs.action_space.seed(1)
    overs = 0
    for _ in range(steps):
        actions = theirs.action_space.sample()
        given, expected = ours.step(actions), theirs.step(actions)
        assert_same(given, expected)
        over = expected[2] | expected[3]
        overs += int(over.sum())
        if ours.metadata["autoreset_mode"] == AutoresetMode.DISABLED and over.any():
            masks = ({"reset_mask": over.copy()}, {"reset_mask": over.copy()})
            assert_same(ours.reset(options=masks[0]), theirs.reset(options=masks[1]))
    assert overs > 3


@pytest.mark.parametrize("mode", MODES)
def test_each_autoreset_mode_matches_gymnasium(make_any, mode):
    ours = make_any(mode=mode)
    assert ours.metadata["autoreset_mode"] == mode
    assert ours.metadata["render_fps"] == 7
    same_story(ours, oracle(mode=mode))


OBSERVATIONS = {
    "bounds": spaces.Box(np.array([[0.0, -np.inf]]), np.array([[1.0, 5.0]]), dtype=np.float64),
    "picture": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "discrete": spaces.Discrete(5, start=-2),
    "bits": spaces.MultiBinary((2, 2)),
    "choices": spaces.MultiDiscrete([3, 4]),
    "dict": spaces.Dict(b=spaces.Box(-1, 1, (2,)), a=spaces.Tuple([spaces.Discrete(3)] * 2)),
    "text": spaces.Text(6),
    "inner text": spaces.Dict(said=spaces.Text(4), seen=spaces.Box(0, 1, (2,))),
    "graph": spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3)),
    "sequence": spaces.Sequence(spaces.Discrete(4)),
    "one of": spaces.OneOf([spaces.Discrete(3), spaces.Box(0, 1, (2,))]),
}


def names_of(table, make, few):
    """All names, or for processes, which are slow to start, only those they treat differently."""
    return few if make.kind == "processes" else table


def test_every_observation_space_matches_gymnasium(make_any):
    for name in names_of(OBSERVATIONS, make_any, ("discrete", "dict", "graph")):
        check_observations(make_any, name)


def check_observations(make, name):
    fns = [scripted(observation_space=OBSERVATIONS[name])] * 2
    ours, theirs = make(fns), oracle(fns)
    assert ours.observation_space == theirs.observation_space
    for vector in (ours, theirs):
        vector.action_space.seed(3)
    assert_comparable(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
    for _ in range(6):
        actions = theirs.action_space.sample()
        given, expected = ours.step(actions), theirs.step(actions)
        assert_comparable(given[0], expected[0])
        assert_same(given[1:4], expected[1:4])


def assert_comparable(ours, theirs):
    assert repr(ours) == repr(theirs)  # graphs hold arrays, so == has no single truth value


ACTIONS = {
    "discrete": spaces.Discrete(5, start=-2),
    "box": spaces.Box(-2, 3, (2, 2), np.float32),
    "bits": spaces.MultiBinary(3),
    "choices": spaces.MultiDiscrete([3, 4]),
    "dict": spaces.Dict(move=spaces.Discrete(3), turn=spaces.Box(-1, 1, (2,))),
    "tuple": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiBinary(2)]),
    "text": spaces.Text(5),
}


def test_actions_of_every_space_reach_the_environment(make_any):
    for name in names_of(ACTIONS, make_any, ("discrete", "bits", "dict")):
        check_actions(make_any, name)


def check_actions(make, name):
    fns = [scripted(action_space=ACTIONS[name])] * 2
    ours, theirs = make(fns), oracle(fns)
    assert ours.action_space == theirs.action_space
    theirs.action_space.seed(2)
    for vector in (ours, theirs):
        vector.reset(seed=1)
    for _ in range(5):
        actions = theirs.action_space.sample()
        assert_same(ours.step(actions)[:4], theirs.step(actions)[:4])
    for one, other in zip(ours.get_attr("taken"), theirs.get_attr("taken"), strict=True):
        assert repr(one) == repr(other)


def test_rewards_are_float64_flags_are_bool_and_results_do_not_change(make):
    envs = make()
    envs.reset(seed=3)
    first = envs.step(np.zeros(COUNT, int))
    kept = [np.copy(array) for array in first[:4]]
    assert first[1].dtype == np.float64
    assert first[1].shape == (COUNT,)
    assert first[2].dtype == first[3].dtype == np.bool_
    for _ in range(5):
        envs.step(np.ones(COUNT, int))
    for array, as_it_was in zip(first[:4], kept, strict=True):
        np.testing.assert_array_equal(array, as_it_was)


def test_a_seed_may_be_a_number_a_list_or_none(make):
    envs = make()
    one, _ = envs.reset(seed=7)
    listed, _ = envs.reset(seed=[7, 8, 9])
    np.testing.assert_array_equal(one, listed)
    alike, _ = envs.reset(seed=[7, 7, None])
    np.testing.assert_array_equal(alike[0], alike[1])
    with pytest.raises((ValueError, AssertionError)):
        envs.reset(seed=[1])
    again, _ = envs.reset()
    assert not np.array_equal(again, one)


def test_options_reach_each_environment(make):
    envs = make()
    _, infos = envs.reset(options={"level": 3})
    assert infos["options"]["level"].tolist() == [3] * COUNT
    assert infos["_options"].all()


def test_a_reset_mask_resets_only_the_selected_environments(make_any):
    envs = make_any(mode=AutoresetMode.DISABLED)
    before, _ = envs.reset(seed=1)
    mask = np.array([False, True, False])
    after, _ = envs.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    assert not np.array_equal(after[1], before[1])
    for wrong in ([True] * COUNT, np.ones(COUNT, int)):
        with pytest.raises((TypeError, AssertionError)):
            envs.reset(options={"reset_mask": wrong})
    for wrong in (np.ones(COUNT + 1, bool), np.zeros(COUNT, bool)):
        with pytest.raises((ValueError, AssertionError)):
            envs.reset(options={"reset_mask": wrong})


def test_attributes_can_be_read_called_and_set(make_any):
    envs = make_any([scripted(render_mode="rgb_array")] * COUNT)
    envs.reset(seed=1)
    assert envs.get_attr("size") == (4,) * COUNT
    assert envs.call("grown", 2, times=3) == (10,) * COUNT
    envs.set_attr("size", 5)
    assert envs.get_attr("size") == (5,) * COUNT
    envs.set_attr("size", [1, 2, 3])
    assert envs.get_attr("size") == (1, 2, 3)
    with pytest.raises(ValueError, match="value"):
        envs.set_attr("size", [1, 2])
    assert envs.render_mode == "rgb_array"
    envs.step(np.zeros(COUNT, int))
    assert [picture.shape for picture in envs.render()] == [(2, 2, 3)] * COUNT
    assert envs.np_random_seed == (1, 2, 3)


def test_a_vector_may_have_one_environment(make):
    fns = [scripted()]
    same_story(make(fns), oracle(fns))


def test_reading_attributes_does_not_change_the_episode(make):
    envs, theirs = make(), oracle()
    for vector in (envs, theirs):
        vector.reset(seed=2)
    for step in range(12):
        actions = np.full(COUNT, step % 3)
        assert_same(envs.step(actions), theirs.step(actions))
        envs.get_attr("size")


@pytest.mark.parametrize("asked", ["call", "masked reset"])
def test_ctrl_c_while_environments_are_asked_resets_no_other(asked):
    is_asked, may_end, last_has_begun = (threading.Event() for _ in range(3))

    class Waits(Scripted):
        def __init__(self, index):
            super().__init__()
            self.index = index

        def reset(self, **options):
            self.wait()
            return super().reset(**options)

        def wait(self):
            if is_asked.is_set() and self.index == 0:
                _thread.interrupt_main()
                assert may_end.wait(30.0)
            if is_asked.is_set() and self.index == 2:
                last_has_begun.set()

    fns = [lambda i=i: Waits(i) for i in range(3)]
    with reverie.gym.GymVectorEnv(fns, backend="thread", num_workers=1) as envs:
        envs.reset(seed=1)
        envs.step(np.zeros(3, int))
        is_asked.set()
        mask = np.array([True, False, True])
        with pytest.raises(KeyboardInterrupt):
            envs.call("wait") if asked == "call" else envs.reset(options={"reset_mask": mask})
        may_end.set()
        assert last_has_begun.wait(30.0)
        is_asked.clear()
        assert envs.get_attr("steps") == ((1, 1, 1) if asked == "call" else (0, 1, 0))
        envs.step(np.zeros(3, int))


def test_gymnasium_vector_wrappers_work(make):
    def wrapped(vector):
        vector = gymnasium.wrappers.vector.RecordEpisodeStatistics(vector)
        vector = gymnasium.wrappers.vector.ClipReward(vector, max_reward=0.5)
        return gymnasium.wrappers.vector.NormalizeObservation(vector)

    ours, theirs = wrapped(make()), wrapped(oracle())
    ours.reset(seed=3)
    theirs.reset(seed=3)
    seen = 0
    for step in range(20):
        actions = np.full(COUNT, step % 3)
        given, expected = ours.step(actions), theirs.step(actions)
        assert_same(given[:4], expected[:4])
        if "episode" in expected[4]:
            seen += 1
            np.testing.assert_array_equal(given[4]["episode"]["l"], expected[4]["episode"]["l"])
            np.testing.assert_array_equal(given[4]["_episode"], expected[4]["_episode"])
    assert seen > 2


def test_environments_of_different_kinds_are_refused(make):
    with pytest.raises((ValueError, RuntimeError)):
        make([scripted(), scripted(action_space=spaces.Discrete(4))])


def test_closing_twice_is_allowed(make):
    envs = make()
    envs.reset(seed=1)
    envs.close()
    envs.close()
    assert envs.closed


# Tests of features that only ours has.


def ours(fns, **options):
    return reverie.gym.GymVectorEnv(fns, backend="thread", **options)


class Fails(Scripted):
    def __init__(self, index):
        super().__init__()
        self.index = index

    def step(self, action):
        if self.index == 1:
            raise ValueError("the wheel came off")
        return super().step(action)

    def secret(self):
        raise KeyError(self.index)


@pytest.mark.parametrize(("backend", "workers"), [("thread", 2), ("thread", 0), ("process", 2)])
def test_an_error_names_the_environment_that_failed(backend, workers):
    fns = [lambda i=i: Fails(i) for i in range(COUNT)]
    envs = reverie.gym.GymVectorEnv(fns, backend=backend, num_workers=workers)
    envs.reset(seed=1)
    with pytest.raises(
        EnvError, match=r"environment 1 of batch 0(.|\n)*the wheel came off"
    ) as told:
        envs.step(np.zeros(COUNT, int))
    assert told.value.env_id == 1
    assert "; reset() makes it again" in str(told.value)
    envs.reset(seed=1)  # makes the failed environment again
    with pytest.raises(KeyError):
        envs.call("secret")
    with pytest.raises(AttributeError, match="missing"):
        envs.get_attr("missing")
    assert envs.get_attr("index") == (0, 1, 2)
    envs.close()
    with pytest.raises(FailedPreconditionError, match="closed"):
        envs.step(np.zeros(COUNT, int))


def test_the_error_for_a_worker_that_is_gone_or_late_has_a_remedy_of_a_vector_environment():
    class Dies(Scripted):
        def step(self, _action):
            os._exit(3)

    goes_on = threading.Event()

    class Late(Scripted):
        def step(self, action):
            goes_on.wait()
            return super().step(action)

    for env, backend, timeout_s, kind, remedy in (
        (Dies, "process", 60.0, EnvError, "; make another vector environment"),
        (Late, "thread", 0.1, DeadlineExceededError, "with a longer timeout_s"),
    ):
        goes_on.clear()
        envs = reverie.gym.GymVectorEnv([env] * 2, backend=backend, timeout_s=timeout_s)
        envs.reset(seed=1)
        with pytest.raises(kind) as told:
            envs.step(np.zeros(2, int))
        assert remedy in str(told.value)
        assert "pool" not in str(told.value)
        goes_on.set()
        envs.close()


@pytest.mark.parametrize(("backend", "workers"), [("thread", 2), ("thread", 0), ("process", 2)])
@pytest.mark.parametrize("between", ["get_attr", "masked reset"])
def test_an_environment_that_replaced_a_failed_one_is_not_stepped_before_it_is_reset(
    backend, workers, between
):
    fns = [lambda i=i: Fails(i) for i in range(COUNT)]
    envs = reverie.gym.GymVectorEnv(fns, backend=backend, num_workers=workers)
    envs.reset(seed=1)
    with pytest.raises(EnvError, match="the wheel came off"):
        envs.step(np.zeros(COUNT, int))
    if between == "get_attr":
        assert envs.get_attr("index") == (0, 1, 2)
    else:
        envs.reset(options={"reset_mask": np.array([True, False, True])})
    with pytest.raises(EnvError, match="environment 1 was made again") as told:
        envs.step(np.zeros(COUNT, int))
    assert told.value.env_id == 1
    envs.reset(options={"reset_mask": np.array([False, True, False])})
    with pytest.raises(EnvError, match="the wheel came off"):
        envs.step(np.zeros(COUNT, int))
    envs.close()


class Interrupted(Scripted):
    """Ctrl-C comes in a step of the second environment, unless it was made again."""

    made = 0

    def __init__(self):
        super().__init__()
        self.number = Interrupted.made
        Interrupted.made += 1

    def step(self, action):
        if self.number == 1:
            raise KeyboardInterrupt
        return super().step(action)


def test_after_ctrl_c_in_the_middle_of_a_step_the_environments_must_be_reset():
    envs = ours([Interrupted] * COUNT, num_workers=0)
    model = ours([scripted()] * COUNT, num_workers=0)
    envs.reset(seed=1)
    with pytest.raises(KeyboardInterrupt):
        envs.step(np.zeros(COUNT, int))
    with pytest.raises(EnvError, match=r"reset\(\) first"):
        envs.step(np.zeros(COUNT, int))
    np.testing.assert_array_equal(envs.reset(seed=5)[0], model.reset(seed=5)[0])
    np.testing.assert_array_equal(
        envs.step(np.zeros(COUNT, int))[0], model.step(np.zeros(COUNT, int))[0]
    )
    envs.close()
    model.close()


def test_after_ctrl_c_in_another_request_the_environments_go_on():
    class Slow(Scripted):
        def render(self):
            raise KeyboardInterrupt

    envs = ours([Slow] * COUNT, num_workers=0)
    envs.reset(seed=1)
    before = envs.get_attr("unwrapped")
    with pytest.raises(KeyboardInterrupt):
        envs.call("render")
    envs.step(np.zeros(COUNT, int))
    assert all(a is b for a, b in zip(before, envs.get_attr("unwrapped"), strict=True))
    envs.close()


def test_the_error_for_an_environment_that_cannot_be_created_names_it():
    def broken():
        raise RuntimeError("no such level")

    with pytest.raises(EnvError, match=r"environment 2 of batch 0(.|\n)*no such level") as told:
        ours([scripted(), scripted(), broken])
    assert told.value.env_id == 2
    with pytest.raises(EnvError, match=r"environment 2 of batch 0(.|\n)*no such level"):
        ours([scripted(), scripted(), broken], num_workers=0)


def test_a_vector_whose_environments_cannot_be_created_leaves_no_file_open():
    def broken():
        raise RuntimeError("no such level")

    def try_to_make():
        with pytest.raises(EnvError, match="no such level"):
            reverie.gym.GymVectorEnv([broken] * 2, backend="process", num_workers=2)

    try_to_make()  # what is loaded once may open files
    before = set(os.listdir("/proc/self/fd"))
    try_to_make()
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize(
    "use",
    [
        lambda envs: envs.get_attr("size"),
        lambda envs: envs.reset(options={"level": 2}),
        lambda envs: envs.step(envs.action_space.sample()),
    ],
)
def test_a_closed_vector_of_processes_writes_to_no_other_file(use, tmp_path):
    box = spaces.Box(-1, 1, (2,), np.float32)
    fns = [scripted(action_space=spaces.Tuple([box, box]))]
    envs = reverie.gym.GymVectorEnv(fns, backend="process")
    envs.reset(seed=1)
    envs.close()
    paths = [tmp_path / str(number) for number in range(8)]
    with contextlib.ExitStack() as stack:
        for path in paths:  # these get the descriptors that the environments had
            stack.enter_context(path.open("w"))
        with pytest.raises(FailedPreconditionError, match="closed"):
            use(envs)
    assert [path.read_bytes() for path in paths] == [b""] * len(paths)


def test_without_workers_the_calling_thread_steps_the_environments():
    class Tells(Scripted):
        def thread(self):
            return threading.get_ident()

    with ours([Tells] * 2, num_workers=0) as envs:
        envs.reset(seed=1)
        assert envs.call("thread") == (threading.get_ident(),) * 2
        with pytest.raises(InvalidArgumentError, match="action 1 is 7"):
            envs.step([0, 7])


class Careless(Scripted):
    """Observes what the space does not say exactly."""

    def __init__(self, observation, space):
        super().__init__(space)
        self.observation = observation

    def _observation(self):
        return self.observation


@pytest.mark.parametrize("workers", [0, 1])
def test_observations_get_the_types_of_their_space(workers, caplog):
    pair = spaces.Dict({"a": spaces.Box(0, 9, (2,), np.float32), "b": spaces.MultiBinary(2)})
    given = {"a": np.ones(2), "b": np.array([0, 1])}  # of float64 and int64
    nest = spaces.Tuple([pair, spaces.Discrete(3)])
    with ours([lambda: Careless((given, np.int32(2)), nest)] * 2, num_workers=workers) as envs:
        observed, _ = envs.reset()
        assert [observed[0][key].dtype for key in "ab"] == [np.float32, np.int8]
        assert observed[1].dtype == np.int64
        assert observed[0]["b"].tolist() == [[0, 1]] * 2
        envs.step(np.zeros(2, int))
    if workers == 0:
        assert caplog.text.count("it is narrowed") == 1


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "unfit", [np.ones(3, np.float32), np.ones(2, complex), np.ma.ones(2, np.float32), {}]
)
def test_an_observation_that_its_space_does_not_allow_names_the_environment(workers, unfit):
    space = spaces.Box(0, 9, (2,), np.float32)
    fit = np.ones(2, np.float32)
    with ours(
        [lambda: Careless(fit, space), lambda: Careless(unfit, space)], num_workers=workers
    ) as envs:
        with pytest.raises(EnvError, match="observation") as told:
            envs.reset()
        assert told.value.env_id == 1


class Reuses(Scripted):
    """Returns one array, which it changes in place."""

    def __init__(self):
        super().__init__()
        self.place = np.zeros(2, np.float32)

    def _observation(self):
        self.place[:] = self.steps
        return self.place


@pytest.mark.parametrize(("backend", "workers"), [("thread", 0), ("thread", 1), ("process", 1)])
def test_a_last_observation_is_not_changed_by_the_reset_after_it(backend, workers):
    envs = reverie.gym.GymVectorEnv(
        [Reuses] * 2,
        autoreset_mode=AutoresetMode.SAME_STEP,
        backend=backend,
        num_workers=workers,
    )
    envs.reset(seed=1)
    for _ in range(4):
        observed, _, terminated, truncated, infos = envs.step(np.zeros(2, int))
        for index in np.flatnonzero(terminated | truncated):
            assert infos["final_obs"][index].min() > 0
            assert observed[index].tolist() == [0, 0]
    envs.close()


def test_wrong_arguments_are_refused():
    with pytest.raises(InvalidArgumentError, match="list of 2 functions and num_envs is 3"):
        ours([scripted()] * 2, num_envs=3)
    with pytest.raises(InvalidArgumentError, match="autoreset_mode"):
        ours([scripted()], autoreset_mode="Later")
    with ours([scripted()] * 2) as envs:
        with pytest.raises(gymnasium.error.ResetNeeded):
            envs.step([0, 0])
        envs.reset(seed=1)
        with pytest.raises(InvalidArgumentError, match="shape"):
            envs.step([0])
        with pytest.raises(InvalidArgumentError, match="integers"):
            envs.step([0.5, 1.0])
    stepped = ours([scripted()] * 2, autoreset_mode="Disabled")
    stepped.reset(seed=1)
    while True:
        _, _, terminated, truncated, _ = stepped.step([0, 0])
        if (terminated | truncated).any():
            break
    with pytest.raises(EnvError, match="reset_mask"):
        stepped.step([0, 0])
    stepped.close()


def test_native_environments_have_the_spaces_of_gymnasium():
    for name in ("CartPole-v1", "MountainCar-v0", "Pendulum-v1", "Acrobot-v1"):
        theirs = gymnasium.make(name)
        envs = gymnasium.make_vec(f"reverie/{name}", num_envs=4)
        assert envs.single_observation_space == theirs.observation_space
        assert envs.single_action_space == theirs.action_space
        assert envs.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
        assert envs.spec.id == f"reverie/{name}"
        envs.close()


def story_of(mode, steps=120):
    envs = gymnasium.make_vec("reverie.gym:reverie/CartPole-v1", num_envs=4, autoreset_mode=mode)
    envs.reset(seed=4)
    rng = np.random.default_rng(1)
    found = [[] for _ in range(4)]
    pending = np.zeros(4, bool)
    for _ in range(steps):
        observation, reward, terminated, truncated, infos = envs.step(rng.integers(0, 2, 4))
        assert reward.dtype == np.float64
        over = terminated | truncated
        if mode == "SameStep":
            assert ("final_obs" in infos) == over.any()
        for i in range(4):
            if mode == "NextStep" and pending[i]:
                assert reward[i] == 0
                assert not over[i]
            found[i].append(
                infos["final_obs"][i] if mode == "SameStep" and over[i] else observation[i]
            )
        pending = over
        if mode == "Disabled" and over.any():
            with pytest.raises(FailedPreconditionError, match="reset_mask"):
                envs.step(np.zeros(4, int))
            fresh, _ = envs.reset(options={"reset_mask": over})
            assert (np.abs(fresh[over]) <= 0.05).all()
            np.testing.assert_array_equal(fresh[~over], observation[~over])
    envs.close()
    return found


def test_making_a_single_native_environment_is_refused_naming_make_vec():
    with pytest.raises(UnimplementedError, match=r"gymnasium.make_vec\('reverie/CartPole-v1'"):
        gymnasium.make("reverie/CartPole-v1")


def test_native_environments_support_each_autoreset_mode_and_seeds():
    for mode in ("SameStep", "NextStep", "Disabled"):
        for episodes in story_of(mode):  # the last observations of one environment's episodes
            assert len(episodes) == 120
            assert (np.abs(episodes) > [2.4, np.inf, 0.2, np.inf]).any()
    envs = gymnasium.make_vec("reverie/CartPole-v1", num_envs=3, render_mode="rgb_array")
    first, _ = envs.reset(seed=5)
    listed, _ = envs.reset(seed=[5, None, 7])
    np.testing.assert_array_equal(first[[0, 2]], listed[[0, 2]])
    assert not np.array_equal(first[1], listed[1])
    assert len(envs.render()) == 3
    assert envs.render()[0].dtype == np.uint8
    assert envs.metadata["render_fps"] == 50
    with pytest.raises(InvalidArgumentError, match="reset_mask"):
        envs.reset(options={"low": 0.0})
    with pytest.raises(AttributeError, match="process"):
        envs.get_attr("gravity")
    with pytest.raises(UnimplementedError, match="process"):
        envs.set_attr("gravity", 1.0)
    envs.close()


def test_a_vector_over_a_pool_has_the_spaces_of_its_environments():
    from reverie.envs.vector_env import GymVectorEnv

    for space in ("bounds", "picture", "discrete", "bits", "choices", "dict"):
        pool = reverie.EnvPool(
            scripted(observation_space=OBSERVATIONS[space], action_space=ACTIONS["discrete"]),
            2,
            backend="thread",
        )
        envs = GymVectorEnv(pool)
        assert envs.single_observation_space == OBSERVATIONS[space]
        assert envs.single_action_space == ACTIONS["discrete"]
        envs.close()
    pool = reverie.EnvPool("CartPole-v1", 2)
    with pytest.raises(InvalidArgumentError, match="in place of the pool"):
        GymVectorEnv(pool, autoreset_mode="NextStep")
    pool.close()


class Repeats(gymnasium.Env):
    """Observes the action that it got."""

    observation_space = gymnasium.spaces.Box(-100, 100, (1,), np.float32)

    def __init__(self, start):
        self.action_space = gymnasium.spaces.Discrete(3, start=start)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        return np.full(1, -100, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.full(1, action, np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("start", [-2, 0, 1, 5])
def test_a_vector_over_a_pool_takes_the_actions_of_its_space(start):
    with reverie.EnvPool(lambda: Repeats(start), 3, backend="thread") as pool:
        envs = reverie.gym.GymVectorEnv(pool)
        assert envs.single_action_space == gymnasium.spaces.Discrete(3, start=start)
        envs.reset()
        for actions in (np.arange(start, start + 3), envs.action_space.sample()):
            observation = envs.step(actions)[0]
            assert observation[:, 0].tolist() == actions.tolist()
        words = rf"actions\[1\] is {start + 3}; actions are {start} to {start + 2}"
        with pytest.raises(InvalidArgumentError, match=words):
            envs.step(np.array([start, start + 3, start]))


class Sums(Repeats):
    """Observes the sum of its actions, which do not begin at 0."""

    def __init__(self):
        super().__init__(0)
        self.action_space = gymnasium.spaces.MultiDiscrete([2, 3], start=[1, -1])

    def step(self, action):
        assert self.action_space.contains(action)
        return np.full(1, action.sum(), np.float32), 0.0, False, False, {}


def test_a_pool_of_vector_environments_passes_several_discrete_actions_as_they_are():
    def make(num_envs):
        return gymnasium.vector.SyncVectorEnv(
            [Sums] * num_envs,
            autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
        )

    with reverie.EnvPool(make, 2, backend="vector") as pool:
        pool.reset().result()
        actions = np.array([pool.spec.action_low, pool.spec.action_high])
        assert actions.tolist() == [[1, -1], [2, 1]]
        assert pool.step(actions).result().observation[:, 0].tolist() == [0, 3]


@pytest.mark.parametrize("output", ["torch", "jax"])
def test_a_pool_with_another_output_than_numpy_is_refused(output):
    pytest.importorskip(output)
    with reverie.EnvPool("CartPole-v1", 2, output=output) as pool:
        with pytest.raises(InvalidArgumentError, match="NumpyToTorch"):
            reverie.gym.GymVectorEnv(pool)
        assert pool.reset().result().observation.shape == (2, 4)
