"""The helper ``eventually``, with which tests wait."""

import itertools

import pytest

from eventually import eventually


def test_eventually_calls_until_the_result_is_true_and_returns_it():
    answers = itertools.chain([0, None, "", []], ["seven"], itertools.repeat(None))
    assert eventually(lambda: next(answers)) == "seven"


def test_eventually_fails_with_the_condition_that_it_waited_for():
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: .*3 > 4"):
        eventually(lambda: 3 > 4, 0.01)
