"""An edit on Redis reads and then writes: what becomes of a change in between."""

import pytest

from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.jobs.store import RedisJobStore
from tests.support.factories import QUEUE, enqueue_one, get_job

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "seen", [["payload", '{"of":"before"}'], ["expires", "1"], ["priority", False]]
)
async def test_the_step_that_writes_refuses_a_job_that_is_not_as_it_was_read(
    storage: Storage, seen: list[object]
) -> None:
    job_id = await enqueue_one(storage)
    before = await get_job(storage, job_id)
    assert isinstance(storage.jobs, RedisJobStore)
    db = storage.jobs._database
    request = request_of(
        "edit",
        id=job_id,
        expected=[["status", "pending"], seen],
        written=["priority", "5"],
        dropped=[],
        detail="priority",
        is_anew=False,
    )
    assert not await db.run_one("edit", db.keys.queue(QUEUE), request, bool)
    assert await get_job(storage, job_id) == before
    assert await storage.jobs.events(job_id=job_id) == []
