"""The ``ctx.progress`` of a run, and what ``ctx.log`` keeps. Both may be used from any thread."""

import logging
import math
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any

from forge_jobs.errors import InvalidInput, a_type
from forge_jobs.model.progress import NewProgress
from forge_jobs.runtime.progress.run_notes import RunNotes


class RunProgress:
    """The ``ctx.progress`` of one run."""

    def __init__(self, notes: Callable[[], RunNotes]) -> None:
        self._notes = notes

    def set(self, current: float, total: float | None = None, message: str = "") -> None:
        """See ``JobProgress.set``."""
        progress = checked(current, total, message)
        self._notes().set_progress(progress)


def checked(current: float, total: float | None, message: str) -> NewProgress:
    """Return the arguments of ``JobProgress.set`` as a record.

    :raises InvalidInput: a number is negative or not finite, or the message is no text
    """
    if not isinstance(message, str):
        raise InvalidInput("message", f"is {a_type(message)}", "give a text")
    return NewProgress(
        _number("current", current),
        None if total is None else _number("total", total),
        message,
    )


def _number(field: str, value: object) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number:
        raise InvalidInput(field, f"is {a_type(value)}", "give a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise InvalidInput(field, f"is {value}", "give a finite number of zero or more")
    return number


class KeptLog:
    """Keeps lines of ``ctx.log`` with the job. Never raises, whatever the arguments of a line do.

    Kept is what is INFO and above, and below that what the log shows anyway.

    :param now: returns the store's time
    """

    def __init__(self, notes: Callable[[], RunNotes], now: Callable[[], datetime]) -> None:
        self._notes = notes
        self._now = now

    def keep(self, level: int, msg: object, args: tuple[Any, ...], exc_info: object) -> None:
        """Keep a line as the standard library would write the line, with the traceback."""
        text = text_of(msg, args)
        if lines := traceback_of(exc_info):
            text = f"{text}\n{lines}"
        self._notes().add_line(self._now(), level, text)

    @property
    def secrets(self) -> Sequence[str]:
        """The texts of the payload that no line may show."""
        return self._notes().secrets


def text_of(msg: object, args: tuple[Any, ...] = ()) -> str:
    """Return what the standard library would write for a line, or a substitute."""
    try:
        return logging.LogRecord("", 0, "", 0, msg, args, None).getMessage()
    except Exception as error:  # arguments do not fit the format, or cannot be printed
        return _unformatted(msg, error)


def traceback_of(exc_info: object) -> str:
    """Return the traceback that the standard library would write, empty without one."""
    with suppress(Exception):  # attributes of an exception are the handler's code
        return _traceback(exc_info)
    return ""


def _unformatted(msg: object, error: Exception) -> str:
    shown = msg if isinstance(msg, str) else type(msg).__qualname__
    return f"{shown} (could not be formatted: {type(error).__qualname__})"


def _traceback(exc_info: object) -> str:
    if not exc_info:
        return ""
    if isinstance(exc_info, BaseException):
        found: tuple[Any, Any, TracebackType | None] = (
            type(exc_info),
            exc_info,
            exc_info.__traceback__,
        )
    elif isinstance(exc_info, tuple):
        found = exc_info
    else:
        found = sys.exc_info()
    if found[0] is None:
        return ""
    return "".join(traceback.format_exception(*found)).rstrip()
