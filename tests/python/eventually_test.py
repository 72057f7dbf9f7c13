"""The helper ``eventually``, with which tests wait."""

import itertools

import pytest

from eventually import eventually


def test_it_asks_until_the_answer_is_true_and_gives_it():
    answers = itertools.chain([0, None, "", []], ["seven"], itertools.repeat(None))
    assert eventually(lambda: next(answers)) == "seven"


def test_it_fails_with_what_it_waited_for():
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: .*3 > 4"):
        eventually(lambda: 3 > 4, 0.01)
