"""Finished jobs that are past their retention, and how they are found: queue by queue."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from sqlalchemy import bindparam, select, text, tuple_

from forge_jobs.storage.sql.base.job_rows import Ended
from forge_jobs.storage.sql.base.tables import FINISHED, jobs, queues
from forge_jobs.storage.sql.base.transaction import Tx

FINISHED_OF = (
    jobs.c.queue == bindparam("of"),
    jobs.c.status == bindparam("as_status"),
    text(FINISHED),
)
_ENDED = tuple_(jobs.c.finished_at, jobs.c.id)
# Nothing is found once the rule has changed.
_NEXT = (
    select(jobs.c.id, jobs.c.status, jobs.c.has_children, jobs.c.finished_at)
    .where(
        *FINISHED_OF,
        tuple_(bindparam("since"), bindparam("past")) < _ENDED,
        tuple_(bindparam("until"), bindparam("last")) >= _ENDED,
        select(queues.c.retention).where(queues.c.name == bindparam("of")).scalar_subquery()
        == bindparam("rule"),
    )
    .order_by(jobs.c.finished_at, jobs.c.id)
    .limit(bindparam("at_most"))
)
# The same for many at once, in their order. Locked jobs are most likely being requeued.
_NEXT_OF_MANY = text(
    f"""
    SELECT found.*, ended.place
    FROM unnest(CAST(:queues AS text[]), CAST(:statuses AS text[]), CAST(:rules AS text[]),
        CAST(:untils AS bigint[]), CAST(:lasts AS text[]), CAST(:sinces AS bigint[]),
        CAST(:pasts AS text[]))
        WITH ORDINALITY AS ended (queue, status, rule, until, last, since, past, place)
    CROSS JOIN LATERAL (
        SELECT id, status, has_children, finished_at FROM forge_jobs
        WHERE queue = ended.queue AND status = ended.status AND {FINISHED}
          AND (finished_at, id) > (ended.since, ended.past)
          AND (finished_at, id) <= (ended.until, ended.last)
          AND (SELECT retention FROM forge_queues WHERE name = ended.queue) = ended.rule
        ORDER BY finished_at, id LIMIT :at_most
        FOR UPDATE SKIP LOCKED
    ) AS found
    LIMIT :at_most
    """
)
_MOST_AT_ONCE = 100


def next_ended(tx: Tx, ended: Sequence[Ended], size: int) -> tuple[Sequence[Any], int]:
    """See ``Flavor.next_ended``: one statement for the first."""
    values = ended[0]._asdict()
    queue, status = values.pop("queue"), values.pop("status")
    found = {"of": queue, "as_status": status, "at_most": size, **values}
    rows = tx.execute(_NEXT, found).all()
    return rows, int(len(rows) < size)


def next_of_many(tx: Tx, ended: Sequence[Ended], size: int) -> tuple[Sequence[Any], int]:
    """See ``Flavor.next_ended``: one statement for many."""
    some = list(islice(ended, _MOST_AT_ONCE))
    lists = [list(values) for values in zip(*some, strict=True)]
    names = ("queues", "statuses", "rules", "untils", "lasts", "sinces", "pasts")
    values: dict[str, object] = dict(zip(names, lists, strict=True))
    rows = tx.execute(_NEXT_OF_MANY, {**values, "at_most": size}).all()
    return rows, len(some) if len(rows) < size else rows[-1].place - 1
