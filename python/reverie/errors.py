"""Exceptions, one class per kind of error.

Every class derives from ``ReverieError`` and from the builtin that Reverb raises for the same
kind, so ``except ValueError`` around a bad argument works as it does there.
"""

from reverie import _reverie


class ReverieError(Exception):
    """Any error that the library reports.

    The message gives the value, the bound and what to do.
    """


ReverbError = ReverieError


class CancelledError(ReverieError, RuntimeError):
    """The call was ended from outside: the store or the writer was closed."""


class InvalidArgumentError(ReverieError, ValueError):
    """An argument can never work: a wrong shape, a NaN, an empty slice."""


class UnsupportedTypeError(ReverieError, TypeError):
    """A value has a type that cannot be stored or used there."""


class DeadlineExceededError(ReverieError, TimeoutError, RuntimeError):
    """The time was up before the call could be served completely.

    Attributes:
        batch: what ``sample_batch`` had drawn by then, or None.
    """

    batch: object = None


class NotFoundError(ReverieError, KeyError, ValueError, RuntimeError):
    """There is nothing of that name: a table, a peer, a function, a checkpoint.

    Reverb raises either builtin, depending on the call.
    """

    __str__ = Exception.__str__  # KeyError would show the message in quotes


class AlreadyExistsError(ReverieError, RuntimeError):
    """Something with that name or key exists already."""


class PermissionDeniedError(ReverieError, RuntimeError):
    """The caller may not do that."""


class ResourceExhaustedError(ReverieError, IndexError):
    """A budget of bytes or memory is used up."""


class FailedPreconditionError(ReverieError, RuntimeError):
    """The call is valid but not now: after a close, in a forked child, for an expired step."""


class OutOfRangeError(ReverieError, IndexError, RuntimeError):
    """An index is out of range."""


class UnimplementedError(ReverieError, NotImplementedError):
    """This is not implemented."""


class InternalError(ReverieError, RuntimeError):
    """A fault of the library."""


class UnavailableError(ReverieError, RuntimeError):
    """The server or peer that should answer cannot be reached."""


class DataLossError(ReverieError, RuntimeError):
    """Stored or sent bytes are damaged."""


class UnauthenticatedError(ReverieError, RuntimeError):
    """The caller has not proved who it is."""


class MissingPackageError(ReverieError, ImportError):
    """An optional package is needed for this, and not installed."""


class EnvError(ReverieError, RuntimeError):
    """An environment of a pool raised, or the worker process that ran it ended.

    Attributes:
        worker: the worker's number.
        batch: the batch of the environment, or None if it is not known.
        env_id: the environment's number within its batch, or None if it is not known.
        traceback_text: the environment's traceback; empty if the worker ended.
    """

    worker: int = -1
    batch: int | None = None
    env_id: int | None = None
    traceback_text: str = ""


class PeerRestartedError(UnavailableError):
    """The run of the peer that was called is gone; the call may have been carried out."""


class GroupChangedError(UnavailableError):
    """A round has ended without a result: its group lost a member, or has a new one.

    Attributes:
        lost: the names of the members that were lost, as far as known; empty if one joined.
    """

    lost: tuple[str, ...] = ()


class RemoteError(ReverieError, RuntimeError):
    """The function that was called on another peer raised.

    Attributes:
        error_type: the class of the exception there, ``"ValueError"``.
        error_text: its message.
        traceback_text: its traceback, as Python prints it.
    """

    error_type: str = ""
    error_text: str = ""
    traceback_text: str = ""


_reverie.set_rpc_error_classes(RemoteError, PeerRestartedError)

# The numbers of reverie/base/status.h.
_reverie.set_error_classes(
    {
        1: CancelledError,
        3: InvalidArgumentError,
        4: DeadlineExceededError,
        5: NotFoundError,
        6: AlreadyExistsError,
        7: PermissionDeniedError,
        8: ResourceExhaustedError,
        9: FailedPreconditionError,
        11: OutOfRangeError,
        12: UnimplementedError,
        13: InternalError,
        14: UnavailableError,
        15: DataLossError,
        16: UnauthenticatedError,
    },
    UnsupportedTypeError,
    MissingPackageError,
)
