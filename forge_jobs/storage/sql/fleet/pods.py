"""Pods, their leases, and workers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    bindparam,
    case,
    delete,
    exists,
    select,
    text,
    update,
)

from forge_jobs.clock import duration_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import PodMinute
from forge_jobs.model.processes import (
    Allocation,
    AllocationChange,
    Pod,
    PodGauges,
    PodLease,
    PodState,
    QueueBeat,
    SetBack,
    WorkerState,
)
from forge_jobs.storage.set_back import UNBELIEVABLE_US
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.job_rows import duration
from forge_jobs.storage.sql.base.letter_tables import letters
from forge_jobs.storage.sql.base.levels import next_due_of
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import (
    CLAIMED,
    SET_ASIDE,
    handovers,
    jobs,
    pods,
    queues,
    slots,
)
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.queues import STATE_COLUMNS, queue_state
from forge_jobs.storage.sql.fleet import allocations, requests
from forge_jobs.storage.sql.fleet.allocations import slots_of
from forge_jobs.storage.sql.fleet.due_kinds import due_kinds
from forge_jobs.storage.sql.fleet.gauges import gauges_of_hours, read_gauges, record_gauges
from forge_jobs.storage.sql.fleet.kinds import KindCalls
from forge_jobs.storage.sql.fleet.read import list_pods, list_workers, live_pods, read_routes
from forge_jobs.storage.sql.fleet.registering import (
    NOW,
    OF_LEASE,
    change_queues,
    declared_by,
    forget_slots,
    of_lease,
    register,
)
from forge_jobs.storage.sql.fleet.requests import RequestCalls
from forge_jobs.storage.sql.fleet.set_back import bring_back_leases

FREED_AT_ONCE = 1000
"""How many held jobs one transaction frees, so that the transaction stays short."""

RENEW = (
    update(pods)
    .where(*OF_LEASE, pods.c.lease_until > NOW)
    .values(last_beat_at=NOW, lease_until=NOW + bindparam("lease_us", type_=BigInteger))
    .returning(
        select(handovers.c.id).exists().label("handovers"),
        select(letters.c.id).exists().label("letters"),
        requests.WAITS.label("requests"),
        NOW.label("now"),
    )
)
_DRAIN = (
    update(pods)
    .where(*OF_LEASE, pods.c.draining != bindparam("drains"))
    .values(draining=bindparam("drains"))
)
_QUIET = (
    update(pods)
    .where(*OF_LEASE, pods.c.quiet != bindparam("is_quiet"))
    .values(quiet=bindparam("is_quiet"))
)
_FORGET = delete(pods).where(*OF_LEASE)
# The literal lets the planner see that the partial index of held jobs applies.
_HELD_OF_KINDS = (
    select(jobs.c.id, jobs.c.queue)
    .where(
        # Another release may read what the last one could not.
        text(SET_ASIDE),
        one_of(jobs.c.kind, "kinds"),
    )
    .limit(bindparam("at_most"))
    # A later look frees jobs that another transaction has locked.
    .with_for_update(key_share=True, skip_locked=True)
)
# Jobs are put on hold when they are due. A clock that was set back since makes none wait.
_FREE = (
    update(jobs)
    .where(one_of(jobs.c.id, "ids"))
    .values(hold=None, run_at=case((jobs.c.run_at > NOW, NOW), else_=jobs.c.run_at))
)
# No lease is so long: the row has been spoilt. A live pod renews the lease with the next beat.
IS_UNBELIEVABLE = pods.c.lease_until > pods.c.last_beat_at + UNBELIEVABLE_US
_DEAD = (
    select(pods.c.host_id)
    .where(
        (pods.c.lease_until <= bindparam("before")) | IS_UNBELIEVABLE,
        ~exists().where(jobs.c.host_id == pods.c.host_id, text(CLAIMED)),
    )
    .order_by(pods.c.lease_until, pods.c.host_id)
    .limit(bindparam("at_most"))
)


def _queue_beats() -> Any:
    is_live = exists().where(
        pods.c.host_id == slots.c.host_id, pods.c.epoch == slots.c.epoch, pods.c.lease_until > NOW
    )
    return (
        select(
            *STATE_COLUMNS,
            case((is_live, slots.c.target), else_=0).label("target"),
            case((is_live, slots.c.granted), else_=0).label("granted"),
            next_due_of("forge_slots.queue").label("next_due"),
            NOW.label("now"),
        )
        .join_from(slots, queues, queues.c.name == slots.c.queue)
        .where(slots.c.host_id == bindparam("by"), slots.c.epoch == bindparam("at_epoch"))
    )


QUEUE_BEATS = _queue_beats()
"""Takes :func:`of_lease` and ``now``, for :func:`queue_beats_of`."""


class Renewed(NamedTuple):
    """The answer of :func:`renew_lease`. Not held: the lease ran out, or is of another epoch."""

    is_held: bool
    handovers: bool = False
    letters: bool = False
    requests: bool = False


def renew_lease(tx: Tx, lease: PodLease, lease_for: timedelta) -> Renewed:
    """Renew a pod's lease to now + ``lease_for``.

    Says too whether handovers, letters and requests wait, so that an idle pod needs no statement
    for that.
    """
    values = {**of_lease(lease), "now": tx.now, "lease_us": duration_us(lease_for)}
    row = tx.execute(RENEW, values).first()
    if row is None:
        return Renewed(is_held=False)
    return Renewed(True, bool(row.handovers), bool(row.letters), bool(row.requests))


def queue_beats(tx: Tx, lease: PodLease) -> dict[str, QueueBeat]:
    """Read the state of each queue that the pod declares, in one statement.

    No queues for another epoch, no slots when the lease has run out.
    """
    return queue_beats_of(tx.execute(QUEUE_BEATS, {**of_lease(lease), "now": tx.now}).all())


def queue_beats_of(rows: Iterable[Any]) -> dict[str, QueueBeat]:
    """Return the rows of :data:`QUEUE_BEATS`, by queue."""
    return {
        row.name: QueueBeat(
            slots=slots_of(row),
            state=queue_state(row, row.now),
            # A value that is no number is a spoilt due time, which never comes.
            next_due_in=duration(max(0, row.next_due - row.now))
            if isinstance(row.next_due, int)
            else None,
        )
        for row in rows
    }


def free_held_jobs(tx: Tx, kinds: Sequence[str], limit: int = FREED_AT_ONCE) -> int:
    """Free held jobs of these kinds, without waiting for locked ones.

    :returns: how many jobs were freed, ``limit`` at most
    """
    left = limit
    for portion in portions(kinds):
        found = tx.execute(_HELD_OF_KINDS, {"kinds": portion, "at_most": left}).all()
        for ids in portions(row.id for row in found):
            tx.execute(_FREE, {"ids": ids, "now": tx.now})
        tx.wake_queues({row.queue for row in found})
        left -= len(found)
        if left == 0:
            break
    return limit - left


def _drain(tx: Tx, lease: PodLease, *, drains: bool, quiet: bool = False) -> None:
    declared = declared_by(tx, lease.host_id)
    allocations.lock_queues(tx, declared)
    tx.execute(_QUIET, {**of_lease(lease), "is_quiet": quiet})
    # A quiet pod that stops has the targets of before.
    if tx.execute(_DRAIN, {**of_lease(lease), "drains": drains}).rowcount:
        allocations.move_versions(tx, declared)
        tx.wake_fleet()


def _unregister(tx: Tx, lease: PodLease) -> None:
    allocations.lock_queues(tx, declared_by(tx, lease.host_id))
    if tx.execute(_FORGET, of_lease(lease)).rowcount:
        allocations.move_versions(tx, forget_slots(tx, lease.host_id))
        tx.wake_fleet()


def _drop_dead_pods(tx: Tx, dead_for: timedelta, limit: int) -> list[HostId]:
    before = tx.now - max(0, duration_us(dead_for))
    dead: Sequence[HostId] = tx.execute(_DEAD, {"before": before, "at_most": limit}).scalars().all()
    dropped = []
    for host_id in dead:
        allocations.lock_queues(tx, declared_by(tx, host_id))
        # Check again: the pod may have registered since the reading.
        gone = delete(pods).where(
            pods.c.host_id == host_id, (pods.c.lease_until <= before) | IS_UNBELIEVABLE
        )
        if tx.execute(gone).rowcount:
            allocations.move_versions(tx, forget_slots(tx, host_id))
            dropped.append(host_id)
    if dropped:
        tx.wake_fleet()
    return dropped


class SqlProcStore(RequestCalls, KindCalls):
    """The ``ProcStore`` of the SQL backends."""

    def __init__(self, database: Database) -> None:
        self.store_id = database.store_id
        self._database = database

    async def register(self, pod: Pod, lease_for: timedelta) -> PodLease:
        lease = await self._database.write(lambda tx: register(tx, pod, lease_for))
        # From here on the pod's kinds are known, so no more jobs of them are put on hold. If this
        # process died half way, the next pod that knows the kinds would free the rest.
        freed = FREED_AT_ONCE
        while freed == FREED_AT_ONCE:
            freed = await self._database.write(lambda tx: free_held_jobs(tx, pod.kinds))
        return lease

    async def change_queues(self, lease: PodLease, pod: Pod, lease_for: timedelta) -> bool:
        return await self._database.write(lambda tx: change_queues(tx, lease, pod))

    async def free_held_jobs(self, limit: int) -> int:
        # SQLite has one writer at a time, so registering leaves no held job.
        return 0

    async def set_draining(self, lease: PodLease, *, quiet: bool = False) -> None:
        await self._database.write(lambda tx: _drain(tx, lease, drains=True, quiet=quiet))

    async def end_draining(self, lease: PodLease) -> None:
        await self._database.write(lambda tx: _drain(tx, lease, drains=False))

    async def unregister(self, lease: PodLease) -> None:
        await self._database.write(lambda tx: _unregister(tx, lease))

    async def pods(self) -> list[PodState]:
        return await self._database.read(list_pods)

    async def routes(self) -> dict[str, str | None]:
        return await self._database.read(read_routes)

    async def workers(self, host_id: HostId | None = None) -> list[WorkerState]:
        return await self._database.read(lambda tx: list_workers(tx, host_id))

    async def drop_dead_pods(self, dead_for: timedelta, limit: int) -> list[HostId]:
        return await self._database.write(lambda tx: _drop_dead_pods(tx, dead_for, limit))

    async def bring_back_leases(self) -> SetBack:
        return await self._database.write(bring_back_leases)

    async def allocations(self) -> list[Allocation]:
        return await self._database.read(allocations.read_allocations)

    async def live_pods(self) -> list[Pod]:
        return await self._database.read(live_pods)

    async def due_kinds(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        return await self._database.read(lambda tx: due_kinds(tx, names))

    async def allocate(self, changes: Sequence[AllocationChange]) -> list[bool]:
        # The pods of grants do not outlive a loss of power.
        return await self._database.write(
            lambda tx: allocations.allocate(tx, changes), synced=False
        )

    async def lower_grants(self, lease: PodLease, grants: Mapping[str, int]) -> None:
        await self._database.write(
            lambda tx: allocations.lower_grants(tx, lease, grants), synced=False
        )

    async def record_gauges(self, lease: PodLease, minute: datetime, gauges: PodGauges) -> None:
        await self._database.write(lambda tx: record_gauges(tx, lease, minute, gauges))

    async def gauges(self, since: datetime, until: datetime) -> list[PodMinute]:
        def script(tx: Tx) -> list[PodMinute]:
            found = gauges_of_hours(tx, since, until) + read_gauges(tx, since, until)
            return sorted(found, key=lambda each: each.minute)

        return await self._database.read(script)
