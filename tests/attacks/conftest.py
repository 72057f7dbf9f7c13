"""Fixtures: the server under attack, and an honest client that runs beside the attackers."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attack_peer import Peer, resident_mib

HERE = Path(__file__).parent
CERTIFICATES = HERE.parent / "data" / "tls"
PATIENCE_S = 60.0
CALLS_BESIDE = 20


class _Process:
    """A program of this folder that answers each line of its input."""

    def __init__(self, name, *arguments, **keywords):
        self.process = subprocess.Popen(
            [sys.executable, HERE / name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **keywords,
        )

    @property
    def pid(self):
        return self.process.pid

    def read(self):
        line = self.process.stdout.readline()
        assert line, f"the process ended with status {self.process.wait()}"
        return line.strip()

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.read())

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()


class Honest(_Process):
    """An honest client that runs beside the attackers."""

    def __init__(self, address, authorities=None):
        super().__init__("honest.py", address, *([] if authorities is None else [authorities]))

    def report(self, least):
        """The figures since the last report; waits until there were at least `least` calls."""
        report = self.ask(json.dumps([least, PATIENCE_S]))
        assert not report["errors"], report["errors"][:3]
        assert report["calls"] >= least, "the honest client was not served"
        return report


class Target(_Process):
    """The server under attack, with the figures of its honest client."""

    def __init__(self, limits=None, *, is_encrypted=False, **keywords):
        own = [CERTIFICATES / name for name in ("server.pem", "server_key.pem") if is_encrypted]
        super().__init__("target.py", json.dumps(limits or {}), *own, **keywords)
        self.address = self.read()
        self.authorities = CERTIFICATES / "authority.pem" if is_encrypted else None
        self.honest = Honest(self.address, self.authorities)
        self._report(CALLS_BESIDE)  # warms up
        self.quiet = self._report(CALLS_BESIDE)

    def close(self):
        self.honest.close()
        super().close()

    def peer(self, **keywords):
        return Peer(self.address, **keywords)

    def resident_mib(self):
        return resident_mib(self.pid)

    def descriptors(self):
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def wait_until(self, condition, seconds, what):
        """Polls `condition`; between two polls it calls the server instead of sleeping."""
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, f"not within {seconds} s: {what}"
            self._report(1)

    def _report(self, least):
        return self.honest.report(least)

    @contextlib.contextmanager
    def attacked(self, name, *, growth_mib=50.0):
        """Checks that the honest client is served and memory falls back; prints the figures."""
        self._report(1)
        before = self.resident_mib()
        yield
        during = self._report(CALLS_BESIDE)
        peak = self.resident_mib() - before
        print(
            f"\n{name}: honest p50 {during['p50_ms']:.1f} p99 {during['p99_ms']:.1f} max "
            f"{during['max_ms']:.1f} ms (quiet {self.quiet['p50_ms']:.1f}, "
            f"{self.quiet['p99_ms']:.1f}); resident {peak:+.1f} MiB",
            end="",
        )
        # A sanitizer keeps freed memory resident on purpose.
        if "ASAN_OPTIONS" not in os.environ:
            self.wait_until(
                lambda: self.resident_mib() < before + growth_mib,
                10,
                f"{self.resident_mib():.0f} MiB are resident, {before:.0f} were before",
            )


@pytest.fixture(scope="session")
def is_full(request):
    """Whether the run uses full counts."""
    return bool(request.config.getoption("--full", False))


@pytest.fixture(scope="module")
def target():
    """A server with its default limits.

    Its honest client works without a pause, so it ends with the module's tests: other tests run
    after them in the same process.
    """
    with contextlib.closing(Target()) as started:
        yield started
