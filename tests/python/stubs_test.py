"""The committed stub matches the built module."""

import stubs


def test_the_stub_is_current():
    assert stubs.STUB.read_text() == stubs.generate(), "run 'make stubs' and commit the result"
