"""Options of the test run, paths, and a summary of where the time went."""

import signal
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SLOWEST_COUNT = 20
_STARTED = pytest.StashKey[float]()


def pytest_configure(config):
    config.stash[_STARTED] = time.monotonic()
    # A shell starts background jobs with Ctrl-C ignored, and Python does not change that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        "--results",
        action="append",
        default=[],
        metavar="JUNIT_XML",
        help="what ran before (tools/test.py): it is reported too, so that one summary counts all",
    )

    parser.addoption(
        "--protocol",
        default="",
        help="what clients speak that name no protocol: the served tests run with each",
    )


@pytest.fixture(autouse=True, scope="session")
def _protocol(request):
    protocol = request.config.getoption("--protocol")
    if protocol:
        import reverie

        reverie.Client.__init__.__kwdefaults__["protocol"] = protocol


def pytest_ignore_collect(collection_path, config):
    if collection_path.name == "native_test.py" and not config.getoption("--results"):
        return True
    return None


def _steps_of(config):
    """Name and seconds of each step of tools/test.py; nothing if it did not run."""
    for path in map(Path, config.getoption("--results")):
        if path.parent.name == "steps" and path.exists():
            for case in ElementTree.parse(path).getroot().iter("testcase"):
                yield case.get("name"), float(case.get("time", 0))


def pytest_terminal_summary(terminalreporter, config):
    steps = list(_steps_of(config))
    if not steps:
        return
    files = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                files[report.nodeid.partition("::")[0]] += report.duration
    pytest_s = time.monotonic() - config.stash[_STARTED]
    terminalreporter.section("where the time went")
    for name, seconds in [
        *steps,
        ("pytest", pytest_s),
        *((f"  {name}", seconds) for name, seconds in files.most_common(_SLOWEST_COUNT)),
        ("all", pytest_s + sum(seconds for _, seconds in steps)),
    ]:
        terminalreporter.write_line(f"{seconds:8.1f} s  {name}")


def _slowdown():
    """How many times longer a computation of 50 ms takes because of other load; at least 1."""
    begin, begin_cpu = time.monotonic(), time.thread_time()
    while time.thread_time() - begin_cpu < 0.05:
        pass
    return max(1.0, (time.monotonic() - begin) / 0.05)


@pytest.fixture(scope="session")
def ended_within():
    """Whether something that began at ``begin`` took less than a limit, after correcting for load.

    A deadline is thus strict on a quiet machine, and holds where other programs run too.
    """

    def check(begin, limit_s):
        taken_s = time.monotonic() - begin
        return taken_s < limit_s or taken_s < limit_s * _slowdown()

    return check


@pytest.fixture(scope="session")
def root():
    """The root of the source tree."""
    return ROOT
