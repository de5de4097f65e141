"""Firing: an advance of a schedule here, jobs in a queue, which may lie on another server.

The step that advances a schedule also puts the jobs into the outbox. A second step brings the jobs
to their queue and notes there that they came. A third counts them. A reader of due schedules first
brings what a pod that died has left, so no occurrence is lost. Jobs that have come once do not come
again, so none is doubled.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from forge_jobs.clock import to_us
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.schedules import Firing
from forge_jobs.reports import reporter
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.cron import schedules
from forge_jobs.storage.redis.jobs.enqueue import enqueue
from forge_jobs.storage.salvage import UNREADABLE

logger = reporter(__name__)

_AT_ONCE = 100
"""How many records one step reads."""

_GONE = -1
"""The answer of a step whose schedule is not there, or has moved on."""

_encode = msgspec.json.encode
_decode_jobs = msgspec.json.Decoder(tuple[NewJob, ...]).decode


class _Record(msgspec.Struct, frozen=True, array_like=True):
    """A record of the outbox."""

    number: int
    jobs: str


class _Note(msgspec.Struct, frozen=True, array_like=True):
    """The note that ``fire_jobs`` makes of a record in a queue."""

    stored: int
    dropped: int


_decode_note = msgspec.msgpack.Decoder(_Note).decode


async def fire(database: Database, firings: Sequence[Firing]) -> list[bool]:
    """See ``CronStore.fire``."""
    if not firings:
        return []
    known = await schedules.read(database, [firing.name for firing in firings])
    held: dict[str, Firing] = {}
    for firing in firings:
        if firing.name in known and known[firing.name].version == firing.version:
            held.setdefault(firing.name, firing)
    # A refusal must come before the advance. What changes after this look is seen on delivery.
    await _check(database, [job for firing in held.values() for job in firing.jobs])
    numbers = await database.run_one(
        "fire", database.keys.fleet, [_request(firing) for firing in firings], list[int]
    )
    fired = zip(numbers, firings, strict=True)
    await _deliver_all(database, [(number, one.jobs) for number, one in fired if number > 0])
    return [number != _GONE for number in numbers]


async def trigger(database: Database, name: str, job: NewJob) -> EnqueueOutcome:
    """See ``CronStore.trigger``."""
    known = (await schedules.read(database, [name])).get(name)
    if known is None or known.deleted:
        raise schedules.unknown(name)
    await _check(database, [job])
    request = request_of("trigger", name=name, jobs=_encode([job]).decode())
    number = await database.run_one("trigger", database.keys.fleet, request, int)
    if number == _GONE:
        raise schedules.unknown(name)
    [outcome] = await _deliver(database, number, [job])
    return outcome


async def deliver_outbox(database: Database) -> None:
    """Bring all fired jobs that have not come to their queue there."""
    while records := await database.run_one(
        "outbox", database.keys.fleet, [_AT_ONCE], list[_Record]
    ):
        await _deliver_all(database, [(record.number, _jobs_in(record)) for record in records])


def _jobs_in(record: _Record) -> Sequence[NewJob]:
    """Return the fired jobs, empty where the record cannot be read."""
    try:
        return _decode_jobs(record.jobs)
    except UNREADABLE as error:
        logger.error(
            "a job that a schedule has fired is dropped, as its record cannot be read: %s; see "
            "'forge-jobs cron list' for the last times, and run 'forge-jobs cron trigger NAME'",
            error,
        )
        return ()


def _request(firing: Firing) -> tuple[object, ...]:
    return item_of(
        "fire",
        "firing",
        name=firing.name,
        version=firing.version,
        next_at=False if firing.error else schedules.unset_or_us(firing.next_at),
        skipped=firing.skipped,
        failure=firing.error,
        fired_at=False if firing.fired_at is None else to_us(firing.fired_at),
        jobs=_encode(firing.jobs).decode() if firing.jobs else False,
    )


async def _check(database: Database, jobs: Sequence[NewJob]) -> None:
    """Raise what an enqueue of the jobs would raise. Store nothing."""
    if jobs:
        await enqueue(database, jobs, script="plan")


async def _deliver_all(database: Database, records: Iterable[tuple[int, Sequence[NewJob]]]) -> None:
    await asyncio.gather(*(_deliver_or_drop(database, *record) for record in records))


async def _deliver_or_drop(database: Database, number: int, jobs: Sequence[NewJob]) -> None:
    try:
        await _deliver(database, number, jobs)
    except (Conflict, InvalidInput, NotFound) as error:
        # Another call has taken an id since the check. The schedule has advanced, and other records
        # must not wait for this one.
        logger.error(
            "the jobs that schedule %r has fired are dropped: %s; if they are needed, run "
            "'forge-jobs cron trigger %s'",
            jobs[0].schedule,
            error,
            jobs[0].schedule,
        )


async def _deliver(database: Database, number: int, jobs: Sequence[NewJob]) -> list[EnqueueOutcome]:
    """Bring the jobs of one record to their queues, count them, and remove the record.

    :raises StorageError: refused. The record is removed all the same, and the jobs are dropped
    """
    by_queue: defaultdict[str, list[NewJob]] = defaultdict(list)
    for job in jobs:
        by_queue[job.queue].append(job)
    outcomes: list[EnqueueOutcome] = []
    try:
        for in_queue in by_queue.values():
            outcomes += await enqueue(
                database,
                in_queue,
                script="fire_jobs",
                around=lambda _, request: request_of("fire_jobs", number=number, wanted=request),
            )
    except (Conflict, InvalidInput, NotFound):
        await _settle(database, number, by_queue)
        raise
    await _settle(database, number, by_queue)
    return outcomes


async def _settle(database: Database, number: int, queues: Iterable[str]) -> None:
    keys = [f"{database.keys.queue(queue)}:fired:{number}" for queue in queues]
    found = await database.commands([("GET", key) for key in keys])
    notes = [_decode_note(note) for note in found if note is not None]
    count = item_of(
        "fired",
        "each",
        number=number,
        fired=sum(note.stored for note in notes),
        skipped=sum(note.dropped for note in notes),
    )
    await database.run_one("fired", database.keys.fleet, [count], bool)
