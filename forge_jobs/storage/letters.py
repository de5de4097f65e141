"""The job that carries the letter of a dead job, as every store makes it of what it has written."""

import msgspec
from msgspec import Struct

from forge_jobs.clock import to_us
from forge_jobs.model.ids import letter_job_id
from forge_jobs.model.jobs import ErrorRecord, NewJob
from forge_jobs.model.letters import DEAD_LETTER_KIND, LETTER, DeadOrigin
from forge_jobs.privacy.encryption import origin_of
from forge_jobs.privacy.secrets import ORIGIN

ERROR_BYTES = 64 * 1024
"""Errors that a letter brings, as JSON. Every claim and every list reads them."""

BYTES_AT_ONCE = 4 * 1024 * 1024
"""Payloads and errors that one call returns at most, unless a single letter has more."""

_decode_metadata = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.encode


class WrittenLetter(Struct, frozen=True, kw_only=True):
    """The note that the step which ended the job has written.

    :param to: the queue that the letter is for
    :param token: of the claim that ended so
    :param metadata: JSON text, as the dead job had it
    """

    to: str
    token: int
    origin: DeadOrigin
    payload: str
    priority: int
    tags: tuple[str, ...]
    metadata: str
    trace: str


def job_of(written: WrittenLetter) -> NewJob:
    """Return the job, which is the same each time.

    The payload stays as it is. An encrypted one is bound to the dead job, so the metadata names
    that job, unless the dead job itself carried the payload of another request.
    """
    origin = written.origin
    metadata = _metadata_of(written.metadata)
    metadata.setdefault(ORIGIN, origin_of(origin.job_id, origin.kind))
    known = msgspec.structs.replace(origin, errors=_most_of(origin.errors))
    metadata[LETTER] = _encode(known).decode()
    return NewJob(
        id=letter_job_id(origin.queue, origin.job_id, written.token, to_us(origin.died_at)),
        queue=written.to,
        kind=DEAD_LETTER_KIND,
        payload=written.payload,
        priority=written.priority,
        tags=written.tags,
        metadata=_encode(metadata).decode(),
        trace=written.trace,
    )


def _metadata_of(stored: str) -> dict[str, str]:
    try:
        return _decode_metadata(stored)
    except (msgspec.MsgspecError, UnicodeError):
        return {}


def _most_of(errors: tuple[ErrorRecord, ...]) -> tuple[ErrorRecord, ...]:
    """Return the newest errors that have room, without a traceback where that makes the room."""
    kept: list[ErrorRecord] = []
    room = ERROR_BYTES
    for whole in reversed(errors):
        for error in (whole, msgspec.structs.replace(whole, traceback="")):
            size = len(_encode(error))
            if size <= room:
                break
        else:
            break
        kept.append(error)
        room -= size
    return tuple(reversed(kept))
