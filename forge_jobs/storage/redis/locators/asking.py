"""Finds jobs whose locators lie on a server that does not answer: the queues themselves are asked.

An id says nothing of the queue, so each queue on a server that answers is asked whether the job is
there. A job that is found in one queue is found for certain. Of a job that no queue has nothing is
known: the queue may be the one that does not answer. Nothing of this is done while the locators
answer.
"""

from collections.abc import Collection, Iterable, Mapping

from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import queue_names
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.locators.locators import by_base, locate_some

_MOST = 20_000
"""Ids times queues that one call asks for, so that the call stays short."""

_REMEMBERED = 10_000


async def find(
    db: Database, ids: Iterable[JobId], late: Mapping[JobId, str] | None = None
) -> tuple[dict[JobId, str], set[JobId]]:
    """Return the queue of each id, and the ids of which nothing is known.

    :param late: jobs whose locators are not written yet, and their queues
    """
    wanted = list(dict.fromkeys(ids))
    queues, unknown = await locate_some(db, wanted)
    if late:
        queues = {job_id: late[job_id] for job_id in wanted if job_id in late} | queues
    unknown -= queues.keys()
    if unknown:
        found = await _ask(db, unknown)
        queues |= found
        unknown -= found.keys()
    return queues, unknown


async def find_by_queue(db: Database, ids: Iterable[JobId]) -> dict[str, list[JobId]]:
    """The bases of the queues that the ids are in, with their ids, in order of both.

    :raises Unavailable: of an id nothing is known
    """
    queues, unknown = await find(db, ids)
    if unknown:
        raise Unavailable(
            f"of {len(unknown)} jobs it is not known in which queue they are: the server that "
            "knows does not answer, and no queue that answers has them"
        )
    return by_base(db, queues)


async def _ask(db: Database, ids: Collection[JobId]) -> dict[JobId, str]:
    """Return the queues of those that a queue which answers has."""
    remembered = db.known.queues_of
    before: dict[str, list[JobId]] = {}
    for job_id in ids:
        if job_id in remembered:
            before.setdefault(remembered[job_id], []).append(job_id)
    found = await _look(db, before)
    left = sorted(set(ids) - found.keys())
    if left:
        try:
            names = await queue_names(db)
        except Unavailable:
            return found
        some = left[: max(1, _MOST // max(1, len(names)))]
        found |= await _look(db, dict.fromkeys(names, some))
        if len(remembered) + len(found) > _REMEMBERED:
            remembered.clear()
        remembered |= found
    return found


async def _look(db: Database, asked: Mapping[str, list[JobId]]) -> dict[JobId, str]:
    requests = {db.keys.queue(queue): ids for queue, ids in asked.items()}
    answers, _ = await db.run_some("present", requests, list[JobId], wait=False)
    found: dict[JobId, str] = {}
    twice: set[JobId] = set()
    for base, present in answers.items():
        twice.update(job_id for job_id in present if job_id in found)
        found |= dict.fromkeys(present, queue_of(base))
    # The locator would say which of them counts.
    return {job_id: queue for job_id, queue in found.items() if job_id not in twice}
