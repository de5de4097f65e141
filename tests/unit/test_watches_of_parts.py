"""Watches of a store in several parts of which one is silent, each look made by hand."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.clients.watching import Watch, Watches
from forge_jobs.errors import PartlyUnavailable, Unavailable
from forge_jobs.model.filters import JobFilter, Page
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.progress import JobState
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import JobStore, Storage
from tests.support.factories import DAY, QUEUE, done, enqueue_one, new_job, only, register, run_one

pytestmark = pytest.mark.anyio

OTHER = "other"


class Parts:
    """The jobs of a store, without those of queues that are silent.

    :ivar lists: calls of ``list``
    """

    def __init__(self, jobs: JobStore) -> None:
        self._jobs = jobs
        self.silent: set[str] = set()
        self.is_named_on_the_page = False
        self.lists = 0

    async def list(self, which: JobFilter, *, limit: int = 50) -> Page:
        self.lists += 1
        if self.silent.intersection(which.queues):
            if self.is_named_on_the_page:
                return Page((), None, None, tuple(self.silent))
            raise Unavailable("no answer")
        return await self._jobs.list(which, limit=limit)

    async def states(self, ids: Sequence[JobId]) -> dict[JobId, JobState]:
        states = dict(await self._jobs.states(ids))
        unknown = {each.id for each in states.values() if each.queue in self.silent}
        if unknown:
            heard = {each.id: each for each in states.values() if each.id not in unknown}
            raise PartlyUnavailable("no answer", heard, unknown)
        return states


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db") as opened:
        yield opened


@pytest.fixture
def parts(storage: Storage) -> Parts:
    return Parts(storage.jobs)


def taken(watch: Watch) -> list[JobStatus]:
    """The states that wait in a watch."""
    found = [state.status for state in watch._waiting.values()]
    watch._waiting.clear()
    return found


@pytest.mark.parametrize("is_named_on_the_page", [False, True])
async def test_a_silent_queue_is_left_out_and_the_others_are_seen(
    storage: Storage, parts: Parts, *, is_named_on_the_page: bool
) -> None:
    jobs: Any = parts
    watches = Watches(jobs, is_parted=True)
    lease = await register(storage, queues=(QUEUE, OTHER), lease_for=DAY)
    await enqueue_one(storage)
    await run_one(storage, lease, done())
    await storage.jobs.enqueue([new_job(), here := new_job(queue=OTHER)])
    queue, other, job = Watch(queue=QUEUE), Watch(queue=OTHER), Watch(job_id=here.id)
    every = [queue, other, job]
    parts.is_named_on_the_page = is_named_on_the_page

    async def look() -> list[list[JobStatus]]:
        await watches._look(every)
        return [taken(watch) for watch in every]

    # Silent from the first look on: what had ended before is no change when the queue is back.
    parts.silent.add(QUEUE)
    assert await look() == [[], [JobStatus.PENDING], [JobStatus.PENDING]]
    parts.silent.clear()
    assert await look() == [[JobStatus.PENDING], [], []]
    parts.silent.add(QUEUE)
    assert await run_one(storage, lease, done())
    await storage.jobs.cancel(only(here.id))
    assert await look() == [[], [JobStatus.CANCELLED], [JobStatus.CANCELLED]]
    parts.silent.clear()
    assert await look() == [[JobStatus.DONE], [], []]
    assert await look() == [[], [], []]


async def test_a_store_of_one_part_that_is_silent_is_asked_once(parts: Parts) -> None:
    jobs: Any = parts
    parts.silent |= {QUEUE, OTHER}
    watches = [Watch(queue=QUEUE), Watch(queue=OTHER)]
    await Watches(jobs)._look(watches)
    assert parts.lists == 1
    assert not any(watch.is_over for watch in watches)
