"""Exceptions as records that every store can keep."""

import traceback
from types import TracebackType

from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Cause, ErrorRecord

MESSAGE_BYTES = 4 * 1024
TRACEBACK_BYTES = 16 * 1024
_FRAMES = 50
_CUT = "... "


def clean_text(text: str, max_bytes: int, *, keep_end: bool = False) -> str:
    """Return ``text`` without what some store refuses, cut to size.

    NUL characters and lone surrogates become visible escapes.

    :param keep_end: cut at the beginning, because the last lines of a traceback say most
    """
    encoded = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace")
    if len(encoded) <= max_bytes:
        return encoded.decode()
    room = max_bytes - len(_CUT)
    if keep_end:
        return _CUT + encoded[-room:].decode("utf-8", "ignore")
    return encoded[:room].decode("utf-8", "ignore") + _CUT


def error_record(
    error: BaseException, cause: Cause, *, attempt: int, host_id: HostId
) -> ErrorRecord:
    """Return the record of ``error`` to store. Never raises, whatever the exception's own code
    does."""
    return ErrorRecord(
        attempt=attempt,
        cause=cause,
        type=clean_text(type(error).__qualname__, 200),
        message=clean_text(message_of(error), MESSAGE_BYTES),
        traceback=clean_text(_traceback(error), TRACEBACK_BYTES, keep_end=True),
        host_id=host_id,
    )


def message_of(error: BaseException) -> str:
    """Return ``str(error)``, or a substitute when the exception cannot be printed."""
    try:
        return str(error)
    except BaseException as unprintable:  # __str__ is the handler's code and may do anything
        return f"<unprintable {type(error).__qualname__}: {type(unprintable).__qualname__}>"


def _traceback(error: BaseException) -> str:
    try:
        frames = handlers_part(error.__traceback__)
        return "".join(traceback.format_exception(type(error), error, frames, limit=-_FRAMES))
    except BaseException as unprintable:
        return f"<traceback could not be formatted: {type(unprintable).__qualname__}>"


def handlers_part(frames: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the runtime's outer frames, unless there are no others."""
    part = frames
    while part is not None and part.tb_frame.f_globals.get("__name__", "").startswith(
        "forge_jobs.runtime."
    ):
        part = part.tb_next
    return part or frames
