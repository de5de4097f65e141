"""The stored form of a progress: one JSON text, the same on every store."""

import msgspec

from forge_jobs.clock import from_us
from forge_jobs.model.progress import NewProgress, Progress
from forge_jobs.storage.salvage import UNREADABLE


class _Stored(msgspec.Struct, frozen=True):
    at: int
    attempt: int
    current: float
    total: float | None = None
    message: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Stored).decode


def progress_text(given: NewProgress, attempt: int, at: int) -> str:
    """Return the JSON text of a progress that is stored now.

    :param at: the store's time in microseconds
    """
    stored = _Stored(at, attempt, given.current, given.total, given.message)
    return _encode(stored).decode()


def progress_of(text: str | bytes | None) -> Progress | None:
    """Return the progress of a stored text. None: there is none, or the text cannot be read."""
    if not text:
        return None
    try:
        stored = _decode(text)
        at = from_us(stored.at)
    except UNREADABLE:
        return None
    return Progress(
        current=stored.current,
        total=stored.total,
        message=stored.message,
        attempt=stored.attempt,
        at=at,
    )
