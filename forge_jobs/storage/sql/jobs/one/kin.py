"""The parents and children of jobs. Each direction of a job is one entry into an index."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, bindparam, select

from forge_jobs.model.edges import EdgeState, Kin, Relative
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.sql.base.lists import one_of
from forge_jobs.storage.sql.base.tables import edges, jobs
from forge_jobs.storage.sql.base.transaction import Tx

_STORED = select(jobs.c.id).where(one_of(jobs.c.id, "ids"))
_COLUMNS = (edges.c.on_failure, edges.c.state, jobs.c.queue, jobs.c.kind, jobs.c.status)
_PARENTS = (
    select(edges.c.parent_id.label("id"), *_COLUMNS)
    .outerjoin(jobs, jobs.c.id == edges.c.parent_id)
    .where(edges.c.child_id == bindparam("of"))
    .order_by(edges.c.parent_id)
    .limit(bindparam("most"))
)
_CHILDREN = (
    select(edges.c.child_id.label("id"), *_COLUMNS)
    .join(jobs, jobs.c.id == edges.c.child_id)
    .where(edges.c.parent_id == bindparam("of"))
    .order_by(edges.c.child_id)
    .limit(bindparam("most"))
)


def kin_of(tx: Tx, ids: Sequence[JobId], limit: int) -> dict[JobId, Kin]:
    """See ``KinStore.kin``."""
    found: dict[JobId, Kin] = {}
    for job_id in sorted(tx.execute(_STORED, {"ids": sorted(set(ids))}).scalars()):
        asked = {"of": job_id, "most": limit + 1}
        parents = [_relative(row) for row in tx.execute(_PARENTS, asked)]
        children = [_relative(row) for row in tx.execute(_CHILDREN, asked)]
        found[JobId(job_id)] = Kin(
            parents=tuple(parents[:limit]),
            children=tuple(children[:limit]),
            more_parents=len(parents) > limit,
            more_children=len(children) > limit,
        )
    return found


def _relative(row: Row[Any]) -> Relative:
    return Relative(
        id=JobId(row.id),
        queue=row.queue or "",
        kind=row.kind or "",
        status=None if row.status is None else JobStatus(row.status),
        on_failure=row.on_failure,
        edge=EdgeState(row.state),
    )
