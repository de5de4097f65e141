"""Exceptions as records that every store can keep."""

import traceback
from collections.abc import Sequence
from types import TracebackType

import msgspec

from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Cause, ErrorRecord
from forge_jobs.privacy.secrets import without
from forge_jobs.runtime.shared.clean_texts import clean_text

MESSAGE_BYTES = 4 * 1024
TRACEBACK_BYTES = 16 * 1024
_FRAMES = 50
_OURS = ("forge_jobs.runtime.", "forge_jobs.handlers.injection.")


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


def redacted(record: ErrorRecord, secrets: Sequence[str]) -> ErrorRecord:
    """Return the record with these texts hidden."""
    return msgspec.structs.replace(
        record,
        message=without(record.message, secrets),
        traceback=without(record.traceback, secrets),
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
    while part is not None and part.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        part = part.tb_next
    return part or frames
