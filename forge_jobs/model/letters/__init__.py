"""Letters: jobs that a step of a store has written down for another queue, still to be stored
there. A dead job leaves one, where the job's queue names a queue for dead letters."""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, ErrorRecord, Job, NewJob

DEAD_LETTER_KIND = "forge.dead_letter"
"""The kind of every dead letter. A letter that dies leaves no further letter."""

LETTER = "forge_jobs.letter"
"""The key of a job's metadata that says of which job the job is a dead letter."""


class Letter(Struct, frozen=True, kw_only=True):
    """A job for another queue, and the record that is to be removed once the job is stored there.

    :param id: opaque. Unique among the letters that wait
    :param job: always the same of one letter, also the id. So a repeat stores nothing
    """

    id: str
    job: NewJob


class DeadOrigin(Struct, frozen=True, kw_only=True):
    """Where a dead letter comes from: the part that stands in the metadata of the letter."""

    queue: str
    job_id: JobId
    kind: str
    attempts: int
    cause: Cause
    enqueued_at: datetime
    died_at: datetime
    schedule: str = ""
    errors: tuple[ErrorRecord, ...] = ()


class DeadLetter(DeadOrigin, frozen=True, kw_only=True):
    """A job that died in another queue, as the handler of the dead letters gets the job::

        @handlers.job(DEAD_LETTER_KIND)
        async def file_a_ticket(letter: DeadLetter) -> None: ...

    :param queue: in which the job died. With ``job_id`` and ``kind``: of the dead job
    :param payload: JSON text as the dead job had it, byte for byte. Decrypted, where the pod has
        the key
    :param attempts: runs that counted
    :param cause: of the end, as ``failed``, ``timed_out``, ``rejected`` or ``crashed``
    :param died_at: by the store's clock
    :param schedule: that fired the job, "" for none
    :param errors: oldest first, about 64 KiB together: of older ones the traceback is left out, or
        the whole error. The dead job has all that were kept
    """

    payload: str


_decode = msgspec.json.Decoder(DeadOrigin).decode


def read_dead_letter(metadata: Mapping[str, str], payload: str) -> DeadLetter | None:
    """Return the dead letter that a job is, None for any other job.

    :param payload: of the job, decrypted
    """
    try:
        origin = _decode(metadata[LETTER])
    except (KeyError, msgspec.MsgspecError, UnicodeError):
        return None
    return DeadLetter(payload=payload, **msgspec.structs.asdict(origin))


def dead_letter_of(job: Job) -> DeadLetter | None:
    """Return the dead letter that a stored job is, None for any other job.

    :param job: as ``JobClient.get`` returns it. ``JobClient.decrypted`` of it, where payloads are
        encrypted
    """
    return read_dead_letter(job.metadata, job.payload)
