"""The outbox: jobs written down in the transaction of a caller, for a queue on another store."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import structs
from sqlalchemy import Select, bindparam, delete, func, insert, not_, select, update

from forge_jobs.errors import InvalidInput
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import NewJob
from forge_jobs.model.letters.outbox import OutboxJob, OutboxRecord, OutboxState
from forge_jobs.model.names import check_name, check_queue
from forge_jobs.model.queues import Wake
from forge_jobs.storage.cursors import check_limit
from forge_jobs.storage.letters import BYTES_AT_ONCE
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.letter_tables import outbox
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.transaction import Tx

R = TypeVar("R")

_OF_DESTINATION = outbox.c.destination == bindparam("to")
_WAITS = outbox.c.problem == ""
_INSERT = insert(outbox)
# A pass begins at the lowest number: a transaction that commits late has a lower one than others.
_OLDEST = (
    select(outbox.c.id, func.length(outbox.c.job))
    .where(
        _OF_DESTINATION,
        _WAITS,
        outbox.c.id > bindparam("after"),
        not_(one_of(outbox.c.id, "skip")),
    )
    .order_by(outbox.c.id)
    .limit(bindparam("count"))
)
_WHOLE = select(outbox).where(one_of(outbox.c.id, "ids")).order_by(outbox.c.id)
_FORGET = delete(outbox).where(one_of(outbox.c.id, "ids"))
_SET_ASIDE = (
    update(outbox).where(outbox.c.id == bindparam("number")).values(problem=bindparam("why"))
)
_RETRY = update(outbox).where(one_of(outbox.c.id, "ids")).values(problem="")
_LISTED = (
    select(*(column for column in outbox.c if column is not outbox.c.job))
    .where(_OF_DESTINATION)
    .order_by(_WAITS, outbox.c.id)
    .limit(bindparam("count"))
)
_OF_JOB = (
    select(*(column for column in outbox.c if column is not outbox.c.job))
    .where(outbox.c.job_id == bindparam("job_id"))
    .order_by(outbox.c.id)
    .limit(1)
)
_STATES = select(
    outbox.c.destination, _WAITS.label("waits"), func.count(), func.min(outbox.c.written_at)
).group_by(outbox.c.destination, _WAITS)
_STATE = _STATES.where(_OF_DESTINATION)

_LISTED_AT_ONCE = 10_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(NewJob).decode


class SqlOutbox:
    """:class:`~forge_jobs.storage.protocols.letters.OutboxStore` on SQL."""

    def __init__(self, database: Database, destination: str) -> None:
        self._database = database
        self._to = destination
        # Waited for as work of a queue is. No queue has this name: spaces are refused there.
        self._topic = f"outbox {destination}"

    async def write(self, jobs: Sequence[NewJob], connection: object) -> None:
        # This import brings SQLAlchemy's ORM.
        from forge_jobs.storage.sql.base.callers import run_in_callers_transaction

        database = self._database
        await run_in_callers_transaction(
            connection, lambda tx: self._write(tx, jobs), database.flavor, database.store_id
        )

    def _write(self, tx: Tx, jobs: Sequence[NewJob]) -> bool:
        rows = [
            {
                "destination": self._to,
                "job_id": job.id,
                "queue": job.queue,
                "kind": job.kind,
                "job": _encode(job).decode(),
                "written_at": tx.now,
            }
            for job in jobs
        ]
        if rows:
            tx.execute(_INSERT, rows)
            tx.wake_queue(self._topic)
        return True

    async def read(
        self, limit: int, *, after: int = 0, skip: Collection[int] = ()
    ) -> list[OutboxJob]:
        asked = {"to": self._to, "after": after, "skip": list(skip), "count": limit}

        def script(tx: Tx) -> list[OutboxJob]:
            chosen: list[int] = []
            size = 0
            for number, length in tx.execute(_OLDEST, asked):
                size += length
                if chosen and size > BYTES_AT_ONCE:
                    break
                chosen.append(number)
            return [
                _job(row, tx.now)
                for portion in portions(chosen)
                for row in tx.execute(_WHOLE, {"ids": portion})
            ]

        return await self._database.read(script)

    async def forget(self, numbers: Sequence[int]) -> None:
        await self._database.write(lambda tx: _each_portion(tx, _FORGET, numbers))

    async def set_aside(self, number: int, problem: str) -> None:
        asked = {"number": number, "why": problem}
        await self._database.write(lambda tx: tx.execute(_SET_ASIDE, asked).rowcount)

    async def retry(self, job_ids: Collection[str] | None) -> list[JobId]:
        return await self._of_those_aside(job_ids, _RETRY)

    async def discard(self, job_ids: Collection[str]) -> list[JobId]:
        return await self._of_those_aside(job_ids, _FORGET)

    async def _of_those_aside(
        self, job_ids: Collection[str] | None, statement: object
    ) -> list[JobId]:
        def script(tx: Tx) -> list[JobId]:
            wanted = select(outbox.c.id, outbox.c.job_id).where(_OF_DESTINATION, not_(_WAITS))
            rows = tx.execute(wanted.order_by(outbox.c.id), {"to": self._to}).all()
            chosen = [row for row in rows if job_ids is None or row.job_id in job_ids]
            _each_portion(tx, statement, [row.id for row in chosen])
            if chosen:
                tx.wake_queue(self._topic)
            return [JobId(row.job_id) for row in chosen]

        return await self._database.write(script)

    async def records(self, limit: int) -> list[OutboxRecord]:
        check_limit(limit, _LISTED_AT_ONCE)

        def script(tx: Tx) -> list[OutboxRecord]:
            return [
                _record(row, tx.now)
                for row in tx.execute(_LISTED, {"to": self._to, "count": limit})
            ]

        return await self._database.read(script)

    async def state(self) -> OutboxState:
        found = await self._database.read(lambda tx: _states(tx, _STATE, {"to": self._to}))
        return found.get(self._to, OutboxState(waiting=0, set_aside=0, oldest=None))

    async def wait(self, at_most: timedelta) -> Wake:
        return await self._database.wait(frozenset({self._topic}), at_most, self)


async def outbox_states(database: Database) -> dict[str, OutboxState]:
    """Return the state of each outbox that has records, by the name of the destination."""
    return await database.read(lambda tx: _states(tx, _STATES, {}))


async def outbox_record(database: Database, job_id: JobId) -> tuple[str, OutboxRecord] | None:
    """See ``HasOutbox.outbox_record``."""

    def script(tx: Tx) -> tuple[str, OutboxRecord] | None:
        row = tx.execute(_OF_JOB, {"job_id": job_id}).first()
        return None if row is None else (row.destination, _record(row, tx.now))

    return await database.read(script)


def _states(tx: Tx, statement: Select[Any], asked: dict[str, object]) -> dict[str, OutboxState]:
    found: dict[str, OutboxState] = {}
    for to, waits, count, since in tx.execute(statement, asked):
        state = found.get(to, OutboxState(waiting=0, set_aside=0, oldest=None))
        if waits:
            found[to] = structs.replace(state, waiting=count, oldest=_age(since, tx.now))
        else:
            found[to] = structs.replace(state, set_aside=count)
    return found


def _each_portion(tx: Tx, statement: object, numbers: Sequence[int]) -> int:
    for portion in portions(numbers):
        tx.execute(statement, {"ids": portion})  # type: ignore[arg-type]
    return len(numbers)


def _record(row: JobRow, now: int) -> OutboxRecord:
    return OutboxRecord(
        number=row.id,
        job_id=JobId(row.job_id),
        queue=row.queue,
        kind=row.kind,
        age=_age(row.written_at, now),
        problem=row.problem,
    )


def _age(since: object, now: int) -> timedelta:
    """Return the age of a record. None at all where the time is no number, as after an edit."""
    known = since if isinstance(since, int) else now
    return timedelta(microseconds=max(now - max(known, 0), 0))


def _job(row: JobRow, now: int) -> OutboxJob:
    """Read a record. One that another program has spoilt has a problem, and stops no other."""
    job: NewJob | None = None
    problem = ""
    try:
        job = _decode(row.job)
        check_job_id(job.id, "id")
        check_queue("queue", job.queue)
        check_name("kind", job.kind)
    except (msgspec.DecodeError, InvalidInput) as error:
        job, problem = None, f"the record cannot be read: {error}"
    return OutboxJob(number=row.id, age=_age(row.written_at, now), job=job, problem=problem)
