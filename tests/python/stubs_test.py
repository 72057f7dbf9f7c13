"""The committed stub is what the built module says of itself."""

import stubs


def test_the_stub_is_current():
    assert stubs.STUB.read_text() == stubs.generate(), "run 'make stubs' and commit the result"
