"""Shared steps of the ends of jobs, and the plain success, the most frequent end.

A plain success does not depend on the former state of the job. So a batch of them is one statement,
which fences, writes and answers, where every other end reads the job first.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from sqlalchemy import bindparam, case, select, update

from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queues import Retention
from forge_jobs.model.transitions import Finalization, Occurrence, Transition
from forge_jobs.model.unique.keys import REPLACED
from forge_jobs.storage.sql.base.job_rows import JobRow
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.tables import jobs, queues
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.queues import retention_of
from forge_jobs.storage.sql.jobs.children import tell_children
from forge_jobs.storage.sql.letters.write import write_letters
from forge_jobs.storage.sql.progress.notes import forget_steps

_WAITING = select(jobs.c.id, jobs.c.queue, jobs.c.has_children).where(one_of(jobs.c.id, "ids"))
_END = (
    update(jobs)
    .where(one_of(jobs.c.id, "ids"))
    .values(
        status=JobStatus.CANCELLED.value,
        cause=bindparam("new_cause"),
        finished_at=bindparam("now"),
        hold=None,
    )
)
_END_AND_DROP = _END.values(payload="")
_BEGIN_AGAIN = (
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(
        payload=bindparam("new_payload"),
        metadata=bindparam("new_metadata"),
        attempt=0,
        crashes=0,
        snoozes=0,
        snoozed_at=None,
        requested_run_at=bindparam("new_requested_run_at"),
        # So that a repeat of the request is not compared with this payload.
        fingerprint=case((jobs.c.fingerprint == "", REPLACED), else_=jobs.c.fingerprint),
    )
)
_RETENTIONS = select(queues.c.name, queues.c.retention).where(one_of(queues.c.name, "names"))
_ON_DEATH = select(queues.c.name, queues.c.retention, queues.c.dead_letter).where(
    one_of(queues.c.name, "names")
)
_DROP_PAYLOAD = update(jobs).where(one_of(jobs.c.id, "ids")).values(payload="")


def retentions(tx: Tx, names: Iterable[str]) -> Mapping[str, Retention]:
    """Return the retention of each of the queues."""
    rows = tx.execute(_RETENTIONS, {"names": sorted(set(names))})
    return {name: retention_of(text) or Retention() for name, text in rows}


def keeps_payload(retention: Retention | None, status: JobStatus) -> bool:
    """Return whether a job that ends with ``status`` is to be kept at all."""
    kept: timedelta = getattr(retention or Retention(), status.value)
    return kept > timedelta(0)


def begin_again(tx: Tx, begun: Sequence[tuple[str, Occurrence, int | None]]) -> None:
    """Give jobs that have gone back to waiting what their next occurrence has.

    :param begun: with the time that the handler asked for, None for at once
    """
    tx.execute(
        _BEGIN_AGAIN,
        [
            {
                "job": job_id,
                "new_payload": again.payload,
                "new_metadata": again.metadata,
                "new_requested_run_at": requested,
            }
            for job_id, again, requested in begun
        ],
    )
    forget_steps(tx, (job_id for job_id, *_ in begun))


def leave_and_drop(tx: Tx, ended: Sequence[tuple[JobRow, JobStatus]]) -> None:
    """Write the letters of jobs that died, then drop the payloads that retention does not keep.

    :param ended: jobs in terminal statuses, already written, with their queues
    """
    names = sorted({row.queue for row, _ in ended})
    found = {row.name: row for row in tx.execute(_ON_DEATH, {"names": names})}
    dead: dict[str, str] = {}
    dropped: list[str] = []
    for row, status in ended:
        queue = found.get(row.queue)
        if status is JobStatus.DEAD and queue is not None and queue.dead_letter:
            dead[row.id] = queue.dead_letter
        if not keeps_payload(None if queue is None else retention_of(queue.retention), status):
            dropped.append(row.id)
    write_letters(tx, dead)
    if dropped:
        tx.execute(_DROP_PAYLOAD, {"ids": dropped})


def end_waiting(tx: Tx, ids: Iterable[str], cause: Cause) -> None:
    """Cancel jobs that no worker runs, and write handovers to their children."""
    for portion in portions(ids):
        rows = tx.execute(_WAITING, {"ids": portion}).all()
        kept = retentions(tx, (row.queue for row in rows))
        dropped = {
            name
            for name, retention in kept.items()
            if not keeps_payload(retention, JobStatus.CANCELLED)
        }
        for statement, ids_of in (
            (_END, [row.id for row in rows if row.queue not in dropped]),
            (_END_AND_DROP, [row.id for row in rows if row.queue in dropped]),
        ):
            if ids_of:
                tx.execute(statement, {"ids": ids_of, "new_cause": cause.value, "now": tx.now})
        for row in rows:
            tx.count(row.queue, cause)
        tell_children(tx, {row.id: JobStatus.CANCELLED for row in rows if row.has_children})


def is_plain_success(transition: Transition) -> bool:
    """Return whether the transition is a success with no other effect than the result."""
    return (
        transition.status is JobStatus.DONE
        and transition.cause is Cause.SUCCEEDED
        and transition.error is None
        and transition.cooldown is None
        and not (transition.hand_back or transition.count_snooze or transition.count_crash)
    )


def are_plain_successes(finalizations: Sequence[Finalization]) -> bool:
    """Return whether one statement can judge all ends: each of another job, and all of one pod.

    Two items of one job would have to see each other. The pod is one parameter of the statement.
    """
    ids: set[str] = set()
    plain: Transition | None = None
    for one in finalizations:
        if one.claim.host_id != finalizations[0].claim.host_id:
            return False
        # Successes without a result are one and the same object, which is looked at once.
        if one.transition is not plain:
            if not is_plain_success(one.transition):
                return False
            plain = one.transition
        ids.add(one.claim.job_id)
    return len(ids) == len(finalizations)
