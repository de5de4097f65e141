"""Reads and removes letters, for the relay."""

from collections import defaultdict
from collections.abc import Collection, Sequence

import msgspec

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause
from forge_jobs.model.letters import DeadOrigin, Letter
from forge_jobs.storage.letters import BYTES_AT_ONCE, WrittenLetter, job_of
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.job_rows import (
    NO_DOC,
    StoredFields,
    decode_all_errors,
    decode_doc,
    tags_of,
)
from forge_jobs.storage.redis.base.queues import in_all_queues
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.keys import queue_of, queue_tag


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``letters.lua`` of a letter: texts, "" for what is not set.

    :param name: id and token of the dead job
    """

    to: str
    name: str
    kind: str
    payload: str
    cause: str
    attempt: str
    priority: str
    tags: str
    schedule: str
    doc: str
    enqueued: str
    died: str
    errors: list[str]


async def read_letters(
    db: Database, limit: int, skip: Collection[str], not_to: Collection[str]
) -> list[Letter]:
    """See ``JobStore.letters``."""
    passed = [each.partition(" ")[2] for each in skip]
    request = request_of(
        "letters", most=limit, bytes=BYTES_AT_ONCE, passed=passed, stays=list(not_to)
    )
    answers = await in_all_queues(db, "letters", request, list[_Stored])
    found = [(each.died, queue, each) for queue, listed in answers.items() for each in listed]
    found.sort(key=lambda one: one[:2])
    return [_letter(queue, each) for _, queue, each in found[:limit]]


async def forget_letters(db: Database, letters: Sequence[Letter]) -> None:
    """See ``JobStore.forget_letters``."""
    requests: defaultdict[str, list[object]] = defaultdict(list)
    for letter in letters:
        tag, _, name = letter.id.partition(" ")
        item = item_of("forget_letters", "letter", to=letter.job.queue, name=name)
        requests[db.keys.queue(queue_of(tag))].append(item)
    await db.run_some("forget_letters", requests, bool)


def _letter(queue: str, stored: _Stored) -> Letter:
    job_id, _, token = stored.name.partition(" ")
    read = StoredFields(msgspec.structs.asdict(stored) | {"token": token})
    doc = read.read("doc", decode_doc, NO_DOC)
    origin = DeadOrigin(
        queue=queue,
        job_id=JobId(job_id),
        kind=stored.kind,
        attempts=read.count("attempt"),
        cause=read.member("cause", Cause.FAILED),
        enqueued_at=read.instant("enqueued"),
        died_at=read.instant("died"),
        schedule=stored.schedule,
        errors=read.value("errors", stored.errors, decode_all_errors, ()),
    )
    written = WrittenLetter(
        to=stored.to,
        token=read.number("token"),
        origin=origin,
        payload=stored.payload,
        priority=read.number("priority"),
        tags=tags_of(stored.tags),
        metadata=doc.metadata,
        trace=doc.trace,
    )
    return Letter(id=f"{queue_tag(queue)} {stored.name}", job=job_of(written))
