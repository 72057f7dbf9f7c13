"""Atari environments, compared with a simple wrapper in NumPy that shows what a step does."""

import inspect

import numpy as np
import pytest

import reverie
from reverie.envs import atari
from reverie.errors import InvalidArgumentError, NotFoundError

ale_py = pytest.importorskip("ale_py")
pytest.importorskip("gymnasium")


def resize(grey, height, width):
    """Bilinear resizing: aligned at pixel centres, with weights in 2048ths, rounded once."""

    def taps(count, of):
        place = (np.arange(count) + 0.5) * of / count - 0.5
        below = np.floor(place)
        weight = np.floor(2048 * (place - below) + 0.5).astype(np.int64)
        at = np.clip(np.stack([below, below + 1]), 0, of - 1).astype(int)
        return at, np.stack([2048 - weight, weight])

    (above, below), (up, down) = taps(height, grey.shape[0])
    (left, right), (to_left, to_right) = taps(width, grey.shape[1])
    rows = grey.astype(np.int64)
    rows = up[:, None] * rows[above] + down[:, None] * rows[below]
    small = to_left * rows[:, left] + to_right * rows[:, right]
    return ((small + 2**21) >> 22).astype(np.uint8)


class Plain:
    """The preprocessing of table 2 of moolib's paper, without any optimisation."""

    def __init__(self, game, seed, full_action_space=True, noop_max=30, max_frames=108_000):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.rng = np.random.default_rng(seed)
        self.noop_max = noop_max
        self.max_frames = max_frames
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("random_seed", int(self.rng.integers(2**31)))
        self.ale.loadROM(ale_py.roms.get_rom_path(game))
        legal = self.ale.getLegalActionSet()
        self.actions = legal if full_action_space else self.ale.getMinimalActionSet()

    def grey(self):
        screen = np.empty(self.ale.getScreenDims(), np.uint8)
        self.ale.getScreenGrayscale(screen)
        return screen

    def reset(self):
        self.ale.reset_game()
        if self.noop_max:
            for _ in range(self.rng.integers(1, self.noop_max + 1)):
                self.ale.act(ale_py.Action.NOOP)
                if self.ale.game_over():
                    self.ale.reset_game()
        self.stack = [resize(self.grey(), 84, 84)] * 4
        return np.stack(self.stack)

    def step(self, action):
        screens, reward = [], 0
        for _ in range(4):
            reward += self.ale.act(self.actions[action])
            screens.append(self.grey())
            if self.ale.game_over():
                break
        over = self.ale.game_over()
        last = screens[-1] if len(screens) < 4 else np.maximum(screens[-2], screens[-1])
        self.stack = [*self.stack[1:], resize(last, 84, 84)]
        cut = not over and 0 < self.max_frames <= self.ale.getEpisodeFrameNumber()
        return np.stack(self.stack), float(reward), over, cut


@pytest.mark.parametrize(
    ("game", "steps"),
    [("pong", 500), ("breakout", 700), ("ms_pacman", 300), ("seaquest", 300)],
)
def test_each_frame_matches_the_simple_wrapper(game, steps):
    env = atari.make(game)
    plain = Plain(game, seed=11)
    rng = np.random.default_rng(1)
    observation, _ = env.reset(seed=11)
    np.testing.assert_array_equal(observation, plain.reset())
    rewards = 0
    for _ in range(steps):
        action = int(rng.integers(18))
        observation, reward, terminated, truncated, info = env.step(action)
        expected = plain.step(action)
        np.testing.assert_array_equal(observation, expected[0])
        assert (reward, terminated, truncated) == expected[1:]
        assert info["lives"] == plain.ale.lives()
        rewards += reward != 0
        if terminated:
            np.testing.assert_array_equal(env.reset()[0], plain.reset())
    assert rewards > 0


def test_kept_observations_are_not_overwritten():
    env = atari.make("breakout", stack=3)
    kept = [env.reset(seed=1)[0]]
    copies = [kept[0].copy()]
    for step in range(200):  # more steps than the block of frames that stacks are views of
        kept.append(env.step(step % 18)[0])
        copies.append(kept[-1].copy())
    np.testing.assert_array_equal(kept, copies)
    assert not kept[0].flags.writeable


