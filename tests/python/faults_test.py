"""The pages on faults and on differences name existing tests; some of these tests are here."""

import re

import numpy as np
import pytest

import reverie

PAGES = ["faults.md", "reverb_compatibility.md"]
TESTS = (
    "python/**/*_test.py",
    "tests/attacks/*_test.py",
    "tests/python/*_test.py",
    "tests/reverb/*_test.py",
    "tools/*_test.py",
    "tests/reverb_api/*_test.py",
)


@pytest.mark.parametrize("name", PAGES)
def test_the_tests_that_the_page_names_exist(root, name):
    page = (root / "docs" / name).read_text()
    sources = [
        *root.glob("src/**/*_test.cc"),
        *root.glob("tests/**/*.cc"),
        *root.glob("tests/**/*.h"),
    ]
    native = "\n".join(path.read_text() for path in sources)
    found = {
        f"{suite}.{name}"
        for suite, name in re.findall(r"^TEST(?:_P|_F)?\((\w+),\s*(\w+)\)", native, re.MULTILINE)
    }
    for pattern in TESTS:
        for path in root.glob(pattern):
            found.update(re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE))
    named = set(re.findall(r"`([A-Z]\w+\.[A-Z]\w+|test_\w+)`", page))
    assert len(named) > 30
    assert named - found == set()


@pytest.mark.parametrize("name", PAGES)
def test_every_fault_or_difference_of_the_page_names_a_test(root, name):
    heading, rows = "", []
    for line in (root / "docs" / name).read_text().splitlines():
        if not line.startswith("|"):
            heading = ""
        elif not heading:
            heading = line
        elif line.startswith("| ") and ("shown by" in heading or "differs" in heading):
            rows.append(line)
    assert len(rows) > 30
    for row in rows:
        assert re.search(r"`([A-Z]\w+\.[A-Z]\w+|test_\w+)`[^|]*\|$", row), row


def table(name, sampler, limiter):
    return reverie.Table(name, sampler, reverie.selectors.Fifo(), 100, limiter)


@pytest.mark.parametrize("exponent", [-0.5, float("nan"), float("inf")])
def test_an_exponent_that_is_negative_or_not_finite_is_refused(exponent):
    with pytest.raises(ValueError, match=f"priority_exponent is {exponent}"):
        reverie.selectors.Prioritized(exponent)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: reverie.selectors.Uniform(seed=seed),
        lambda seed: reverie.selectors.Prioritized(0.6, seed=seed),
    ],
    ids=["uniform", "prioritized"],
)
def test_the_same_seed_repeats_the_draws(make):
    def draws(seed):
        with reverie.Store([table("t", make(seed), reverie.rate_limiters.MinSize(1))]) as store:
            client = store.client()
            for value in range(50):
                client.insert(np.int64(value), {"t": 1.0 + value})
            return client.sample_batch("t", 100).data.ravel().tolist()

    assert draws(7) == draws(7)
    assert draws(7) != draws(8)


def test_tables_may_share_a_selector_and_a_limiter():
    sampler = reverie.selectors.MaxHeap()
    limiter = reverie.rate_limiters.Queue(2)
    with reverie.Store([table("a", sampler, limiter), table("b", sampler, limiter)]) as store:
        client = store.client()
        client.insert(np.int64(1), {"a": 1.0})
        client.insert(np.int64(2), {"a": 9.0})
        assert not store["a"].can_insert(1)
        assert store["b"].can_insert(2)
        assert not store["b"].can_sample(1)
        client.insert(np.int64(3), {"b": 5.0})
        assert client.sample_batch("b", 1).data.item() == 3
        assert client.sample_batch("a", 1).data.item() == 2
