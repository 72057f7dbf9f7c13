"""A failed test outside of pytest, or a build without results, fails the run that reports it."""

import subprocess
import sys

import pytest

_PASSED = '<testcase name="Sum.Adds" status="run"/>'
_FAILED = (
    '<testcase name="Sum.Fails" status="fail"><failure message=""/>'
    "<system-out>expected 2, was 3</system-out></testcase>"
)
_SKIPPED = (
    '<testcase name="Sum.Waits" status="notrun"><skipped message="no such device"/></testcase>'
)
# In the form that pytest writes: without a status.
_PASSED_IN_PYTEST = '<testcase classname="sum_test" name="test_adds" time="0.1" />'
_FAILED_IN_PYTEST = '<testcase name="test_fails"><error message="">no fixture</error></testcase>'


@pytest.fixture
def report(root, tmp_path):
    """Reports results of ``part``; returns pytest's status and output."""

    def run(*cases, part="release"):
        results = tmp_path / part / "tests.xml"
        if cases:
            results.parent.mkdir()
            results.write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v"]
        done = subprocess.run(
            [*command, f"--results={results}", "tests/python/native_test.py"],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return run


def test_each_native_test_is_counted_under_its_preset(report):
    status, text = report(_PASSED, _SKIPPED)
    assert status == 0
    assert "test_native[release:Sum.Adds] PASSED" in text
    assert "2 passed, 1 skipped" in text


def test_a_failed_native_test_fails_with_its_output(report):
    status, text = report(_PASSED, _FAILED)
    assert status == 1
    assert "expected 2, was 3" in text
    assert "1 failed, 2 passed" in text


def test_missing_results_fail_the_run(report):
    status, text = report()
    assert status == 1
    assert "the build failed" in text


def test_results_written_by_pytest_are_counted(report):
    status, text = report(_PASSED_IN_PYTEST, _FAILED_IN_PYTEST, part="asan-python")
    assert status == 1
    assert "test_native[asan-python:test_adds] PASSED" in text
    assert "no fixture" in text
    assert "1 failed, 2 passed" in text


def test_the_steps_and_the_slowest_files_are_printed_before_the_last_line(report):
    built = '<testcase name="build release" time="61.25" />'
    tested = '<testcase name="test release" time="30.00"><failure>status 8</failure></testcase>'
    status, text = report(built, tested, part="steps")
    assert status == 1
    table = text.partition("where the time went")[2].splitlines()
    assert table[1:3] == ["    61.2 s  build release", "    30.0 s  test release"]
    assert [line.split()[2] for line in table[3:6]] == [
        "pytest",
        "tests/python/native_test.py",
        "all",
    ]
    assert "1 failed, 2 passed" in table[-1]