def test_an_episode_is_truncated_at_max_frames():
    env = atari.make("pong", max_frames=50, noop_max=4)
    plain = Plain("pong", 5, max_frames=50, noop_max=4)
    env.reset(seed=5)
    plain.reset()
    cuts = 0
    for _ in range(40):
        _, reward, terminated, truncated, _ = env.step(0)
        assert (reward, terminated, truncated) == plain.step(0)[1:]
        if truncated:
            cuts += 1
            np.testing.assert_array_equal(env.reset()[0], plain.reset())
    assert cuts == 3


def test_settings_have_their_documented_effect():
    assert atari.make("pong").action_space.n == 18
    assert atari.make("pong", preset="dqn").action_space.n == 6
    small = atari.make("ALE/SpaceInvaders-v5", height=40, width=30, stack=2, repeat=2, pool=False)
    observation, info = small.reset(seed=1)
    assert observation.shape == small.observation_space.shape == (2, 40, 30)
    assert set(info) == {"lives", "episode_frame_number"}
    begin = info["episode_frame_number"]
    assert small.step(0)[4]["episode_frame_number"] == begin + 2
    fired = atari.make("breakout", noop_max=0, fires_on_reset=True)
    assert fired.reset(seed=1)[1]["episode_frame_number"] == 1


def test_a_lost_life_ends_an_episode_but_not_the_game():
    env = atari.make("breakout", preset="dqn", fires_on_reset=True)
    env.reset(seed=2)
    frame = 0
    lives = []
    for _ in range(400):
        _, reward, terminated, _, info = env.step(3)
        assert abs(reward) <= 1
        assert info["episode_frame_number"] > frame
        frame = info["episode_frame_number"]
        if terminated:
            lives.append(info["lives"])
            if info["lives"] == 0:
                break
            env.reset()
    assert lives == [4, 3, 2, 1, 0]


def test_a_game_that_ends_before_its_next_life_begins_is_begun_again():
    env = atari.make("breakout", ends_on_life_loss=True)
    env.reset(seed=2)
    info = {"lives": 5}
    while info["lives"] == 5:
        _, _, terminated, _, info = env.step(1)
    assert terminated
    ends = iter([True])  # in the frame before the next life
    env._game_over = lambda: next(ends, False) or env.ale.game_over()
    _, info = env.reset()
    assert info["lives"] == 5
    assert not env.step(0)[2]


def test_rewards_are_clipped_if_reward_clip_is_set():
    rewards = {1.0: set(), None: set()}
    for clip, seen in rewards.items():
        env = atari.make("ms_pacman", reward_clip=clip)
        env.reset(seed=3)
        for _ in range(100):
            seen.add(env.step(2)[1])
    assert max(rewards[None]) > 1
    assert max(rewards[1.0]) == 1


def test_the_same_seed_repeats_an_episode():
    def play(seed):
        env = atari.make("pong", sticky=0.9, noop_max=0)
        env.reset(seed=seed)
        return np.array([env.step(2 + step // 5 % 2)[0] for step in range(60)])

    np.testing.assert_array_equal(play(4), play(4))
    assert (play(4) != play(5)).any()


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"repeat": 0}, "repeat is 0"),
        ({"noop_max": -1}, "noop_max is -1"),
        ({"max_frames": -1}, "max_frames is -1"),
        ({"sticky": 1.5}, "sticky is 1.5"),
        ({"reward_clip": 0}, "reward_clip is 0"),
        ({"height": 0}, "height is 0; it must be an integer"),
        ({"stack": 0}, "stack is 0"),
        ({"preset": "rainbow"}, "preset is 'rainbow'"),
    ],
)
def test_invalid_settings_are_refused(settings, text):
    with pytest.raises(InvalidArgumentError, match=text):
        atari.make("pong", **settings)


def test_invalid_screens_are_refused():
    frames = reverie._reverie.AtariFrames(4, 4, 2, 2, 1)
    with pytest.raises(TypeError, match="uint8"):
        frames.take(0, np.zeros((4, 4)))
    with pytest.raises(InvalidArgumentError, match="9 pixels; 16"):
        frames.take(0, np.zeros((3, 3), np.uint8))
    with pytest.raises(IndexError, match="screen 2"):
        frames.take(2, np.zeros((4, 4), np.uint8))


