"""Atari games with the preprocessing of published agents, over ale-py's emulator.

    from reverie.envs import atari

    pool = reverie.EnvPool(atari.make, 32, env_kwargs={"game": "pong"})

An environment follows Gymnasium. Screens are pooled, scaled down and stacked in C++;
``src/reverie/env/atari_frame.h`` defines this to the pixel.
"""

from __future__ import annotations

import importlib
import re
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from reverie import _checks, _reverie
from reverie.errors import InvalidArgumentError, MissingPackageError, NotFoundError

PRESETS: dict[str, dict[str, Any]] = {
    # The environments of moolib's paper, table 2 (as in IMPALA and TorchBeast).
    "impala": {},
    # Mnih et al. 2015: the actions a game knows, a life is an episode, rewards are signs.
    "dqn": {
        "full_action_space": False,
        "ends_on_life_loss": True,
        "reward_clip": 1.0,
    },
}
"""Settings by name: ``"impala"`` and ``"dqn"``."""


_COUNT_MAX = 2**31 - 1
_EXTENT_MAX = 4096


def make(game: str, preset: str = "impala", **settings: Any) -> AtariEnv:  # noqa: ANN401
    """An Atari environment; a function that ``EnvPool`` can be given.

    Args:
        game: ``"pong"``, ``"space_invaders"``; also as in Gymnasium, ``"ALE/SpaceInvaders-v5"``.
        preset: one of ``PRESETS``.
        settings: arguments of ``AtariEnv`` that differ from the preset; also by the names that
            ale-py's ``AtariVectorEnv`` and EnvPool have for them, see ``NAMES``.

    Raises:
        InvalidArgumentError: a setting is given by two names, asks for colours, or is one of theirs
            that is not here.
    """
    _checks.choice("preset", preset, PRESETS)
    return AtariEnv(game, **{**PRESETS[preset], **_translated(settings)})


NAMES = {
    "episodic_life": "ends_on_life_loss",
    "frame_skip": "repeat",
    "frameskip": "repeat",
    "img_height": "height",
    "img_width": "width",
    "max_num_frames_per_episode": "max_frames",
    "maxpool": "pool",
    "repeat_action_probability": "sticky",
    "reward_clipping": "reward_clip",
    "stack_num": "stack",
    "use_fire_reset": "fires_on_reset",
}
"""What ale-py's ``AtariVectorEnv`` and EnvPool call the arguments of ``AtariEnv``."""

_OF_THE_POOL = "it is an argument of what steps the environments"
_ELSEWHERE = {
    "autoreset_mode": "give it to reverie.gym.GymVectorEnv; an EnvPool resets in the same step",
    "batch_size": f"{_OF_THE_POOL}: EnvPool(..., batch_size=)",
    "num_envs": f"{_OF_THE_POOL}: EnvPool(atari.make, num_envs)",
    "num_threads": f"{_OF_THE_POOL}: EnvPool(..., num_workers=)",
    "seed": f"{_OF_THE_POOL}: EnvPool(..., seed=), or reset(seed=)",
    "thread_affinity_offset": "workers are not bound to cores; taskset binds the program with them",
    "continuous": "actions are those of the joystick; ale-py's AtariEnv has continuous ones",
    "continuous_action_threshold": "it is of continuous actions, which are not here",
    "max_episode_steps": "give max_frames, the emulator's: so many steps times repeat",
    "life_loss_info": "ends_on_life_loss=True ends the episode there, and info has lives",
    "zero_discount_on_life_loss": "a step has no discount; ends_on_life_loss=True ends the episode",
    "use_inter_area_resize": "pictures are made small by the bilinear rule: leave it out",
}
"""Their other arguments, and what there is instead."""


