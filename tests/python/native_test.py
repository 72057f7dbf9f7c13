"""What ctest ran before, one test each, so that the last line of a run counts everything."""

from pathlib import Path
from xml.etree import ElementTree

import pytest


def cases_of(path):
    return list(ElementTree.parse(path).getroot().iter("testcase")) if path.exists() else []


def pytest_generate_tests(metafunc):
    results = [Path(path) for path in metafunc.config.getoption("--results")]
    if "results" in metafunc.fixturenames:
        metafunc.parametrize("results", results, ids=lambda path: path.parent.name)
    if "native" in metafunc.fixturenames:
        metafunc.parametrize(
            "native",
            [
                pytest.param(case, id=f"{path.parent.name}:{case.get('name')}")
                for path in results
                for case in cases_of(path)
            ],
        )


def test_the_build_ran_tests(results):
    assert cases_of(results), "no results: the build failed, see above"


def test_native(native):
    if native.get("status") == "run":
        return
    if native.find("skipped") is not None:
        pytest.skip(native.find("skipped").get("message", "skipped"))
    pytest.fail(native.findtext("system-out") or native.get("status"), pytrace=False)
