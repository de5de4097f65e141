"""Locators that are written after their jobs, because their server did not answer in time.

Only jobs with ids of our making are stored so: no other call can store such an id elsewhere. The
queue notes which jobs these are (``unlocated``) in the step that stores them. The process that has
stored them writes the locators as soon as their server answers. The sweep does, when that process
is gone.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from forge_jobs.errors import StorageError
from forge_jobs.model.ids import JobId
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_some_queues
from forge_jobs.storage.redis.base.scripts import item_of
from forge_jobs.storage.redis.locators.moving import look_again
from forge_jobs.storage.wakeups import until_set

_AGAIN_AFTER_S = 0.5
_MOST = 10_000
"""How many one process keeps in mind, and one pass of the sweep writes for a queue."""


class LateLocators:
    """The late locators of the jobs that one bundle has stored."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.queues: dict[JobId, str] = {}
        """Jobs and where they are, until their locators are written."""
        self._task: asyncio.Task[None] | None = None
        db.at_close(self._end)

    def add(self, jobs: Mapping[JobId, str]) -> None:
        """Write the locators of these jobs, some time.

        :param jobs: id -> queue
        """
        room = _MOST - len(self.queues)
        self.queues |= dict(list(jobs.items())[:room])
        if self.queues and self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self.queues:
                await until_set(asyncio.Event(), _AGAIN_AFTER_S)
                try:
                    written = await write(self._db, _by_queue(self.queues))
                except StorageError:
                    continue
                for job_id in written:
                    self.queues.pop(job_id, None)
        finally:
            self._task = None

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


async def mend(db: Database, queues: Collection[str]) -> int:
    """Write the locators that these queues have noted as not written. Return how many."""
    noted = await in_some_queues(db, "unlocated", queues, _MOST, list[JobId])
    return len(await write(db, {queue: ids for queue, ids in noted.items() if ids}))


async def write(db: Database, jobs: Mapping[str, Iterable[JobId]]) -> set[JobId]:
    """Write locators where their server answers, and forget the notes of those.

    :param jobs: ids by queue
    """
    requests: defaultdict[str, list[tuple[JobId, str]]] = defaultdict(list)
    for queue, ids in jobs.items():
        for job_id in ids:
            requests[db.places.of(job_id).removesuffix(":ids")].append((job_id, queue))
    answers = await relocate(db, requests)
    written = {job_id: queue for base in answers for job_id, queue in requests[base]}
    keys = {queue: f"{db.keys.queue(queue)}:unlocated" for queue in jobs}
    done = [("ZREM", keys[queue], *ids) for queue, ids in _by_queue(written).items()]
    await db.commands(done, some=True)
    return set(written)


async def relocate(
    db: Database, requests: Mapping[str, Iterable[tuple[JobId, str]]]
) -> dict[str, list[JobId]]:
    """Write the locators of jobs that have none where their server answers, and where they have not
    been moved meanwhile: those are written the next time.

    :param requests: ids with their queues, by base of their locators
    :returns: ids that had none, by base
    """
    seen = db.places.states
    jobs = {
        base: [item_of("relocate", "job", id=job_id, queue=queue) for job_id, queue in pairs]
        for base, pairs in requests.items()
    }
    answers, _ = await db.run_some("relocate", jobs, list[list[JobId]])
    if not all(answers.values()):
        await look_again(db, seen)
    return {base: ids for base, found in answers.items() for ids in found}


def _by_queue(queues: Mapping[JobId, str]) -> dict[str, list[JobId]]:
    found: defaultdict[str, list[JobId]] = defaultdict(list)
    for job_id, queue in queues.items():
        found[queue].append(job_id)
    return found
