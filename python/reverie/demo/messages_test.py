"""Messages survive their line; anything else is refused."""

import pytest

from reverie.demo.messages import Evaluation, Failure, Outcome, Progress, from_line, to_line


@pytest.mark.parametrize(
    "message",
    [
        Progress(3, 250, None, 1500.5, 0.0, None, None, 0.9),
        Evaluation(3, 1500, 412.25),
        Outcome(3, 30_000, 20.5, 62.9, 28_500, 499.9, 486.0, 100),
        Failure(3, 'Traceback:\n  "quoted"\n'),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_survives_its_line(message):
    line = to_line(message)
    assert "\n" not in line
    assert from_line(line) == message


@pytest.mark.parametrize(
    "line", ["", "hello", "[]", "3", "{}", '{"kind": "Song"}', '{"kind": "Failure", "note": 1}']
)
def test_a_line_that_is_no_message_is_refused(line):
    with pytest.raises(ValueError, match=r"not a message|Expecting value"):
        from_line(line)
