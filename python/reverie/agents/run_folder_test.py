"""What ``reverie train`` reads and writes besides the policy: settings, pictures, event files."""

import concurrent.futures
import importlib.util
import json
import struct

import pytest

from reverie.__main__ import main
from reverie.agents import CoreTuning, TrainSettings, train
from reverie.agents.cores import plot
from reverie.agents.event_file import EventFile, crc32c, masked_crc32c

FLAGS = "--seed 1 --steps 400 --hidden 8 --warmup-steps 100 --batch-size 16 --quiet"
ARGUMENTS = FLAGS.split()


def records(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        (length_crc,) = struct.unpack_from("<I", data, at + 8)
        assert length_crc == masked_crc32c(data[at : at + 8])
        body = data[at + 12 : at + 12 + size]
        (body_crc,) = struct.unpack_from("<I", data, at + 12 + size)
        assert body_crc == masked_crc32c(body)
        yield body
        at += 16 + size


def fields(message):
    """(number, value) of each field of a protobuf message."""
    at = 0
    while at < len(message):
        key = message[at]
        at += 1
        if key & 7 == 1:
            yield key >> 3, struct.unpack_from("<d", message, at)[0]
            at += 8
        elif key & 7 == 5:
            yield key >> 3, struct.unpack_from("<f", message, at)[0]
            at += 4
        else:
            value = shift = 0
            while True:
                value |= (message[at] & 127) << shift
                shift += 7
                at += 1
                if message[at - 1] < 128:
                    break
            if key & 7 == 2:
                yield key >> 3, message[at : at + value]
                at += value
            else:
                yield key >> 3, value


def test_the_checksum_matches_the_values_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


def test_an_event_file_holds_scalars_by_step(tmp_path):
    with EventFile(tmp_path) as events:
        events.add(300, {"return": 12.5, "loss": 0.25})
    version, event = (dict(fields(body)) for body in records(events.path))
    assert version[3] == b"brain.Event:2"
    assert event[2] == 300
    values = [dict(fields(value)) for _, value in fields(event[5])]
    assert values == [{1: b"return", 2: 12.5}, {1: b"loss", 2: 0.25}]
    assert event[1] > 1e9


def test_tensorboard_reads_event_files(tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")
    with EventFile(tmp_path) as events:
        events.add(7, {"return": 12.5})
    read = list(loader.EventFileLoader(str(events.path)).Load())
    assert read[-1].step == 7
    assert read[-1].summary.value[0].tag == "return"


def test_a_training_writes_events_if_tensorboard_is_installed(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *rest: object() if name == "tensorboard" else found(name, *rest),
    )
    settings = TrainSettings(
        seed=1, steps=400, hidden=(8,), warmup_steps=100, evaluation_interval=200
    )
    train("dqn", "CartPole-v1", settings, out=tmp_path / "run", final_episodes=1)
    (path,) = (tmp_path / "run").glob("events.out.tfevents.*")
    tags = {
        dict(fields(value))[1]
        for body in list(records(path))[1:]
        for _, value in fields(dict(fields(body))[5])
    }
    assert {b"loss", b"return", b"return_without_exploration"} <= tags


def test_a_training_writes_images_of_the_curve_and_of_an_episode(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    out = tmp_path / "run"
    for algorithm, env in (("dqn", "CartPole-v1"), ("sac", "Pendulum-v1")):
        arguments = ["--algorithm", algorithm, "--env", env, *ARGUMENTS, "--final-episodes", "1"]
        if algorithm == "sac":
            arguments[arguments.index("--steps") + 1] = "120"
        assert main(["train", *arguments, "--out", str(out)]) == 0
        assert "episode.gif" in capsys.readouterr().out
        with image.open(out / "episode.gif") as picture:
            assert picture.n_frames > 1
    with image.open(out / "curve.png") as picture:
        assert picture.width > 300


def test_tune_cores_plots_the_split_of_cores(tmp_path, capsys):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    flags = "--algorithm dqn --env CartPole-v1 --hidden 8 --cores 2 --batch-size 8"
    arguments = flags.split()
    path = tmp_path / "cores.png"
    assert main(["tune-cores", *arguments, "--plot", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    with image.open(path) as picture:
        assert picture.width > 300
    assert main(["tune-cores", *arguments, "--plot", str(tmp_path / "cores.text")]) == 2
    assert "png" in capsys.readouterr().err
    assert main(["tune-cores", *arguments, "--plot", str(tmp_path / "none" / "cores.png")]) == 2


def test_the_plot_works_for_one_core_and_for_many(tmp_path):
    pytest.importorskip("matplotlib")
    settings = TrainSettings(update_interval=2.0)
    for cores, chosen in ((1, (0, 1)), (56, (7, 49))):
        curve = [1_000.0 * x**0.9 for x in range(1, cores + 1)]
        tuning = CoreTuning(
            cores=cores,
            actor_curve=curve,
            learner_curve=[value / 8 for value in curve],
            actor_cores=chosen[0],
            learner_cores=chosen[1],
            ratio=1.0,
            steps_per_s=5_000.0,
            settings=settings,
        )
        plot(tuning, tmp_path / f"{cores}.svg")
        assert (tmp_path / f"{cores}.svg").stat().st_size > 1_000


@pytest.mark.parametrize(
    "start", ["", "\N{ZERO WIDTH NO-BREAK SPACE}# \N{GREEK SMALL LETTER GAMMA}\n"]
)
def test_settings_can_be_read_from_a_file(tmp_path, capsys, start):
    config = tmp_path / "run.toml"
    config.write_text(
        start + 'algorithm = "dqn"\nenv = "CartPole-v1"\n[settings]\nseed = 1\nsteps = 400\n'
        "hidden = [8]\nwarmup_steps = 100\nbatch_size = 16\n",
        encoding="utf-8",  # the first character of some files, in UTF-8
    )
    out = tmp_path / "run"
    arguments = ["--config", str(config), "--steps", "300", "--out", str(out)]
    assert main(["train", *arguments, "--final-episodes", "1"]) == 0
    settings = json.loads((out / "settings.json").read_text())["settings"]
    assert (settings["steps"], settings["batch_size"], settings["hidden"]) == (300, 16, "8")
    assert "batch_size=16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('algorithm = "dqn"', "--env is missing"),
        ('env = "CartPole-v1"', "--algorithm is missing"),
        ('algorithm = "dqn"\nenv = "CartPole-v1"\nbatch_sise = 3', "batch_size"),
        ('algorithm = "dqn"\nenv = "CartPole-v1"\nbatch_size = 0', "batch_size is 0"),
        ('algorithm = "dqn"\nenv = "CartPole-v1"\nenv_options = 3', "table"),
        ('algorithm = "dqn"\nenv = "CartPole-v1"\nhidden = "64;64"', "hidden is '64;64'"),
        ("algorithm =", "run.toml"),
        ("settings = 3", "table"),
    ],
)
def test_a_wrong_settings_file_is_refused(tmp_path, capsys, text, words):
    (tmp_path / "run.toml").write_text(text)
    assert main(["train", "--config", str(tmp_path / "run.toml")]) == 2
    assert words in capsys.readouterr().err


def test_a_missing_settings_file_is_refused(tmp_path, capsys):
    assert main(["tune-cores", "--config", str(tmp_path / "none.toml")]) == 2
    assert "none.toml" in capsys.readouterr().err


def test_several_threads_can_save_one_result_into_the_same_folder(tmp_path):
    settings = TrainSettings(seed=1, steps=60, warmup_steps=50, hidden=(4,), actors=0)
    result = train("dqn", "CartPole-v1", settings, final_episodes=1)
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: result.save(tmp_path), range(12)))
    assert json.loads((tmp_path / "settings.json").read_text())["end"] == "all steps"
    assert not list(tmp_path.glob("*.new"))
