"""The load of limits by key. All by indexes of jobs that are claimed within a limit or on hold."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, text

from forge_jobs.clock import from_us
from forge_jobs.model.looks import MOST_FULL_KEYS, MOST_PARKED, FullKey, LimitLoad
from forge_jobs.model.queues import MOST_KEY_JOBS
from forge_jobs.storage.salvage import number_or
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import CLAIMED, PARKED, limits
from forge_jobs.storage.sql.base.transaction import Tx

_OF_LIMIT = "queue = :queue AND limit_name = :name"
_LIMITS = (
    select(limits).where(one_of(limits.c.queue, "names")).order_by(limits.c.queue, limits.c.name)
)
_USED = text(f"""
    SELECT limit_name, limit_key, count(*) AS used, max(claimed_at) AS claimed_at
    FROM forge_jobs
    WHERE queue = :queue AND {CLAIMED} AND limit_name IS NOT NULL
    GROUP BY limit_name, limit_key
""")
_PARKED_JOBS = text(f"""
    SELECT count(*) AS waiting, min(run_at) AS oldest FROM (
        SELECT run_at FROM forge_jobs WHERE {_OF_LIMIT} AND {PARKED}
        ORDER BY limit_key, priority, run_at, id LIMIT {MOST_PARKED}
    ) AS counted
""")
_FIRST = text(f"""
    SELECT run_at FROM forge_jobs WHERE {_OF_LIMIT} AND limit_key = :key AND {PARKED}
    ORDER BY priority, run_at, id LIMIT 1
""")
_WAITING = text(f"""
    SELECT count(*) FROM (
        SELECT 1 FROM forge_jobs WHERE {_OF_LIMIT} AND limit_key = :key AND {PARKED}
        LIMIT {MOST_KEY_JOBS}
    ) AS counted
""")
_KINDS = text(f"""
    SELECT DISTINCT kind FROM forge_jobs
    WHERE {_OF_LIMIT} AND limit_key = :key AND {CLAIMED} AND limit_name IS NOT NULL
    LIMIT 5
""")
_MOST_LOOKED_AT = 50
"""Full keys of a limit at which jobs may wait."""


def loads(tx: Tx, queues: Sequence[str]) -> tuple[LimitLoad, ...]:
    """Return the limits of the queues, by queue and name."""
    by_queue: defaultdict[str, list[Any]] = defaultdict(list)
    for row in tx.execute(_LIMITS, {"names": list(queues)}):
        by_queue[row.queue].append(row)
    found = []
    for queue, rows in sorted(by_queue.items()):
        used: defaultdict[str, list[Any]] = defaultdict(list)
        for row in tx.execute(_USED, {"queue": queue}):
            used[row.limit_name].append(row)
        found += [_load(tx, row, used[row.name]) for row in sorted(rows, key=lambda row: row.name)]
    return tuple(found)


def _load(tx: Tx, limit: Any, used: Sequence[Any]) -> LimitLoad:
    at_most = max(number_or(limit.at_most, 0), 0)
    of = {"queue": limit.queue, "name": limit.name}
    parked = tx.execute(_PARKED_JOBS, of).one()
    full = [row for row in used if row.used >= at_most > 0]
    return LimitLoad(
        queue=limit.queue,
        name=limit.name,
        at_most=at_most,
        share=None if limit.share is None else max(number_or(limit.share, 1), 1),
        running=sum(row.used for row in used),
        waiting=parked.waiting,
        oldest_due_at=None if parked.oldest is None else from_us(parked.oldest),
        full=len(full),
        full_keys=tuple(_full_keys(tx, of, full)) if parked.waiting else (),
    )


def _full_keys(tx: Tx, of: dict[str, Any], full: Sequence[Any]) -> list[FullKey]:
    found: list[FullKey] = []
    for row in sorted(full, key=lambda row: (row.claimed_at, row.limit_key))[:_MOST_LOOKED_AT]:
        key = {**of, "key": row.limit_key}
        due = tx.execute(_FIRST, key).scalar_one_or_none()
        if due is not None:
            found.append(
                FullKey(
                    key=row.limit_key,
                    running=row.used,
                    waiting=tx.execute(_WAITING, key).scalar_one(),
                    due_at=from_us(due),
                    claimed_at=from_us(row.claimed_at),
                    kinds=tuple(sorted(tx.execute(_KINDS, key).scalars())),
                )
            )
        if len(found) == MOST_FULL_KEYS:
            break
    return found
