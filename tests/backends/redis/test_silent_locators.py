"""A cluster of which one server is silent: jobs of the others whose locators lie there."""

import pytest

from forge_jobs.errors import PartlyUnavailable, Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import JobStatus, NewJob
from forge_jobs.storage.redis.locators import asking
from tests.support.factories import new_job
from tests.support.shards import FAULTS, NAMES, Shards

pytestmark = [pytest.mark.anyio, pytest.mark.long]


def located_there(shards: Shards, queue: str) -> NewJob:
    """A job whose locator the failing server holds."""
    while not shards.is_located_there((job := new_job(queue=queue)).id):
        pass
    return job


def nowhere(shards: Shards) -> JobId:
    """The id of no job, whose locator would lie there."""
    while not shards.is_located_there(job_id := new_job_id()):
        pass
    return job_id


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_job_of_a_queue_that_answers_is_found_without_its_locator(
    shards: Shards, fault: str
) -> None:
    storage, healthy, lost = shards.storage, shards.healthy[0], shards.lost[0]
    jobs = storage.jobs
    await jobs.enqueue([new_job(queue=name) for name in NAMES])
    here, there = located_there(shards, healthy), located_there(shards, lost)
    await jobs.enqueue([here, there])
    missing = nowhere(shards)
    with shards.down(fault):
        assert (await jobs.get([here.id]))[here.id].queue == healthy
        assert (await jobs.states([here.id]))[here.id].queue == healthy
        assert (await jobs.job_log(here.id)).lines == ()
        assert await jobs.checkpoint(here.id) is None
        assert [line.id for line in (await jobs.list(JobFilter(ids=(here.id,)))).jobs] == [here.id]
        for read in (jobs.get, jobs.states):
            with pytest.raises(PartlyUnavailable) as partly:
                await read([here.id, there.id, missing])
            assert partly.value.found.keys() == {here.id}
            assert set(partly.value.unknown) == {there.id, missing}
        for job_id in (there.id, missing):
            with pytest.raises(Unavailable):
                await jobs.cancel(JobFilter(ids=(job_id,)))
        assert (await jobs.cancel(JobFilter(ids=(here.id,)))).changed == (here.id,)
    assert (await jobs.get([here.id]))[here.id].status is JobStatus.CANCELLED
    assert (await jobs.get([there.id]))[there.id].status is JobStatus.PENDING
    assert await jobs.get([missing]) == {}


async def test_a_job_that_was_found_is_looked_for_in_that_queue_first(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, healthy = shards.storage.jobs, shards.healthy[0]
    await jobs.enqueue([new_job(queue=name) for name in NAMES])
    here = located_there(shards, healthy)
    asked: list[set[str]] = []
    look = asking._look

    async def noted(db: object, queues: dict[str, list[JobId]]) -> dict[JobId, str]:
        asked.append(set(queues))
        return await look(db, queues)  # type: ignore[arg-type]

    monkeypatch.setattr(asking, "_look", noted)
    await jobs.enqueue([here])
    assert await jobs.states([here.id])
    assert asked == []
    with shards.down("killed"):
        assert await jobs.states([here.id])
        assert asked == [set(), set(NAMES)]
        asked.clear()
        assert await jobs.states([here.id])
        assert asked == [{healthy}]
        # Removed meanwhile: nothing is concluded from what was known.
        await jobs.cancel(JobFilter(queues=(healthy,)))
        deleted = await jobs.delete(JobFilter(queues=(healthy,)))
        assert here.id in deleted.changed
        with pytest.raises(PartlyUnavailable):
            await jobs.states([here.id])
    assert await jobs.states([here.id]) == {}
