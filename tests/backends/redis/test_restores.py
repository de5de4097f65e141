"""Restores and requeues beside a program that is just delivering the end to a child elsewhere."""

from typing import Literal

import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.jobs import children
from tests.support.factories import done, enqueue_one, get_job, only, register, run_one

pytestmark = pytest.mark.anyio

OnFailure = Literal["cancel", "continue", "hold"]


async def _family(storage: Storage, on_failure: OnFailure = "cancel") -> tuple[JobId, JobId]:
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, queue="other", after=(After(parent, on_failure),))
    await storage.jobs.cancel(only(parent))
    return parent, child


@pytest.mark.parametrize(
    ("verb", "on_failure"),
    [("restore", "cancel"), ("requeue", "cancel"), ("requeue", "continue"), ("requeue", "hold")],
)
async def test_an_end_that_is_being_delivered_has_no_effect_once_its_job_waits_again(
    either: Storage, monkeypatch: pytest.MonkeyPatch, verb: str, on_failure: OnFailure
) -> None:
    storage = either
    parent, child = await _family(storage, on_failure)
    looked = children._standing

    async def waits_again_after_the_look(*args: object) -> object:
        standing = await looked(*args)  # type: ignore[arg-type]
        assert len(standing) == 1
        assert (await getattr(storage.jobs, verb)(only(parent))).changed == (parent,)
        return standing

    news = await storage.jobs.handovers(10)
    with monkeypatch.context() as patched:
        patched.setattr(children, "_standing", waits_again_after_the_look)
        assert await storage.jobs.deliver([delivery(each) for each in news]) == 0
    assert (await get_job(storage, child)).status is JobStatus.BLOCKED
    assert await run_one(storage, await register(storage), done()) == parent
    news = await storage.jobs.handovers(10)
    assert await storage.jobs.deliver([delivery(each) for each in news]) == 1
    assert (await get_job(storage, child)).status is JobStatus.PENDING
