"""The leader lease and schedules."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, bindparam, case, select, update

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.looks import MOST_EVENTS, FleetLook
from forge_jobs.model.processes import Leadership
from forge_jobs.model.schedules import DueSchedules, Firing, Schedule, ScheduleSpec
from forge_jobs.storage.batches import check_batch
from forge_jobs.storage.salvage import number_or, rest_of
from forge_jobs.storage.set_back import UNBELIEVABLE_US
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.tables import leader, strikes
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config import rate_limits
from forge_jobs.storage.sql.config.store import queues_and_limited
from forge_jobs.storage.sql.cron import fire, schedules
from forge_jobs.storage.sql.fleet.allocations import FLEET, fleet_version
from forge_jobs.storage.sql.fleet.read import list_pods
from forge_jobs.storage.sql.jobs.metrics import read_events

_ROW = "leader"

_NOW: Any = bindparam("now", type_=BigInteger)
_BY: Any = bindparam("by")

_STANDS = (leader.c.host_id, leader.c.term, leader.c.lease_until, _NOW.label("now"), *FLEET)

# No lease is so long: the row has been spoilt.
_IS_FREE = (leader.c.lease_until <= _NOW) | (
    leader.c.lease_until > leader.c.renewed_at + UNBELIEVABLE_US
)
# One statement for all cases. Renewing keeps the term. A new holder starts another term, and so
# does a holder whose own lease ran out.
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
_STANDING_AND_STRIKES = select(*_STANDS, select(strikes).exists().label("strikes"))
_RESIGN = (
    update(leader)
    .where(
        leader.c.host_id == _BY,
        leader.c.term == bindparam("of_term"),
        leader.c.lease_until > _NOW,
    )
    .values(lease_until=_NOW)
)


def _lead(tx: Tx, host_id: HostId, lease_for: timedelta) -> Leadership:
    lease_us = duration_us(lease_for)
    row = tx.execute(LEAD, {"by": host_id, "now": tx.now, "lease_us": lease_us}).first()
    standing = _leader(tx) if row is None else leadership_of(row)
    if standing is None:
        first = {"name": _ROW, "host_id": host_id, "term": 1, "renewed_at": tx.now}
        tx.execute(tx.flavor.insert_ignore(leader), {**first, "lease_until": tx.now + lease_us})
        standing = _leader(tx)
    assert standing is not None
    return answer_to(host_id, standing)


def answer_to(host_id: HostId, standing: Leadership) -> Leadership:
    """Return the answer to a pod that asked for the lease. Only the leader gets the fleet's
    version."""
    if standing.host_id != host_id:
        return msgspec.structs.replace(standing, fleet_version="")
    return standing


def _leader(tx: Tx) -> Leadership | None:
    row = tx.execute(STANDING, {"now": tx.now}).first()
    return None if row is None else leadership_of(row)


def leadership_of(row: Any) -> Leadership:
    """Return the lease in a row of :data:`LEAD` or :data:`STANDING`."""
    left = number_or(row.lease_until, 0) - row.now
    remaining, ended_for = rest_of(left, 0)
    return Leadership(
        host_id=row.host_id,
        term=number_or(row.term, 0),
        remaining=remaining,
        ended_for=ended_for,
        fleet_version=fleet_version(row.fleet_written, row.fleet_lapsed, row.fleet_orphaned),
    )


def _resign(tx: Tx, host_id: HostId, term: int) -> None:
    if tx.execute(_RESIGN, {"by": host_id, "of_term": term, "now": tx.now}).rowcount:
        tx.wake_fleet()


def _look(tx: Tx) -> FleetLook:
    queues, limited = queues_and_limited(tx)
    row = tx.execute(_STANDING_AND_STRIKES, {"now": tx.now}).first()
    return FleetLook(
        now=from_us(tx.now),
        leader=None if row is None else leadership_of(row),
        schedules=tuple(schedules.every(tx, False)),
        queues=tuple(queues),
        limited=limited,
        limits=tuple(rate_limits.states(tx)),
        pods=tuple(list_pods(tx)),
        events=tuple(read_events(tx, None, "", MOST_EVENTS)),
        may_strike=row is None or bool(row.strikes),
    )


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

    async def look(self) -> FleetLook:
        return await self._database.read(_look)

    async def now(self) -> datetime:
        return await self._database.read(lambda tx: from_us(tx.now))

    async def ensure_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        return await self._database.write(lambda tx: schedules.ensure(tx, spec, next_at))

    async def put_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        return await self._database.write(lambda tx: schedules.put(tx, spec, next_at))

    async def pause_schedule(self, name: str, paused: bool, next_at: datetime | None) -> Schedule:
        return await self._database.write(lambda tx: schedules.pause(tx, name, paused, next_at))

    async def delete_schedule(self, name: str) -> None:
        await self._database.write(lambda tx: schedules.remove(tx, name))

    async def schedules(self, *, with_deleted: bool = False) -> list[Schedule]:
        return await self._database.read(lambda tx: schedules.every(tx, with_deleted))

    async def get_schedule(self, name: str) -> Schedule | None:
        return await self._database.read(lambda tx: schedules.get(tx, name))

    async def due_schedules(self, limit: int) -> DueSchedules:
        return await self._database.read(lambda tx: schedules.due(tx, limit))

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        check_batch([job for one in firings for job in one.jobs])
        # Other calls share the transaction, and need not wait for rows that a caller has locked.
        return await self._database.write(lambda tx: fire.fire(tx, firings), patient=False)

    async def trigger(self, name: str, job: NewJob) -> EnqueueOutcome:
        return await self._database.write(lambda tx: schedules.trigger(tx, name, job))
