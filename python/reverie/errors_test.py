"""One class per kind of error, each also a builtin class that Python users catch."""

import pytest

import reverie
from reverie import _reverie, errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type)]


@pytest.mark.parametrize(
    ("kind", "builtins"),
    [
        (errors.InvalidArgumentError, (ValueError,)),
        (errors.ResourceExhaustedError, (IndexError,)),
        (errors.UnimplementedError, (NotImplementedError, RuntimeError)),
        (errors.NotFoundError, (RuntimeError, KeyError)),
        (errors.DeadlineExceededError, (RuntimeError, TimeoutError)),
        (errors.CancelledError, (RuntimeError,)),
        (errors.FailedPreconditionError, (RuntimeError,)),
        (errors.OutOfRangeError, (RuntimeError, IndexError)),
        (errors.UnsupportedTypeError, (TypeError,)),
        (errors.MissingPackageError, (ImportError,)),
    ],
)
def test_each_error_is_also_the_builtin_class_that_users_catch(kind, builtins):
    for builtin in builtins:
        assert issubclass(kind, builtin)


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_is_a_reverb_error_and_shows_its_message_unchanged(kind):
    assert issubclass(kind, reverie.ReverbError)
    assert str(kind("table 't' is full")) == "table 't' is full"


def test_native_code_raises_these_classes():
    with pytest.raises(errors.DataLossError, match="nonsense"):
        _reverie.fold("nonsense", [])
