"""How errors of the library become those of Reverb, and what its writers do with them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from reverie import _reverie, errors
from reverie.errors import ReverieError
from reverie.reverb.errors import DeadlineExceededError, ReverbError

_Result = TypeVar("_Result")
_Params = ParamSpec("_Params")
_COLUMN = re.compile("column '(.*?)'")


def in_time(call: Callable[..., _Result], *args: Any, **kwargs: Any) -> _Result:  # noqa: ANN401
    """The result of a call that has a time limit, whose errors are Reverb's."""
    try:
        return call(*args, **kwargs)
    except ReverieError as error:
        raise explained(error) from None


def timed(method: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """The same method of a class of ours, whose errors are Reverb's."""

    @functools.wraps(method)
    def call(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        return in_time(method, *args, **kwargs)

    return call


def explained(error: BaseException, trajectory: Any = None) -> BaseException:  # noqa: ANN401
    """The error as Reverb's class, with the words for which programs look, and our own text.

    Args:
        error: what the writer raised.
        trajectory: that of the item which the writer refused, if it refused one.
    """
    text = str(error)
    if isinstance(error, errors.DeadlineExceededError):
        made = DeadlineExceededError(text)
        vars(made).update(vars(error))  # the part of a batch that was drawn
        return made
    words = _words(text, trajectory) if isinstance(error, ReverieError) else ""
    return with_words(words, error) if words else error


def in_its_class(error: BaseException, _trajectory: Any = None) -> BaseException:  # noqa: ANN401
    """A time limit as Reverb's class; any other error as it is."""
    return explained(error) if isinstance(error, errors.DeadlineExceededError) else error


def with_words(words: str, error: BaseException) -> BaseException:
    """The same error with Reverb's words in front of its text."""
    text = str(error)
    return type(error)(f"{words}. {text[:1].upper()}{text[1:]}")


def _words(text: str, trajectory: Any) -> str:  # noqa: ANN401
    """Reverb's words for an error of that text; empty where it has none of its own."""
    found = _COLUMN.search(text)
    path = _path(found[1]) if found else ()
    if "was already given in step" in text:
        return f"Field {path} has already been set in the active step"
    if "since its first value, but" in text:
        is_shape = text.endswith("all steps must have one shape")
        what = "incompatible shape" if is_shape else "wrong dtype"
        return f"Tensor of {what} provided for column {path}"
    if "has expired: " in text and trajectory is not None:
        columns = _reverie.flatten(trajectory)[1]
        place = next((i for i, column in enumerate(columns) if column.expired), 0)
        return f"Error in column {place}: Column contains expired CellRef"
    if text.startswith("this TrajectoryWriter is closed"):
        return "TrajectoryWriter::Close has been called"
    return ""


def _path(name: str) -> tuple[str | int, ...]:
    """The path of a column as Reverb shows it: ``("obs", 0)`` of ``"obs/0"``."""
    parts = name.split("/") if name else []
    return tuple(int(part) if part.isdecimal() else part for part in parts)


class ReverbEnds:
    """A mixin for writers: their waits, and what the end of a ``with`` block does."""

    __slots__ = ()

    def flush(
        self,
        block_until_num_items: int = 0,
        timeout_ms: float | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Waits until at most ``block_until_num_items`` items are not in their table.

        Args:
            block_until_num_items: >= 0.
            timeout_ms: how long to wait; None, 0 and less are without limit.
            timeout_s: the same in seconds; 0 does not wait.

        Raises:
            DeadlineExceededError: the time is up; the message says how many items wait.
        """
        flush = super().flush  # type: ignore[misc]
        in_time(flush, block_until_num_items, timeout_ms, timeout_s=timeout_s)

    def end_episode(
        self,
        clear_buffers: bool = True,
        timeout_ms: float | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Flushes, and begins the next episode.

        Args:
            clear_buffers: forget the steps so far; else items may span both episodes.
            timeout_ms: how long to wait; None, 0 and less are without limit.
            timeout_s: the same in seconds; 0 does not wait.

        Raises:
            DeadlineExceededError: the time is up; the episode continues as it was.
        """
        end_episode = super().end_episode  # type: ignore[misc]
        in_time(end_episode, clear_buffers, timeout_ms, timeout_s=timeout_s)

    def _leave(self, error: BaseException | None) -> None:
        if not isinstance(error, ReverbError):
            self.flush()
