"""The committed stub matches the built module."""

import stubs


def test_the_stub_is_up_to_date():
    assert stubs.STUB.read_text() == stubs.generate(), "run 'make stubs' and commit the result"
