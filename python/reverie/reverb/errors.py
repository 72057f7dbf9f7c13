"""Reverb's own two exceptions. All other errors are classes of ``reverie.errors``."""

from reverie.errors import ReverieError


class ReverbError(ReverieError):
    """The base of ``DeadlineExceededError``.

    As in Reverb, the other errors are no ``ReverbError``: they are ``ValueError``, ``RuntimeError``
    and so on, whatever the order of a program's ``except`` clauses.
    """


class DeadlineExceededError(ReverbError):
    """A call did not end in the time that it was given."""


__all__ = ["DeadlineExceededError", "ReverbError"]
