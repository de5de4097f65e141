"""The leader lease and schedules."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Row, bindparam, case, literal, select, true, update

from forge_jobs.clock import duration_us, from_us, to_us
from forge_jobs.errors import NotFound
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.processes import Leadership
from forge_jobs.model.schedules import DueSchedules, Firing, Schedule, ScheduleSpec
from forge_jobs.storage.batches import check_batch
from forge_jobs.storage.salvage import Fields, no_spec, number_or, salvaged_schedule, tally, truth
from forge_jobs.storage.set_back import UNBELIEVABLE_US
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.tables import leader, schedules
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.cron import fire as firing
from forge_jobs.storage.sql.fleet.allocations import FLEET, fleet_version

_ROW = "leader"
_spec = msgspec.json.Decoder(ScheduleSpec)

_NOW: Any = bindparam("now", type_=BigInteger)
_BY: Any = bindparam("by")

_STANDS = (leader.c.host_id, leader.c.term, leader.c.lease_until, _NOW.label("now"), *FLEET)

# No lease is so long: it has been spoilt.
_IS_FREE = (leader.c.lease_until <= _NOW) | (
    leader.c.lease_until > leader.c.renewed_at + UNBELIEVABLE_US
)
# One statement for all: renewing keeps the term; a new holder, and one whose own lease ran out,
# starts another.
LEAD = (
    update(leader)
    .where(_IS_FREE | (leader.c.host_id == _BY))
    .values(
        host_id=_BY,
        term=case((_IS_FREE, leader.c.term + 1), else_=leader.c.term),
        renewed_at=_NOW,
        lease_until=_NOW + bindparam("lease_us", type_=BigInteger),
    )
    .returning(*_STANDS)
)
STANDING = select(*_STANDS)
_RESIGN = (
    update(leader)
    .where(
        leader.c.host_id == _BY,
        leader.c.term == bindparam("of_term"),
        leader.c.lease_until > _NOW,
    )
    .values(lease_until=_NOW)
)

_ONE = select(schedules).where(schedules.c.name == bindparam("of"))
_ONE_LOCKED = _ONE.with_for_update(key_share=True)
_ALL = select(schedules)
_KNOWN = _ALL.where(schedules.c.deleted.is_(False))
_first = (
    _KNOWN.where(
        schedules.c.next_at.is_not(None), schedules.c.paused.is_(False), schedules.c.error == ""
    )
    .order_by(schedules.c.next_at, schedules.c.name)
    .limit(bindparam("at_most", type_=BigInteger))
    .subquery("first")
)
# One row of the time alone when there are none.
DUE = (
    select(_NOW.label("now"), *_first.c)
    .select_from(select(literal(1)).subquery("moment").outerjoin(_first, true()))
    .order_by(_first.c.next_at, _first.c.name)
)
"""Takes ``at_most`` and ``now``; for :func:`due_of`."""
_WRITE = update(schedules).where(schedules.c.name == bindparam("of"))


def _lead(tx: Tx, host_id: HostId, lease_for: timedelta) -> Leadership:
    lease_us = duration_us(lease_for)
    row = tx.execute(LEAD, {"by": host_id, "now": tx.now, "lease_us": lease_us}).first()
    standing = _leader(tx) if row is None else leadership_of(row)
    if standing is None:
        first = {"name": _ROW, "host_id": host_id, "term": 1, "renewed_at": tx.now}
        tx.execute(tx.flavor.insert_ignore(leader), {**first, "lease_until": tx.now + lease_us})
        standing = _leader(tx)
    assert standing is not None
    return told_to(host_id, standing)


def told_to(host_id: HostId, standing: Leadership) -> Leadership:
    """What one that asked for the lease is told: how the fleet stands only when it leads."""
    if standing.host_id != host_id:
        return msgspec.structs.replace(standing, fleet_version="")
    return standing


def _leader(tx: Tx) -> Leadership | None:
    row = tx.execute(STANDING, {"now": tx.now}).first()
    return None if row is None else leadership_of(row)


def leadership_of(row: Any) -> Leadership:
    """The row of :data:`LEAD` or :data:`STANDING`."""
    return Leadership(
        host_id=row.host_id,
        term=number_or(row.term, 0),
        remaining=timedelta(microseconds=max(0, number_or(row.lease_until, 0) - row.now)),
        fleet_version=fleet_version(row.fleet_written, row.fleet_lapsed, row.fleet_orphaned),
    )


def _resign(tx: Tx, host_id: HostId, term: int) -> None:
    if tx.execute(_RESIGN, {"by": host_id, "of_term": term, "now": tx.now}).rowcount:
        tx.wake_fleet()


def _schedule(row: Any) -> Schedule:
    read = Fields({column.name: getattr(row, column.name) for column in schedules.columns})
    found = Schedule(
        spec=read.read("spec", _spec.decode, None) or no_spec(row.name),
        version=read.number("version"),
        paused=read.read("paused", truth, False),
        edited=read.read("edited", truth, False),
        next_at=read.instant_or_none("next_at"),
        last_fired_at=read.instant_or_none("last_fired_at"),
        fired=read.number("fired"),
        skipped=read.number("skipped"),
        error=read.text("error"),
        deleted=read.read("deleted", truth, False),
    )
    return salvaged_schedule(found, read.problems)


def _at(instant: datetime | None) -> int | None:
    return None if instant is None else to_us(instant)


def _read(tx: Tx, name: str) -> Schedule:
    return _schedule(tx.execute(_ONE, {"of": name}).one())


def _known(tx: Tx, name: str) -> Row[Any]:
    """The row, locked.

    :raises NotFound: there is none, or it was deleted
    """
    row = tx.execute(_ONE_LOCKED, {"of": name}).first()
    if row is None or _schedule(row).deleted:
        raise NotFound(f"there is no schedule {name!r}")
    return row


def _write(tx: Tx, row: Row[Any], **values: Any) -> None:
    # Numbers that cannot be read begin anew with any write.
    for name in ("fired", "skipped", "next_at", "last_fired_at"):
        before = getattr(row, name)
        if name not in values and before is not None and type(before) is not int:
            values[name] = 0 if name in ("fired", "skipped") else None
    version = tally(row.version) + 1
    tx.execute(_WRITE.values(version=version, **values), {"of": row.name})


def _create_or_lock(
    tx: Tx, spec: ScheduleSpec, next_at: datetime | None, *, edited: bool
) -> Row[Any] | None:
    """The row that was there already, None when this made it."""
    made = tx.execute(
        tx.flavor.insert_ignore(schedules),
        {
            "name": spec.name,
            "spec": msgspec.json.encode(spec).decode(),
            "next_at": _at(next_at),
            "edited": edited,
        },
    )
    return None if made.rowcount == 1 else tx.execute(_ONE_LOCKED, {"of": spec.name}).one()


def _next_of_edited(row: Row[Any], spec: ScheduleSpec, next_at: datetime | None) -> int | None:
    before = _schedule(row)
    if before.paused:
        return None
    if before.next_at is not None and before.spec.has_times_of(spec):
        return _at(before.next_at)
    return _at(next_at)


def _ensure_schedule(tx: Tx, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
    row = _create_or_lock(tx, spec, next_at, edited=False)
    before = None if row is None else _schedule(row)
    if row is None or before is None or before.edited or before.deleted:
        return _read(tx, spec.name)
    if before.unreadable or before.spec != spec:
        _write(
            tx,
            row,
            spec=msgspec.json.encode(spec).decode(),
            next_at=_next_of_edited(row, spec, next_at),
            error="",
        )
    return _read(tx, spec.name)


def _put_schedule(tx: Tx, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
    row = _create_or_lock(tx, spec, next_at, edited=True)
    if row is not None:
        _write(
            tx,
            row,
            spec=msgspec.json.encode(spec).decode(),
            next_at=_next_of_edited(row, spec, next_at),
            error="",
            edited=True,
            deleted=False,
        )
    return _read(tx, spec.name)


def _pause_schedule(tx: Tx, name: str, paused: bool, next_at: datetime | None) -> Schedule:
    row = _known(tx, name)
    _write(tx, row, paused=paused, next_at=None if paused else _at(next_at))
    return _read(tx, name)


def _delete_schedule(tx: Tx, name: str) -> None:
    row = _known(tx, name)
    # The row stays, so that a deploy does not bring the schedule back; its history goes.
    _write(
        tx,
        row,
        deleted=True,
        paused=False,
        next_at=None,
        last_fired_at=None,
        fired=0,
        skipped=0,
        error="",
    )


def _schedules(tx: Tx, with_deleted: bool) -> list[Schedule]:
    found = [_schedule(row) for row in tx.execute(_ALL)]
    found = [schedule for schedule in found if with_deleted or not schedule.deleted]
    return sorted(found, key=lambda schedule: schedule.spec.name)


def _get_schedule(tx: Tx, name: str) -> Schedule | None:
    row = tx.execute(_ONE, {"of": name}).first()
    found = None if row is None else _schedule(row)
    return None if found is None or found.deleted else found


def _due_schedules(tx: Tx, limit: int) -> DueSchedules:
    return due_of(tx.execute(DUE, {"at_most": limit + 1, "now": tx.now}).all(), limit)


def due_of(rows: Sequence[Any], limit: int) -> DueSchedules:
    """The rows of :data:`DUE`, of which one more than ``limit`` was asked for."""
    now = rows[0].now
    # A time that is none never comes.
    found = [row for row in rows if row.name is not None and isinstance(row.next_at, int)]
    due = [row for row in found[:limit] if row.next_at <= now]
    later = found[len(due)].next_at if len(found) > len(due) else None
    return DueSchedules(
        now=from_us(now),
        schedules=tuple(_schedule(row) for row in due),
        next_in=None if later is None else timedelta(microseconds=max(0, later - now)),
    )


def _trigger(tx: Tx, name: str, job: NewJob) -> EnqueueOutcome:
    row = _known(tx, name)
    [(outcome, is_new)] = firing.put_in(tx, [job])
    _write(
        tx, row, fired=tally(row.fired) + is_new, skipped=tally(row.skipped) + outcome.deduplicated
    )
    return outcome


class SqlCronStore:
    """The ``CronStore`` of the SQL backends."""

    def __init__(self, database: Database) -> None:
        self.store_id = database.store_id
        self._database = database

    async def lead(self, host_id: HostId, lease_for: timedelta) -> Leadership:
        return await self._database.write(lambda tx: _lead(tx, host_id, lease_for))

    async def resign(self, host_id: HostId, term: int) -> None:
        await self._database.write(lambda tx: _resign(tx, host_id, term))

    async def leader(self) -> Leadership | None:
        return await self._database.read(_leader)

    async def now(self) -> datetime:
        return await self._database.read(lambda tx: from_us(tx.now))

    async def ensure_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        return await self._database.write(lambda tx: _ensure_schedule(tx, spec, next_at))

    async def put_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        return await self._database.write(lambda tx: _put_schedule(tx, spec, next_at))

    async def pause_schedule(self, name: str, paused: bool, next_at: datetime | None) -> Schedule:
        return await self._database.write(lambda tx: _pause_schedule(tx, name, paused, next_at))

    async def delete_schedule(self, name: str) -> None:
        await self._database.write(lambda tx: _delete_schedule(tx, name))

    async def schedules(self, *, with_deleted: bool = False) -> list[Schedule]:
        return await self._database.read(lambda tx: _schedules(tx, with_deleted))

    async def get_schedule(self, name: str) -> Schedule | None:
        return await self._database.read(lambda tx: _get_schedule(tx, name))

    async def due_schedules(self, limit: int) -> DueSchedules:
        return await self._database.read(lambda tx: _due_schedules(tx, limit))

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        check_batch([job for one in firings for job in one.jobs])
        # Others share the call, and need not wait for what somebody's transaction holds of it.
        return await self._database.write(lambda tx: firing.fire(tx, firings), patient=False)

    async def trigger(self, name: str, job: NewJob) -> EnqueueOutcome:
        return await self._database.write(lambda tx: _trigger(tx, name, job))
