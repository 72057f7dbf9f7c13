"""Sources are checked again only if something that clang-tidy reads has changed."""

import json

import pytest

import clang_tidy


@pytest.fixture
def project(tmp_path):
    """Two sources, a compiler that prints them, and a clang-tidy that dislikes the word bad."""
    sources = tmp_path / "src" / "reverie"
    sources.mkdir(parents=True)
    compiler, tidy = tmp_path / "compiler", tmp_path / "tidy"
    compiler.write_text('#!/bin/sh\ncat "$1"\n')
    tidy.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec echo 14\n'
        f'echo "$4" >> {tmp_path}/checked\n! grep bad "$4"\n'
    )
    compiler.chmod(0o755)
    tidy.chmod(0o755)
    (tmp_path / ".clang-tidy").write_text("Checks: bugprone-*")
    commands = []
    for name in ("one.cc", "two.cc", "one_test.cc"):
        (sources / name).write_text("good")
        commands.append(
            {
                "directory": str(tmp_path),
                "command": f"{compiler} {sources / name} -o {name}.o -c",
                "file": str(sources / name),
            }
        )
    build = tmp_path / "build"
    build.mkdir()
    (build / "compile_commands.json").write_text(json.dumps(commands))

    def run():
        (tmp_path / "checked").write_text("")
        status = clang_tidy.main([str(build), "--program", str(tidy), "--root", str(tmp_path)])
        checked = (tmp_path / "checked").read_text().split()
        return status, sorted(path.rsplit("/", 1)[1] for path in checked)

    return tmp_path, sources, run


def test_clean_sources_are_not_checked_again(project):
    _, sources, run = project
    assert run() == (0, ["one.cc", "two.cc"])
    assert run() == (0, [])
    (sources / "two.cc").write_text("better")
    assert run() == (0, ["two.cc"])
    assert run() == (0, [])


def test_a_source_with_a_finding_fails_every_time(project, capsys):
    _, sources, run = project
    (sources / "two.cc").write_text("bad")
    assert run() == (1, ["one.cc", "two.cc"])
    assert "src/reverie/two.cc: FAILED\nbad" in capsys.readouterr().out
    assert run() == (1, ["two.cc"])


def test_another_configuration_checks_all_sources_again(project):
    root, _, run = project
    assert run() == (0, ["one.cc", "two.cc"])
    (root / ".clang-tidy").write_text("Checks: performance-*")
    assert run() == (0, ["one.cc", "two.cc"])
    assert len(list((root / "build" / "clean").iterdir())) == 2


def test_a_project_without_sources_fails(project, capsys):
    root, _, run = project
    (root / "build" / "compile_commands.json").write_text("[]")
    assert run() == (1, [])
    assert "no sources were found" in capsys.readouterr().out
