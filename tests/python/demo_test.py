"""``reverie demo``, from its arguments to the files that it writes."""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys

import pytest

from child_processes import children_of

pytest.importorskip("gymnasium")
pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from matplotlib.image import imread


def demo(*arguments, code=None, **keywords):
    """Starts the command in a process; ``code`` replaces ``-m reverie``."""
    command = ["-m", "reverie"] if code is None else ["-c", code]
    return subprocess.Popen(
        [sys.executable, *command, "demo", *(str(word) for word in arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **keywords,
    )


def test_a_quick_run_prints_its_results_and_writes_an_image(tmp_path):
    process = demo("--quick", "--seed", 3, "--out", tmp_path / "out")
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, output + errors
    assert errors == ""
    assert "CartPole-v1 by the native learner" in output
    assert re.search(r"seed 3: done after [\d.]+ s, greedy return [\d.]+ over 100", output), output
    assert "The same over sockets, with a server, a learner and 2 actors" in output
    restart = re.search(
        r"seed 3 was killed, all of its processes, with ([\d,]+) items confirmed: ([\d,]+) came "
        r"back, ([\d.]+) s after the server's start, and the learner went on from step ([\d,]+)",
        output,
    )
    assert restart, output
    confirmed, found, step = (int(restart[i].replace(",", "")) for i in (1, 2, 4))
    assert found >= confirmed >= step >= 1_500
    assert not (tmp_path / "out" / "served").exists()
    for act in ("embedded", "served"):
        row = re.search(
            rf"│ {act}\s+│\s+3 │\s+([\d.]+) │\s+(\d+) │\s+[\d,]+ │\s+[\d.]+ │\s+[\d,]+ │", output
        )
        assert row, output
        mean, least = (float(figure) for figure in row.groups())
        assert 8 <= least <= mean <= 500
    assert imread(tmp_path / "out" / "learning-curve.png").shape[1] >= 1_000


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seeds", "0"], "--seeds is 0; it must be at least 1 and at most 1000"),
        (["--steps", "10"], "--steps is 10; it must be at least 2000"),
        (["--served", "-1"], "--served is -1; it must be at least 0"),
        (["--actors", "0"], "--actors is 0; it must be at least 1"),
        (["--seed", "-1"], "--seed is -1; it must be at least 0"),
        (["--seeds", "many"], "argument --seeds: invalid int value: 'many'"),
        (["--out", __file__], "is not a folder; name another one"),
    ],
)
def test_a_wrong_argument_is_refused_without_a_traceback(arguments, says):
    process = demo(*arguments)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 2
    assert output == ""
    assert errors.startswith("reverie demo: ")
    assert says in errors
    assert "Traceback" not in errors


def test_missing_extras_are_named_with_how_to_install_them():
    code = (  # makes the imports fail
        "import sys\nsys.modules['rich'] = sys.modules['gymnasium'] = None\n"
        "from reverie.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    )
    process = demo(code=code)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 1
    assert output == ""
    assert errors == (
        "reverie demo: gymnasium, rich not installed; "
        "pip install 'reverie[demo]' brings what is needed\n"
    )


def until_it_trains(process):
    for line in process.stdout:
        if line.startswith("seed ") and " steps/s" in line:
            return
    pytest.fail(process.stderr.read())


@contextlib.contextmanager
def watched(pids):
    """Checks at the end that the processes end, within a minute."""
    watches = [os.pidfd_open(pid) for pid in pids]
    try:
        yield
        for watch in watches:
            assert select.select([watch], [], [], 60)[0] == [watch]
    finally:
        for watch in watches:
            os.close(watch)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_ends_the_demo_with_one_line(tmp_path, number):
    process = demo("--seeds", 2, "--steps", 1_000_000, "--out", tmp_path)
    until_it_trains(process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 130, output + errors
    assert errors == "reverie demo: interrupted; every training was ended\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda n: n.name)
def test_the_server_learner_and_actors_end_with_the_demo(tmp_path, number):
    code = (  # skips to the second part
        "import sys\nfrom reverie.demo import cartpole\nfrom reverie.__main__ import main\n"
        "cartpole.train = lambda *_: []\nsys.exit(main(sys.argv[1:]))"
    )
    steps = ("--served", 1, "--actors", 2, "--steps", 1_000_000)
    process = demo(*steps, "--out", tmp_path, code=code)
    until_it_trains(process)
    (learner,) = children_of(process.pid)
    others = children_of(learner)
    assert len(others) == 3
    with watched([learner, *others]):
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
        if number == signal.SIGINT:
            assert errors == "reverie demo: interrupted; every training was ended\n"


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first_seed", [0, 1_000])
def test_all_five_seeds_reach_the_goal(tmp_path, first_seed):
    process = demo("--seed", first_seed, "--out", tmp_path)
    output, errors = process.communicate(timeout=800)
    assert process.returncode == 0, output + errors
    assert "Greedy return of at least 400 in 5 of 5 seeds" in output
    # A served seed that misses the goal is replaced once.
    assert re.search(r"Greedy return of at least 400 in 1 of (1 seed|2 seeds)", output)


@pytest.mark.parametrize(
    ("means", "status"), [([450], 0), ([268, 450], 0), ([268, 399], 1), ([268, None], 1)]
)
def test_a_served_seed_that_misses_the_goal_is_replaced_once(
    tmp_path, monkeypatch, capsys, means, status
):
    from reverie.demo import cartpole, run
    from reverie.demo.options import Options

    def outcome(seed, mean):
        curve = [(1, mean)]
        return cartpole.Outcome(seed, run.FULL_STEPS, 1.0, run.FULL_STEPS, mean, mean, curve)

    left = list(means)

    def serve(_options, seed, _say, _restarts):
        mean = left.pop(0)
        return None if mean is None else outcome(seed, mean)

    monkeypatch.setattr(
        run.cartpole, "train", lambda seeds, _steps, _say: [outcome(s, 500) for s in seeds]
    )
    monkeypatch.setattr(run, "_serve", serve)
    assert run.run(Options(out=tmp_path / "out", served_seeds=1)) == status
    assert left == []
    assert ("one more seed" in capsys.readouterr().out) == (len(means) > 1)
