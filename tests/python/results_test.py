"""A native test that failed, or a build that left no results, fails the run that reports them."""

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


@pytest.fixture
def report(root, tmp_path):
    """Reports results of a preset named ``release``; gives pytest's status and what it printed."""

    def run(*cases):
        results = tmp_path / "release" / "tests.xml"
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


def test_a_failed_native_test_fails_with_what_it_printed(report):
    status, text = report(_PASSED, _FAILED)
    assert status == 1
    assert "expected 2, was 3" in text
    assert "1 failed, 2 passed" in text


def test_missing_results_are_a_failure(report):
    status, text = report()
    assert status == 1
    assert "the build failed" in text
