"""The load of limits by key. All by indexes of jobs that are claimed within a limit or on hold."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec import structs
from sqlalchemy import bindparam, func, literal_column, select, text

from forge_jobs.clock import from_us
from forge_jobs.model.looks import MOST_FULL_KEYS, MOST_PARKED, FullKey, LimitLoad
from forge_jobs.model.queues import MOST_KEY_JOBS
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import CLAIMED, PARKED, jobs, limits
from forge_jobs.storage.sql.base.transaction import Tx

_OF_LIMIT = "queue = :queue AND limit_name = :name"
# A look for one job of each limit: PostgreSQL would hash all jobs on hold for an EXISTS.
_A_PARKED = (
    select(jobs.c.id)
    .where(jobs.c.queue == limits.c.queue, jobs.c.limit_name == limits.c.name, text(PARKED))
    .limit(1)
    .scalar_subquery()
)
_LIMITS = (
    select(limits, _A_PARKED.is_not(None).label("has_parked"))
    .where(one_of(limits.c.queue, "names"))
    .order_by(limits.c.queue, limits.c.name)
)
_USED = (
    select(
        jobs.c.queue,
        jobs.c.limit_name,
        jobs.c.limit_key,
        func.count().label("used"),
        func.max(jobs.c.claimed_at).label("claimed_at"),
    )
    .where(one_of(jobs.c.queue, "names"), text(f"{CLAIMED} AND limit_name IS NOT NULL"))
    .group_by(jobs.c.queue, jobs.c.limit_name, jobs.c.limit_key)
)
_PARKED_JOBS = text(f"""
    SELECT count(*) AS waiting, min(run_at) AS oldest FROM (
        SELECT run_at FROM forge_jobs WHERE {_OF_LIMIT} AND {PARKED}
        ORDER BY limit_key, priority, run_at, id LIMIT {MOST_PARKED}
    ) AS counted
""")
_HELD = (
    select(jobs.c.queue, jobs.c.limit_name, jobs.c.limit_key)
    .where(
        jobs.c.queue == bindparam("queue"),
        jobs.c.limit_name == bindparam("name"),
        one_of(jobs.c.limit_key, "keys"),
        text(f"{CLAIMED} AND limit_name IS NOT NULL"),
    )
    .distinct()
    .subquery("held")
)
_OF_HELD = """
    queue = held.queue AND limit_name = held.limit_name AND limit_key = held.limit_key
"""
_FIRST: Any = literal_column(f"""(
    SELECT run_at FROM forge_jobs WHERE {_OF_HELD} AND {PARKED}
    ORDER BY priority, run_at, id LIMIT 1
)""")
_WAITING: Any = literal_column(f"""(
    SELECT count(*) FROM (
        SELECT 1 FROM forge_jobs WHERE {_OF_HELD} AND {PARKED} LIMIT {MOST_KEY_JOBS}
    ) AS counted
)""")
_FIRSTS = select(_HELD.c.limit_key, _FIRST.label("due"))
_COUNTS = select(_HELD.c.limit_key, _WAITING.label("waiting"))
_KINDS = (
    select(jobs.c.limit_key, jobs.c.kind)
    .where(
        jobs.c.queue == bindparam("queue"),
        jobs.c.limit_name == bindparam("name"),
        one_of(jobs.c.limit_key, "keys"),
        text(f"{CLAIMED} AND limit_name IS NOT NULL"),
    )
    .distinct()
    .order_by(jobs.c.limit_key, jobs.c.kind)
)
_MOST_KINDS = 5
_MOST_LOOKED_AT = 50
"""Full keys of a limit at which jobs may wait."""


def loads(tx: Tx, queues: Sequence[str]) -> tuple[LimitLoad, ...]:
    """Return the limits of the queues, by queue and name.

    Two statements for all limits at which no job waits.
    """
    used: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for names in portions(queues):
        for row in tx.execute(_USED, {"names": names}):
            used[row.queue, row.limit_name].append(row)
    found = [
        _load(tx, limit, used[limit.queue, limit.name])
        for names in portions(queues)
        for limit in tx.execute(_LIMITS, {"names": names}).all()
    ]
    return tuple(sorted(found, key=lambda load: (load.queue, load.name)))


def _load(tx: Tx, limit: Any, used: Sequence[Any]) -> LimitLoad:
    at_most = max(number_or(limit.at_most, 0), 0)
    of = {"queue": limit.queue, "name": limit.name}
    full = [row for row in used if row.used >= at_most > 0]
    load = LimitLoad(
        queue=limit.queue,
        name=limit.name,
        at_most=at_most,
        share=None if limit.share is None else max(number_or(limit.share, 1), 1),
        running=sum(row.used for row in used),
        full=len(full),
    )
    if not limit.has_parked:
        return load
    parked = tx.execute(_PARKED_JOBS, of).one()
    return structs.replace(
        load,
        waiting=parked.waiting,
        oldest_due_at=None if parked.oldest is None else from_us(parked.oldest),
        full_keys=tuple(_full_keys(tx, of, full)),
    )


def _full_keys(tx: Tx, of: dict[str, Any], full: Sequence[Any]) -> list[FullKey]:
    """Return the full keys at which jobs wait, in three statements for all."""
    oldest = sorted(full, key=lambda row: (row.claimed_at, row.limit_key))[:_MOST_LOOKED_AT]
    asked = {**of, "keys": [row.limit_key for row in oldest]}
    due = {row.limit_key: row.due for row in tx.execute(_FIRSTS, asked) if row.due is not None}
    shown = [row for row in oldest if row.limit_key in due][:MOST_FULL_KEYS]
    if not shown:
        return []
    asked = {**of, "keys": [row.limit_key for row in shown]}
    waiting = {row.limit_key: row.waiting for row in tx.execute(_COUNTS, asked)}
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for row in tx.execute(_KINDS, asked):
        kinds[row.limit_key].append(row.kind)
    return [
        FullKey(
            key=row.limit_key,
            running=row.used,
            waiting=waiting.get(row.limit_key, 0),
            due_at=from_us(due[row.limit_key]),
            claimed_at=from_us(row.claimed_at),
            kinds=tuple(kinds[row.limit_key][:_MOST_KINDS]),
        )
        for row in shown
    ]