def test_the_first_picture_fills_the_stack_before_any_reset():
    frames = reverie._reverie.AtariFrames(2, 2, 2, 2, 4)
    screen = np.full((2, 2), 7, np.uint8)
    frames.learn(screen, screen)
    assert frames.take(0, screen)
    np.testing.assert_array_equal(frames.push(False, False), np.full((4, 2, 2), 7))


def test_the_error_for_an_unknown_game_suggests_similar_names():
    with pytest.raises(NotFoundError, match="pong"):
        atari.make("ponk")
    with pytest.raises(InvalidArgumentError, match="options is"):
        atari.make("pong").reset(options={"x": 1})


def test_a_pool_of_games_matches_single_environments():
    options = {"num_batches": 2, "num_workers": 2, "env_kwargs": {"game": "pong"}, "seed": 0}
    with reverie.EnvPool(atari.make, 2, info=["lives"], **options) as pool:
        assert pool.spec.observation == reverie.TensorSpec((4, 84, 84), "uint8")
        envs = [[atari.make("pong") for _ in range(2)] for _ in range(2)]
        batches = [pool.reset(batch=b).result() for b in range(2)]
        for b in range(2):
            for i in range(2):
                first, _ = envs[b][i].reset(seed=2 * b + i)
                np.testing.assert_array_equal(batches[b].observation[i], first)
        rng = np.random.default_rng(0)
        for _ in range(30):
            actions = rng.integers(0, 18, (2, 2))
            futures = [pool.step(actions[b], b) for b in range(2)]
            for b in range(2):
                batch = futures[b].result()
                for i in range(2):
                    expected = envs[b][i].step(int(actions[b, i]))
                    np.testing.assert_array_equal(batch.observation[i], expected[0])


def test_settings_accept_the_names_used_by_other_libraries():
    ours = atari.make(
        "pong", repeat=3, stack=2, sticky=0.25, reward_clip=1.0, height=42, noop_max=0
    )
    theirs = atari.make(
        "pong",
        frameskip=3,
        stack_num=2,
        repeat_action_probability=0.25,
        reward_clipping=True,
        img_height=42,
        grayscale=True,
        noop_max=0,
    )
    for env in (ours, theirs):
        env.reset(seed=5)
    for action in range(30):
        one, other = ours.step(action % 6), theirs.step(action % 6)
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:4] == other[1:4]
    with pytest.raises(InvalidArgumentError, match="repeat was given by another name too"):
        atari.make("pong", frame_skip=4, frameskip=4)
    with pytest.raises(InvalidArgumentError, match="grey"):
        atari.make("pong", gray_scale=False)


# The arguments of EnvPool's Atari environments, as its documentation lists them.
OF_ENVPOOL = [
    "num_envs",
    "batch_size",
    "num_threads",
    "seed",
    "thread_affinity_offset",
    "max_episode_steps",
    "img_height",
    "img_width",
    "stack_num",
    "gray_scale",
    "frame_skip",
    "noop_max",
    "episodic_life",
    "zero_discount_on_life_loss",
    "reward_clip",
    "repeat_action_probability",
    "use_inter_area_resize",
    "use_fire_reset",
    "full_action_space",
]


def test_each_name_of_other_libraries_is_accepted_or_refused_with_an_alternative(root):
    vector_env = pytest.importorskip("ale_py.vector_env")
    parameters = inspect.signature(vector_env.AtariVectorEnv.__init__).parameters
    theirs = set(parameters).difference(("self", "game")) | set(OF_ENVPOOL)
    assert {"img_height", "life_loss_info", "frameskip"} <= theirs
    ours = set(inspect.signature(atari.AtariEnv.__init__).parameters)
    page = (root / "docs/concepts/env_pool.md").read_text()
    values = {"reward_clip": True, "reward_clipping": False, "repeat_action_probability": 0.25}
    for name in sorted(theirs):
        assert f"`{name}" in page, name
        value = values.get(name, 1 if name not in parameters else parameters[name].default)
        if name in ours or name in atari.NAMES or name in ("grayscale", "gray_scale"):
            atari.make("pong", **{name: bool(value) if "gray" in name else value})
            continue
        with pytest.raises(InvalidArgumentError, match=f"^{name} is .*has no such setting: "):
            atari.make("pong", **{name: value})
