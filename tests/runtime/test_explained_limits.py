"""A job that waits for a full key names its holders."""

from datetime import timedelta

import pytest

from forge_jobs.clients.forecasts import explained
from forge_jobs.policy.explanations import Reason
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE, claim, done, enqueue_one, finish, get_job, register

pytestmark = pytest.mark.anyio

NAME = "tests.hosts"


async def test_a_job_of_a_full_key_is_told_who_holds_the_key(storage: Storage) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 4})
    lease = await register(storage, lease_for=timedelta(hours=1))
    for key in ("a", "a", "a", "a", "b"):
        await enqueue_one(storage, limit_name=NAME, limit_key=key)
    waits = await enqueue_one(storage, limit_name=NAME, limit_key="a")
    claims = await claim(storage, lease, limit=10)
    jobs = [await get_job(storage, each.claim.job_id) for each in claims]
    held = {str(job.id): job for job in jobs if job.limit_key == "a"}
    assert len(held) == 4

    told = await explained(storage, await get_job(storage, waits))
    assert told.reason is Reason.LIMITED
    assert {*told.blocked_by} == {*held}
    for each in told.blocked_by[:3]:
        assert f"{each} on pod {lease.host_id} since {held[each].claimed_at:%Y-%m-%d}" in told.text
    assert "and 1 more" in told.text
    assert told.blocked_by[3] not in told.text

    [ended] = [each for each in claims if each.claim.job_id == told.blocked_by[0]]
    await finish(storage, ended, done())
    after = await explained(storage, await get_job(storage, waits))
    assert ended.claim.job_id not in after.blocked_by
