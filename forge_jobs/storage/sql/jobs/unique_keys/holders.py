"""Holders of unique keys, and windows that last.

Postgres answers for keys of many queues at once, however far away the server is. SQLite answers
queue by queue: a list of pairs would be looked up by scanning.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Executable, Row, bindparam, select, text

from forge_jobs.model.unique.keys import key_of, places_of
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import ACTIVE, jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.base.unique_tables import unique_windows

Key = tuple[str, str]
"""A queue and a key."""

# Without IS NOT NULL, which SQLite would take for a range to scan: the list of keys implies that
# condition.
_HOLDERS = select(
    jobs.c.queue, jobs.c.unique_key, jobs.c.id, jobs.c.status, jobs.c.expires_at
).where(jobs.c.queue == bindparam("queue"), one_of(jobs.c.unique_key, "keys"), text(ACTIVE))
_WINDOWS = select(
    unique_windows.c.queue,
    unique_windows.c.unique_key,
    unique_windows.c.job_id,
    unique_windows.c.opened_at,
).where(
    unique_windows.c.queue == bindparam("queue"),
    one_of(unique_windows.c.unique_key, "keys"),
    unique_windows.c.ends_at > bindparam("now"),
)


def _of_each(columns: str, table: str, condition: str) -> Executable:
    """Return the statement for many pairs: at most one row of each, found by an index.

    The limit keeps the planner from a join, which would read all rows of a table without
    statistics.
    """
    return text(f"""
        SELECT found.*
        FROM unnest(CAST(:queues AS text[]), CAST(:keys AS text[])) AS given (of_queue, of_key)
        CROSS JOIN LATERAL (
            SELECT {columns} FROM {table}
            WHERE queue = of_queue AND unique_key = of_key AND {condition}
            LIMIT 1
        ) AS found
    """)


_HOLDERS_OF_MANY = _of_each("queue, unique_key, id, status, expires_at", "forge_jobs", ACTIVE)
_WINDOWS_OF_MANY = _of_each(
    "queue, unique_key, job_id, opened_at", "forge_unique_windows", "ends_at > :now"
)


def key_holders(tx: Tx, pairs: Iterable[Key]) -> dict[Key, list[Row[Any]]]:
    """Return the active jobs of these (queue, key) pairs, without pairs that no job holds."""
    places = {(queue, place) for queue, key in pairs for place in places_of(key_of(key))}
    found: dict[Key, list[Row[Any]]] = {}
    for row in _rows(tx, places, _HOLDERS, _HOLDERS_OF_MANY):
        found.setdefault((row.queue, key_of(row.unique_key)), []).append(row)
    return found


def windows_of(tx: Tx, pairs: Iterable[Key]) -> dict[Key, Row[Any]]:
    """Return the windows of these (queue, key) pairs that have not ended."""
    rows = _rows(tx, pairs, _WINDOWS, _WINDOWS_OF_MANY, now=tx.now)
    return {(row.queue, row.unique_key): row for row in rows}


def _rows(
    tx: Tx, pairs: Iterable[Key], of_one: Executable, of_many: Executable, **values: int
) -> Iterator[Row[Any]]:
    by_queue: defaultdict[str, list[str]] = defaultdict(list)
    in_order = sorted(pairs)
    for queue, key in in_order:
        by_queue[queue].append(key)
    if len(by_queue) > 1 and tx.flavor.locks_rows:
        for some in portions(in_order):
            queues, keys = map(list, zip(*some, strict=True))
            yield from tx.execute(of_many, {"queues": queues, "keys": keys, **values})
        return
    for queue, of_queue in by_queue.items():
        for portion in portions(of_queue):
            yield from tx.execute(of_one, {"queue": queue, "keys": portion, **values})
