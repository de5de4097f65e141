"""Reads and removes letters, for the relay."""

from collections.abc import Collection, Iterable, Sequence

import msgspec
from sqlalchemy import bindparam, delete, func, not_, select

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, ErrorRecord
from forge_jobs.model.letters import DeadOrigin, Letter
from forge_jobs.storage.letters import BYTES_AT_ONCE, WrittenLetter, job_of
from forge_jobs.storage.salvage import Fields
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.letter_tables import letters
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.transaction import Tx

_OLDEST = (
    select(letters.c.id, func.length(letters.c.payload) + func.length(letters.c.errors))
    .where(not_(one_of(letters.c.id, "skip")), not_(one_of(letters.c.queue, "not_to")))
    .order_by(letters.c.id)
    .limit(bindparam("count"))
)
_WHOLE = select(letters).where(one_of(letters.c.id, "ids")).order_by(letters.c.id)
_FORGET = delete(letters).where(one_of(letters.c.id, "ids"))

_decode_tags = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_errors = msgspec.json.Decoder(tuple[ErrorRecord, ...]).decode


def list_letters(
    tx: Tx, limit: int, skip: Collection[str], not_to: Collection[str]
) -> list[Letter]:
    """See ``JobStore.letters``."""
    asked = {"skip": [int(each) for each in skip], "not_to": list(not_to), "count": limit}
    chosen: list[int] = []
    size = 0
    for number, length in tx.execute(_OLDEST, asked):
        size += length or 0
        if chosen and size > BYTES_AT_ONCE:
            break
        chosen.append(number)
    return [
        _letter(row) for portion in portions(chosen) for row in tx.execute(_WHOLE, {"ids": portion})
    ]


def forget_letters(tx: Tx, found: Sequence[Letter]) -> None:
    """See ``JobStore.forget_letters``."""
    for portion in portions(_numbers(found)):
        tx.execute(_FORGET, {"ids": portion})


def _numbers(found: Iterable[Letter]) -> Iterable[int]:
    return (int(letter.id) for letter in found)


def _letter(row: JobRow) -> Letter:
    read = Fields({**row._mapping})
    origin = DeadOrigin(
        queue=read.text("origin_queue"),
        job_id=JobId(read.text("origin_id")),
        kind=read.text("kind"),
        attempts=read.number("attempt"),
        cause=read.member("cause", Cause.FAILED),
        enqueued_at=read.instant("enqueued_at"),
        died_at=read.instant("died_at"),
        schedule=read.text("schedule"),
        errors=read.read("errors", _decode_errors, ()),
    )
    written = WrittenLetter(
        to=read.text("queue"),
        token=read.number("token"),
        origin=origin,
        payload=read.text("payload"),
        priority=read.number("priority"),
        tags=read.read("tags", _decode_tags, ()),
        metadata=read.text("metadata"),
        trace=read.text("trace"),
    )
    return Letter(id=str(row.id), job=job_of(written))
