"""Writes the letters of jobs that die, in the step that ends them."""

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import bindparam, insert, select

from forge_jobs.model.letters import DEAD_LETTER_KIND
from forge_jobs.storage.sql.base.job_columns import TEXT
from forge_jobs.storage.sql.base.letter_tables import letters
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import jobs
from forge_jobs.storage.sql.base.transaction import Tx

_COLUMNS = {
    "queue": bindparam("to", type_=TEXT),
    "origin_queue": jobs.c.queue,
    "origin_id": jobs.c.id,
    "token": jobs.c.token,
    "kind": jobs.c.kind,
    "payload": jobs.c.payload,
    "cause": jobs.c.cause,
    "attempt": jobs.c.attempt,
    "priority": jobs.c.priority,
    "tags": jobs.c.tags,
    "metadata": jobs.c.metadata,
    "trace": jobs.c.trace,
    "schedule": jobs.c.schedule,
    "errors": jobs.c.errors,
    "enqueued_at": jobs.c.enqueued_at,
    "died_at": jobs.c.finished_at,
}
# From table to table, so payloads do not travel, and a value that cannot be read ends no job.
_WRITE = insert(letters).from_select(
    list(_COLUMNS),
    select(*_COLUMNS.values())
    .where(one_of(jobs.c.id, "ids"), jobs.c.kind != DEAD_LETTER_KIND)
    .order_by(jobs.c.id),
)


def write_letters(tx: Tx, dead: Mapping[str, str]) -> None:
    """Write a letter of each job, except of letters. The payloads must still be there.

    :param dead: the id of a job that has died -> the queue for the letter
    """
    by_queue: defaultdict[str, list[str]] = defaultdict(list)
    for job_id, to in dead.items():
        by_queue[to].append(job_id)
    for to, ids in by_queue.items():
        for portion in portions(ids):
            tx.execute(_WRITE, {"to": to, "ids": portion})
    if by_queue:
        tx.wake_letters()
