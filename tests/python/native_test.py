"""One test for each native test that ran before pytest (tools/test.py), so that all are counted."""

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


def test_the_build_has_native_test_results(results):
    assert cases_of(results), "no results: the build failed, see above"


def test_native(native):
    skipped = native.find("skipped")
    if skipped is not None:
        pytest.skip(skipped.get("message", "skipped"))
    # ctest writes a status, and its output as system-out; pytest writes failures and errors.
    faults = [*native.iter("failure"), *native.iter("error")]
    if faults or native.get("status", "run") != "run":
        said = [native.findtext("system-out") or "", *(fault.text or "" for fault in faults)]
        pytest.fail("\n".join(filter(None, said)) or native.get("status"), pytrace=False)
