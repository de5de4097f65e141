"""Brings back what is dated ahead of the store's time by a clock that has been set back."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import BigInteger, Select, and_, bindparam, func, or_, select, text, true, update

from forge_jobs.clock import duration_us
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.processes import SetBack
from forge_jobs.storage.set_back import DUE_WHEN_STORED, LONGEST_TURN, TOLERANCE_US
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.levels import levels_of
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import (
    CLAIMED,
    PARKED,
    READY,
    STRUCK,
    counters,
    jobs,
    leader,
    openings,
    pods,
    queues,
)
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.queues import shorten_cooldowns
from forge_jobs.storage.sql.fleet.noted_beats import bring_back_notes

_NOW: Any = bindparam("now", type_=BigInteger)
_AHEAD: Any = _NOW + TOLERANCE_US

# Another transaction that has locked such a row is renewing or ending it. Locked rows are skipped,
# so any order of locks will do.
_LEASES_AHEAD = (
    select(pods.c.host_id)
    .where(pods.c.last_beat_at > _AHEAD)
    .with_for_update(key_share=True, skip_locked=True)
)
_CLAIMS_AHEAD = (
    select(jobs.c.id)
    .where(text(CLAIMED), jobs.c.heartbeat_at > _AHEAD)
    .with_for_update(key_share=True, skip_locked=True)
)
_BRING_LEASES = (
    update(pods)
    .where(pods.c.host_id.in_(_LEASES_AHEAD), pods.c.last_beat_at > _AHEAD)
    .values(lease_until=_NOW + (pods.c.lease_until - pods.c.last_beat_at), last_beat_at=_NOW)
)
_BRING_CLAIMS = (
    update(jobs)
    .where(jobs.c.id.in_(_CLAIMS_AHEAD), text(CLAIMED), jobs.c.heartbeat_at > _AHEAD)
    .values(heartbeat_at=_NOW)
)
_BRING_LEADER = (
    update(leader)
    .where(leader.c.renewed_at > _AHEAD)
    .values(lease_until=_NOW + (leader.c.lease_until - leader.c.renewed_at), renewed_at=_NOW)
)
# A counter is written with every job that is stored, also where no pod lives.
_NEWEST_MINUTE = select(func.max(counters.c.minute))

_WAS_DUE = or_(
    text("cause IN ({})".format(", ".join(f"'{cause.value}'" for cause in DUE_WHEN_STORED))),
    and_(jobs.c.cause == Cause.CRASHED.value, jobs.c.crashes < 2),
    # No turn is so far away, and the job can ask for a turn again.
    and_(
        jobs.c.cause == Cause.RATE_LIMITED.value,
        jobs.c.run_at > _AHEAD + duration_us(LONGEST_TURN),
    ),
    and_(
        jobs.c.cause.in_((Cause.ENQUEUED.value, Cause.STRUCK.value)),
        jobs.c.run_at <= jobs.c.enqueued_at,
    ),
    and_(
        jobs.c.cause.in_(
            (Cause.PARENTS_SETTLED.value, Cause.SUCCEEDED.value, Cause.RESTORED.value)
        ),
        func.coalesce(jobs.c.requested_run_at, 0) < jobs.c.run_at,
    ),
)
_IS_AHEAD = (
    text(READY),
    jobs.c.status == JobStatus.PENDING.value,
    jobs.c.run_at > _AHEAD,
    _WAS_DUE,
)
# A limit holds jobs that are due.
_IS_PARKED_AHEAD = (text(PARKED), jobs.c.run_at > _AHEAD)
_IS_STRUCK_AHEAD = (text(STRUCK), jobs.c.run_at > _AHEAD, _WAS_DUE)
_HELD_AHEAD = tuple(
    select(jobs.c.id).where(*is_ahead).order_by(jobs.c.run_at, jobs.c.id).limit(bindparam("count"))
    for is_ahead in (_IS_PARKED_AHEAD, _IS_STRUCK_AHEAD)
)

# Turns of keys keep their order, and the last one is due now. A claim may have locked some of them.
_TURNS_AHEAD = (
    select(openings.c.id).where(openings.c.since > _AHEAD).with_for_update(skip_locked=True)
)
_IS_TURN_AHEAD = select(openings.c.id).where(openings.c.since > _AHEAD).limit(1)
_BRING_TURNS = (
    update(openings)
    .where(openings.c.id.in_(_TURNS_AHEAD))
    .values(since=_NOW - (select(func.max(openings.c.since)).scalar_subquery() - openings.c.since))
)


def _levels() -> Select[Any]:
    """Select each queue with each priority of the queue's ready jobs, found by seeking."""
    levels = levels_of(queues.c.name)
    found = select(levels.c.name, levels.c.priority).where(levels.c.priority.is_not(None))
    return found.order_by(levels.c.name, levels.c.priority)


