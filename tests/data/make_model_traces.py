"""Records runs of the models in docs/models, event by event, for tests to replay on the code.

    python tests/data/make_model_traces.py

Needs Debian's package spin. ``tests/data/models/`` then holds a file for each model;
``models_test.py`` makes the files again and compares, ``tests/sim/model_traces_test.cc`` replays
them. A run is a random walk through the model's states; runs without a fault are left out.
"""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "tests" / "data" / "models"
RUNS = 60
# The first words of the lines that a fault prints.
FAULTS = {
    "at_most_once": {"cut", "restart", "silence"},
    "insert_once": {"cut", "restart", "give_up", "take_back", "refuse"},
}
# Rare events: every second kept run has one.
RARE = {"at_most_once": {"silence"}, "insert_once": {"take_back", "refuse", "lost"}}


def run_of(model: str, seed: int, *defines: str) -> list[str]:
    """The events of one random walk."""
    done = subprocess.run(
        [
            "spin",
            "-DTRACED",
            *(f"-D{name}" for name in defines),
            "-T",
            f"-n{seed}",
            str(ROOT / "docs" / "models" / f"{model}.pml"),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    return lines[: lines.index("timeout")]


def traces(model: str, count: int = RUNS) -> str:
    """``count`` runs; each begins with a line that holds its seed."""
    kept: list[str] = []
    seed = found = 0
    while found < count:
        seed += 1
        events = run_of(model, seed)
        words = {line.split()[0] for line in events}
        if not words & (FAULTS if found % 2 else RARE)[model]:
            continue
        found += 1
        kept += [f"seed {seed}", *events]
    return "\n".join(kept) + "\n"


def main() -> None:
    """Writes all files."""
    for model in FAULTS:
        (FOLDER / f"{model}.txt").write_text(traces(model))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    main()
