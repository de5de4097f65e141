"""What every terminal transition has in common, whoever decided it."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from sqlalchemy import bindparam, select, update

from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queues import Retention
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import jobs, queues
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.queues import retention_of
from forge_jobs.storage.sql.jobs.children import tell_children

_WAITING = select(
    jobs.c.id, jobs.c.queue, jobs.c.status, jobs.c.payload, jobs.c.has_children
).where(one_of(jobs.c.id, "ids"))
_END = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(
        status=JobStatus.CANCELLED.value,
        cause=bindparam("new_cause"),
        finished_at=bindparam("now"),
        hold=None,
        payload=bindparam("new_payload"),
    )
)
_RETENTIONS = select(queues.c.name, queues.c.retention).where(one_of(queues.c.name, "names"))


def retentions(tx: Tx, names: Iterable[str]) -> Mapping[str, Retention]:
    """How long each of the queues keeps what has ended."""
    rows = tx.execute(_RETENTIONS, {"names": sorted(set(names))})
    return {name: retention_of(text) or Retention() for name, text in rows}


def keeps_payload(retention: Retention | None, status: JobStatus) -> bool:
    """Whether a job that ends with ``status`` is to be kept at all."""
    kept: timedelta = getattr(retention or Retention(), status.value)
    return kept > timedelta(0)


def end_waiting(tx: Tx, ids: Iterable[str], cause: Cause) -> None:
    """Cancel jobs that nobody runs, and tell their children."""
    for portion in portions(ids):
        rows = tx.execute(_WAITING, {"ids": portion}).all()
        kept = retentions(tx, (row.queue for row in rows))
        tx.execute(
            _END,
            [
                {
                    "job": row.id,
                    "new_cause": cause.value,
                    "now": tx.now,
                    "new_payload": row.payload
                    if keeps_payload(kept.get(row.queue), JobStatus.CANCELLED)
                    else "",
                }
                for row in rows
            ],
        )
        for row in rows:
            tx.count(row.queue, cause)
        tell_children(tx, {row.id: JobStatus.CANCELLED for row in rows if row.has_children})
