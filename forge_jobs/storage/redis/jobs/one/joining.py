"""Further parents for a job that waits for others.

As where a job of many parents is stored, the edges come first, then the parents learn of them. A
parent that ends in between is handed over by the link.
"""

from collections.abc import Sequence

from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.jobs.children import Child, Edges, missing
from forge_jobs.storage.redis.jobs.filters import portions
from forge_jobs.storage.redis.locators.locators import locate

_EDGES_AT_ONCE = 400


async def await_also(db: Database, job_id: JobId, after: Sequence[After]) -> None:
    """See ``KinStore.await_also``."""
    child = Child(job_id, (await locate(db, [job_id])).get(job_id, ""))
    if not child.queue:
        raise _gone(job_id)
    edges = Edges()
    for each in after:
        edges.add(child, each.job_id, each.on_failure)
    await edges.locate(db)
    if lacking := await edges.missing_in(db):
        raise missing(lacking[0][0])
    base = db.keys.queue(child.queue)
    for flat in [*portions(edges.texts_of(job_id), 2 * _EDGES_AT_ONCE)] or [()]:
        request = request_of("await_also", id=job_id, flat=list(flat))
        status = await db.run_one("await_also", base, request, str)
        if not status:
            raise _gone(job_id)
        if status != "blocked":
            raise Conflict(f"job {job_id} is {status}, and waits for no other job")
    await edges.write(db, "told")


def _gone(job_id: JobId) -> NotFound:
    return NotFound(f"there is no job {job_id}; its retention is over, or it is elsewhere")
