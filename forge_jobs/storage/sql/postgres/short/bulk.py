"""Copies many requests without parents and unique keys into the table.

A copied row costs either side half of its cost in a statement: it is in no list, and no index is
read for it first. ``COPY`` refuses all rows when one id is stored already.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from operator import attrgetter
from typing import Any

import asyncpg

from forge_jobs.model.jobs import Cause, NewJob
from forge_jobs.storage.sql.base.job_columns import NEW
from forge_jobs.storage.sql.base.job_rows import due_at, new_job_values
from forge_jobs.storage.sql.base.transaction import Key, Tx
from forge_jobs.storage.sql.hot.behind import hold_of, without_room

FEW = 2_000
"""Up to so many requests go in one statement: one round trip, where a copy takes six."""

_OWN = ("id", "payload", "fingerprint")
_LINKED = {"unique_key", "has_children"}
_SHARED = tuple(name for name in NEW if name not in {*_OWN, *_LINKED})
_asked = attrgetter(
    *(name for name in NewJob.__struct_fields__ if name not in {*_OWN, "unique", "after"})
)
_own = attrgetter(*_OWN)
_id, _queue = attrgetter("id"), attrgetter("queue")


class NotCopied(Exception):
    """An id is stored already, or was a moment ago, or the role may not copy here."""


def copy_in(tx: Tx, requests: Sequence[NewJob]) -> None:
    """Store the requests, whose queues are known.

    :raises NotCopied: the transaction can do nothing more
    """

    full = without_room(tx, requests)
    rows = _rows(tx, requests, tx.now, full)
    columns = (*_OWN, *_SHARED, "hold")

    async def copy(driver: Any) -> None:
        await driver.copy_records_to_table("forge_jobs", records=rows, columns=columns)

    plain: Any = tx.connection.connection.dbapi_connection
    try:
        plain.run_async(copy)
    except (asyncpg.UniqueViolationError, asyncpg.FeatureNotSupportedError):
        # Row level security asks row by row, and refuses COPY.
        raise NotCopied from None
    for queue, count in Counter(one.queue for one in requests).items():
        tx.count(queue, Cause.ENQUEUED, by=count)


def _rows(
    tx: Tx, requests: Sequence[NewJob], now: int, full: Collection[Key]
) -> Iterator[tuple[Any, ...]]:
    alike: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    # In the order in which the script stores them: by queue, then by id.
    for one in sorted(sorted(requests, key=_id), key=_queue):
        asked = _asked(one)
        shared = alike.get(asked)
        if shared is None:
            values = new_job_values(one, now, has_children=False)
            values["hold"] = hold_of(one, full)
            shared = alike[asked] = tuple(values[name] for name in (*_SHARED, "hold"))
            if due_at(one, now) <= now:
                tx.wake_queue(one.queue)
        yield (*_own(one), *shared)