def _ahead(queue: Any, level: Any) -> Select[Any]:
    """Select of one queue and priority, so the scan enters the index where such jobs begin."""
    return (
        select(jobs.c.id)
        .where(jobs.c.queue == queue, jobs.c.priority == level, *_IS_AHEAD)
        .order_by(jobs.c.run_at, jobs.c.id)
        .limit(bindparam("count"))
    )


def _ahead_of_all() -> Select[Any]:
    """Select of all queues. The server may be far away, and the queues many."""
    each = _levels().subquery()
    found = _ahead(each.c.name, each.c.priority).correlate(each).lateral()
    return select(found.c.id).select_from(each).join(found, true()).limit(bindparam("count"))


_LEVELS = _levels()
_JOBS_AHEAD = _ahead(bindparam("of"), bindparam("level"))
_ALL_JOBS_AHEAD = _ahead_of_all()
_STILL_AHEAD = (
    select(jobs.c.id, jobs.c.queue, jobs.c.run_at)
    .where(
        one_of(jobs.c.id, "ids"),
        or_(and_(*_IS_AHEAD), and_(*_IS_PARKED_AHEAD), and_(*_IS_STRUCK_AHEAD)),
    )
    # The order of every write of many jobs.
    .order_by(jobs.c.id)
    .with_for_update(key_share=True, skip_locked=True)
)
_BRING_JOB = (
    update(jobs).where(jobs.c.id == bindparam("job")).values(run_at=bindparam("new_run_at"))
)


def bring_back_leases(tx: Tx) -> SetBack:
    """See ``ProcStore.bring_back_leases``."""
    # Queues are locked before pods.
    shorten_cooldowns(tx)
    bring_back_notes(tx)
    values = {"now": tx.now}
    changed = sum(
        tx.execute(statement, values).rowcount
        for statement in (_BRING_LEASES, _BRING_CLAIMS, _BRING_LEADER)
    )
    newest: int | None = tx.execute(_NEWEST_MINUTE).scalar()
    return SetBack(leases=changed, is_set_back=changed > 0 or (newest or 0) > tx.now)


async def bring_back_jobs(database: Database, limit: int) -> int:
    """See ``JobStore.bring_back_jobs``. Looking may take long, and needs no write lock."""

    def find(tx: Tx) -> Sequence[str]:
        found: list[str] = []
        if tx.flavor.locks_rows:
            found += tx.execute(_ALL_JOBS_AHEAD, {"now": tx.now, "count": limit}).scalars()
        else:
            for queue, level in tx.execute(_LEVELS).all():
                values = {"of": queue, "level": level, "now": tx.now, "count": limit - len(found)}
                found += tx.execute(_JOBS_AHEAD, values).scalars()
                if len(found) == limit:
                    return found
        for statement in _HELD_AHEAD:
            values = {"now": tx.now, "count": limit - len(found)}
            found += tx.execute(statement, values).scalars()
        return found

    def is_turn_ahead(tx: Tx) -> bool:
        return tx.execute(_IS_TURN_AHEAD, {"now": tx.now}).first() is not None

    if await database.read(is_turn_ahead):
        await database.write(lambda tx: tx.execute(_BRING_TURNS, {"now": tx.now}))
    found = await database.read(find)
    return await database.write(lambda tx: _bring_back(tx, found)) if found else 0


def _bring_back(tx: Tx, found: Sequence[str]) -> int:
    rows: Sequence[JobRow] = tx.execute(_STILL_AHEAD, {"ids": found, "now": tx.now}).all()
    if not rows:
        return 0
    # Put each a microsecond before the next, so that their order stays.
    first = tx.now - len(rows) + 1
    in_order = sorted(rows, key=lambda row: (row.run_at, row.id))
    places = {row.id: first + place for place, row in enumerate(in_order)}
    tx.execute(_BRING_JOB, [{"job": row.id, "new_run_at": places[row.id]} for row in rows])
    tx.wake_queues({row.queue for row in rows})
    return len(rows)
