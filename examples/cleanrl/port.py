"""Ports one of CleanRL's files: prints the changed lines, or writes the ported file.

    python examples/cleanrl/port.py cleanrl/dqn.py              # prints the changed lines
    python examples/cleanrl/port.py cleanrl/dqn.py --out dqn_reverie.py

It contains nothing of CleanRL: the program looks for the lines that make the replay buffer and the
environments, in whichever version of the file it is given, and replaces them. The buffer is
reverie's, which stores each observation once, and of stacked frames only the newest; the
environments are stepped by ``GymVectorEnv``, in the program's own thread.

    dqn.py, sac_continuous_action.py, td3_continuous_action.py    buffer and environments
    dqn_atari.py                                                  the same, frames unstacked
    ppo.py, ppo_atari.py                                          environments
"""

import argparse
import difflib
import re
from pathlib import Path

_BUFFER = re.compile(
    r"^from (cleanrl_utils|stable_baselines3\.common)\.buffers import ReplayBuffer$"
)
_ENVS = re.compile(r"\bgym\.vector\.(SyncVectorEnv|AsyncVectorEnv)\(")
_STACK = re.compile(r"\bFrameStack(Observation)?\(env, (?:stack_size=)?(?P<count>\d+)\)")
_MAKES_BUFFER = re.compile(r"= ReplayBuffer\(")


def ported(text: str) -> str:
    """A file of CleanRL, ported to reverie's buffer and environments.

    Raises:
        ValueError: the file has neither a known replay buffer nor known environments.
    """
    lines = text.splitlines(keepends=True)
    has_buffer = any(_BUFFER.match(line.rstrip("\n")) for line in lines)
    has_envs = any(_ENVS.search(line) for line in lines)
    if not has_buffer and not has_envs:
        raise ValueError(
            "the file has no ReplayBuffer of CleanRL's and no gym.vector environments; give one of "
            "the files that this program's head names"
        )
    stack = _STACK.search(text)
    made = []
    for line in lines:
        if _BUFFER.match(line.rstrip("\n")):
            if stack:
                made.append("from functools import partial\n")
            made.append("from reverie.contrib.cleanrl import ReplayBuffer\n")
            continue
        if has_envs and line.startswith("import torch\n"):
            made.append("from reverie.gym import GymVectorEnv\n")
        line = _ENVS.sub('GymVectorEnv(backend="thread", num_workers=0, env=', line)
        if stack and has_buffer:
            made_by = f"= partial(ReplayBuffer, frame_stack={stack['count']})("
            line = _MAKES_BUFFER.sub(made_by, line)
        made.append(line)
    return "".join(made)


def changed_lines(before: str, after: str) -> list[str]:
    """The removed and the added lines, as in a diff."""
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in found if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="?", help="a file of CleanRL's")
    parser.add_argument("--out", type=Path, help="where the ported file goes")
    arguments = parser.parse_args()
    if arguments.file is None:
        parser.print_help()
        return
    before = arguments.file.read_text()
    after = ported(before)
    lines = changed_lines(before, after)
    if arguments.out is not None:
        arguments.out.write_text(after)
    print("\n".join(lines))
    print(f"{len(lines)} lines of {arguments.file.name} change")


if __name__ == "__main__":
    main()