def _translated(settings: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in settings.items():
        if name in ("grayscale", "gray_scale"):
            if not _checks.flag(name, value):
                raise InvalidArgumentError(f"{name} is False; observations are grey: leave it out")
            continue
        if name in _ELSEWHERE:
            raise InvalidArgumentError(
                f"{name} is {_checks.shown(value)}; an Atari environment here has no such setting: "
                f"{_ELSEWHERE[name]}"
            )
        ours = NAMES.get(name, name)
        if ours in made:
            raise InvalidArgumentError(
                f"{name} is {_checks.shown(value)}, and {ours} was given by another name too; give "
                "one of them"
            )
        if name == "reward_clipping" or (name == "reward_clip" and isinstance(value, bool)):
            value = 1.0 if _checks.flag(name, value) else None
        made[ours] = value
    return made


class AtariEnv:
    """One game, as a Gymnasium environment.

    Observes ``[stack, height, width]`` uint8, the oldest picture first.

    Args:
        game: see ``make``.
        repeat: frames for which an action is held; their rewards are summed.
        pool: takes the brighter of the last two frames, pixel by pixel; otherwise only the last.
        height: pixels of an observation.
        width: pixels of an observation.
        stack: how many of the last pictures an observation contains; a reset repeats its first.
        noop_max: a reset is followed by 1 to this many frames without an action; 0 for none.
        max_frames: after how many frames an episode is truncated; 0 is never.
        full_action_space: all 18 actions; otherwise those that the game knows.
        sticky: probability that the emulator repeats the last action instead.
        ends_on_life_loss: a lost life ends the episode; the game itself continues.
        fires_on_reset: presses fire after a reset if the game has that action.
        reward_clip: clips a step's reward to plus and minus this much; None does not.

    Raises:
        MissingPackageError: ale-py is not installed.
        NotFoundError: there is no such game; near ones are named.
        InvalidArgumentError: a setting is out of bounds.
    """

    def __init__(
        self,
        game: str,
        *,
        repeat: int = 4,
        pool: bool = True,
        height: int = 84,
        width: int = 84,
        stack: int = 4,
        noop_max: int = 30,
        max_frames: int = 108_000,
        full_action_space: bool = True,
        sticky: float = 0.0,
        ends_on_life_loss: bool = False,
        fires_on_reset: bool = False,
        reward_clip: float | None = None,
    ) -> None:
        repeat = _checks.integer("repeat", repeat, 1, _COUNT_MAX)
        noop_max = _checks.integer("noop_max", noop_max, 0, _COUNT_MAX)
        max_frames = _checks.integer("max_frames", max_frames, 0, _COUNT_MAX)
        height = _checks.integer("height", height, 1, _EXTENT_MAX)
        width = _checks.integer("width", width, 1, _EXTENT_MAX)
        stack = _checks.integer("stack", stack, 1, _EXTENT_MAX)
        for name, value in (
            ("pool", pool),
            ("full_action_space", full_action_space),
            ("ends_on_life_loss", ends_on_life_loss),
            ("fires_on_reset", fires_on_reset),
        ):
            _checks.flag(name, value)
        sticky = _checks.number("sticky", sticky, 0.0, 1.0)
        if reward_clip is not None:
            reward_clip = _checks.number("reward_clip", reward_clip, above=0.0, remedy=", or None")
        _checks.text("game", game)
        ale_py, gymnasium = _packages()
        self._rom = _rom(ale_py, game)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        self._ale.setFloat("repeat_action_probability", sticky)
        self._load(0)
        legal = self._ale.getLegalActionSet()
        self._actions = list(legal if full_action_space else self._ale.getMinimalActionSet())
        self._noop, self._fire = legal[0], legal[1]
        self._fires = fires_on_reset and self._fire in self._ale.getMinimalActionSet()
        self._repeat = repeat
        self._pool = pool
        self._noop_max = noop_max
        self._max_frames = max_frames
        self._ends_on_life_loss = ends_on_life_loss
        self._reward_clip = reward_clip
        self._rng = np.random.default_rng()
        screen_height, screen_width = self._ale.getScreenDims()
        self._frames = _reverie.AtariFrames(screen_height, screen_width, height, width, stack)
        self._screen_shape = (screen_height, screen_width)
        self._lives = 0
        self._is_over = True
        # What a step calls, looked up once.
        self._act, self._game_over = self._ale.act, self._ale.game_over
        self._get_screen = self._ale.getScreen
        self.action_space = gymnasium.spaces.Discrete(len(self._actions))
        self.observation_space = gymnasium.spaces.Box(0, 255, (stack, height, width), np.uint8)
        self.metadata: dict[str, Any] = {"render_modes": []}
        self.render_mode = None
        self.spec = None

    @property
    def ale(self) -> Any:  # noqa: ANN401
        """The emulator."""
        return self._ale

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: seeds the count of no-ops and the emulator, from now on.
            options: none are known.
        """
        _checks.no_options("options", options, "none are known")
        if seed is not None:
            seed = _checks.integer("seed", seed, 0)
            self._rng = np.random.default_rng(seed)
            self._load(int(self._rng.integers(2**31)))
            self._is_over = True
        if self._is_over or not self._ends_on_life_loss:
            self._begin_game()
        else:
            self._act(self._noop)  # the next life of the same game
            if self._game_over():
                self._begin_game()
        if self._fires:
            self._act(self._fire)
            if self._game_over():
                self._begin_game()
        self._is_over = False
        self._lives = self._ale.lives()
        self._take(0)
        return self._frames.push(False, True), self._info(self._ale.getEpisodeFrameNumber())

    def step(self, action: int) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Hold an action for ``repeat`` frames.

        If the game ends before the last of them, only the frame that it ended with is used.
        """
        if type(action) is not int or not 0 <= action < len(self._actions):
            action = _checks.integer("action", action, 0, len(self._actions) - 1)
        act, game_over, ale_action = self._act, self._game_over, self._actions[action]
        reward = 0.0
        has_first = False
        last = self._repeat - 1
        for frame in range(self._repeat):
            reward += act(ale_action)
            if game_over():
                self._is_over = True
                break
            if frame == last - 1 and self._pool:
                self._take(0)
                has_first = True
        self._take(1 if has_first else 0)
        observation = self._frames.push(has_first, False)
        terminated = self._is_over
        lives = self._ale.lives()
        if self._ends_on_life_loss and lives < self._lives:
            terminated = True
        self._lives = lives
        frame_number = self._ale.getEpisodeFrameNumber()
        truncated = not terminated and 0 < self._max_frames <= frame_number
        if truncated:
            self._is_over = True
        if self._reward_clip is not None:
            reward = min(max(reward, -self._reward_clip), self._reward_clip)
        return observation, reward, terminated, truncated, self._info(frame_number)

    def close(self) -> None:
        """Does nothing: the emulator goes with this object."""

    def _load(self, seed: int) -> None:
        self._ale.setInt("random_seed", seed)
        self._ale.loadROM(self._rom)

    def _begin_game(self) -> None:
        self._ale.reset_game()
        if self._noop_max == 0:
            return
        for _ in range(int(self._rng.integers(1, self._noop_max + 1))):
            self._act(self._noop)
            if self._game_over():
                self._ale.reset_game()

    def _take(self, which: int) -> None:
        """Takes the emulator's screen as it is now as one of the last two."""
        screen = _screens(self._screen_shape)[which]
        self._get_screen(screen)
        if not self._frames.take(which, screen):
            # Colours that no screen had before: the emulator says how grey they are.
            grey = np.empty_like(screen)
            self._ale.getScreenGrayscale(grey)
            self._frames.learn(screen, grey)
            self._frames.take(which, screen)

    def _info(self, frame_number: int) -> dict[str, Any]:
        return {"lives": self._lives, "episode_frame_number": frame_number}


_scratch = threading.local()


def _screens(shape: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """The two screens of a step. All environments of a thread use the same: they stay in cache."""
    screens: npt.NDArray[np.uint8] | None = getattr(_scratch, "screens", None)
    if screens is None or screens.shape[1:] != shape:
        screens = _scratch.screens = np.zeros((2, *shape), np.uint8)
    return screens


def _packages() -> tuple[Any, Any]:
    try:
        return importlib.import_module("ale_py"), importlib.import_module("gymnasium")
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"Atari games need {error.name}: pip install 'reverie[atari]'"
        ) from None


def _rom(ale_py: Any, game: str) -> Any:  # noqa: ANN401
    name = re.sub(r"-v\d+$", "", game.removeprefix("ALE/"))
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if name not in ale_py.roms.get_all_rom_ids():
        import difflib

        near = difflib.get_close_matches(name, ale_py.roms.get_all_rom_ids(), n=5)
        offer = f"; near it are {', '.join(near)}" if near else ""
        raise NotFoundError(f"there is no Atari game {game!r}{offer}")
    return ale_py.roms.get_rom_path(name)
