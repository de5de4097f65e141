"""Further parents for a job that waits for others."""

from collections.abc import Sequence

from sqlalchemy import insert, select, update

from forge_jobs.errors import Conflict, Locked, NotFound
from forge_jobs.model.edges import named_in_line
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, After, JobStatus
from forge_jobs.storage.sql.base.lists import one_of, portions
from forge_jobs.storage.sql.base.row_locks import LONGER_PAUSES_S, Lockable
from forge_jobs.storage.sql.base.tables import edges, handovers, jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.jobs.children import LIVE, TOLD, edges_of
from forge_jobs.storage.sql.jobs.sequences.lines import lines_of

_JOBS = Lockable(
    select(jobs.c.id, jobs.c.queue, jobs.c.status)
    .where(one_of(jobs.c.id, "ids"))
    .order_by(jobs.c.id)
)
_MARK_PARENTS = update(jobs).where(one_of(jobs.c.id, "ids")).values(has_children=True)


def await_also(tx: Tx, job_id: JobId, after: Sequence[After]) -> None:
    """See ``KinStore.await_also``."""
    # All in id order, as by every write of many jobs. Then no end of a parent comes in between.
    rows = _JOBS.lock(tx, [job_id, *(each.job_id for each in after)], LONGER_PAUSES_S)
    if rows.kept:
        raise Locked(f"an open transaction holds job {min(rows.kept)}; try again after that")
    for each in (job_id, *(edge.job_id for edge in after)):
        if each not in rows:
            raise NotFound(f"there is no job {each}; its retention is over, or it is elsewhere")
    child = rows[job_id]
    if child.status != JobStatus.BLOCKED.value:
        raise Conflict(f"job {job_id} is {child.status}, and waits for no other job")
    there = {edge.parent_id for edge in edges_of(tx, [job_id]).get(job_id, ())}
    new = [each for each in after if each.job_id not in there]
    if not new:
        return
    line_of = lines_of(tx, [job_id, *(each.job_id for each in new)])
    line = line_of.get(job_id, "")
    rules = {
        each.job_id: named_in_line(each.on_failure)
        if line and line_of.get(each.job_id) == line
        else each.on_failure
        for each in new
    }
    ended = {each.job_id for each in new if JobStatus(rows[each.job_id].status) in TERMINAL}
    tx.execute(
        insert(edges),
        [
            {
                "child_id": job_id,
                "parent_id": each.job_id,
                "child_queue": child.queue,
                "on_failure": rules[each.job_id],
                "link": TOLD if each.job_id in ended else LIVE,
            }
            for each in new
        ],
    )
    for ids in portions(each.job_id for each in new):
        tx.execute(_MARK_PARENTS, {"ids": ids})
    if ended:
        tx.execute(
            insert(handovers),
            [
                {
                    "queue": child.queue,
                    "child_id": job_id,
                    "parent_id": each.job_id,
                    "parent_status": rows[each.job_id].status,
                    "on_failure": rules[each.job_id],
                }
                for each in new
                if each.job_id in ended
            ],
        )
        tx.wake_handover()
