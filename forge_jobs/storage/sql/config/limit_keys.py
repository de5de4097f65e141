"""Keys of limits at which jobs wait, and the jobs of a key. All by indexes of such jobs only."""

from sqlalchemy import bindparam, select, text

from forge_jobs.model.queues import MOST_KEY_JOBS, LimitHolders, LimitKey
from forge_jobs.storage.sql.base.tables import CLAIMED, PARKED, jobs
from forge_jobs.storage.sql.base.transaction import Tx

_OF_LIMIT = "queue = :queue AND limit_name = :name"
_NEXT = f"""
    SELECT limit_key FROM forge_jobs
    WHERE {_OF_LIMIT} AND {PARKED} AND limit_key {{after}}
    ORDER BY limit_key LIMIT 1
"""
# From key to key: a key with 100,000 jobs costs one step, as one with a single job does.
_KEYS = f"""
    WITH RECURSIVE keys AS (
        SELECT ({_NEXT.format(after="{first}")}) AS key, 1 AS place
        UNION ALL
        SELECT ({_NEXT.format(after="> keys.key")}), place + 1
        FROM keys WHERE keys.key IS NOT NULL AND place < :count
    )
    SELECT key,
        (
            SELECT count(*) FROM forge_jobs
            WHERE {_OF_LIMIT} AND limit_key = keys.key AND {CLAIMED} AND limit_name IS NOT NULL
        ) AS running,
        (
            SELECT count(*) FROM (
                SELECT 1 FROM forge_jobs
                WHERE {_OF_LIMIT} AND limit_key = keys.key AND {PARKED}
                LIMIT {MOST_KEY_JOBS}
            ) AS counted
        ) AS waiting
    FROM keys WHERE key IS NOT NULL ORDER BY place
"""
_ALL_KEYS = text(_KEYS.format(first=">= :after"))
_KEYS_AFTER = text(_KEYS.format(first="> :after"))
_OF_KEY = (
    select(jobs.c.id)
    .where(
        jobs.c.queue == bindparam("queue"),
        jobs.c.limit_name == bindparam("name"),
        jobs.c.limit_key == bindparam("key"),
    )
    .limit(bindparam("count"))
)
_RUNNING = _OF_KEY.where(text(CLAIMED)).order_by(jobs.c.claimed_at, jobs.c.id)
_WAITING = _OF_KEY.where(text(PARKED)).order_by(jobs.c.priority, jobs.c.run_at, jobs.c.id)


def keys(tx: Tx, queue: str, name: str, after: str | None, limit: int) -> list[LimitKey]:
    """See ``ConfigStore.limit_keys``."""
    values = {"queue": queue, "name": name, "after": after or "", "count": limit}
    found = tx.execute(_ALL_KEYS if after is None else _KEYS_AFTER, values)
    return [LimitKey(key=row.key, running=row.running, waiting=row.waiting) for row in found]


def holders(tx: Tx, queue: str, name: str, key: str, limit: int) -> LimitHolders:
    """See ``ConfigStore.limit_holders``."""
    values = {"queue": queue, "name": name, "key": key, "count": limit}
    return LimitHolders(
        running=tuple(tx.execute(_RUNNING, values).scalars()),
        waiting=tuple(tx.execute(_WAITING, values).scalars()),
    )
