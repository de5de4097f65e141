"""Restores and requeues beside a program that is just delivering the end to a child elsewhere."""

from typing import Literal

import anyio
import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.jobs import children, requeue
from tests.support.factories import done, enqueue_one, get_job, only, register, run_one
from tests.support.lines import tell

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


@pytest.mark.parametrize("verb", ["restore", "requeue"])
async def test_an_end_that_came_after_the_plan_has_no_effect_either(
    either: Storage, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    storage = either
    parent, child = await _family(storage, "continue" if verb == "requeue" else "cancel")
    looked, waits_again = anyio.Event(), anyio.Event()
    look, void_ends = children._standing, requeue._Plans.void_ends

    async def look_and_wait(*args: object) -> object:
        standing = await look(*args)  # type: ignore[arg-type]
        looked.set()
        await waits_again.wait()
        return standing

    async def void_and_end_anew(plans: requeue._Plans) -> None:
        await void_ends(plans)
        if not looked.is_set():
            monkeypatch.setattr(requeue._Plans, "void_ends", void_ends)
            await getattr(storage.jobs, verb)(only(parent))
            await storage.jobs.cancel(only(parent))
            news = await storage.jobs.handovers(10)
            monkeypatch.setattr(children, "_standing", look_and_wait)
            group.start_soon(storage.jobs.deliver, [delivery(each) for each in news])
            await looked.wait()

    monkeypatch.setattr(requeue._Plans, "void_ends", void_and_end_anew)
    async with anyio.create_task_group() as group:
        assert (await getattr(storage.jobs, verb)(only(parent))).changed == (parent,)
        waits_again.set()
    monkeypatch.setattr(children, "_standing", look)
    assert (await get_job(storage, child)).status is JobStatus.BLOCKED
    assert await run_one(storage, await register(storage), done()) == parent
    await tell(storage)
    assert (await get_job(storage, child)).status is JobStatus.PENDING


async def test_children_hear_of_the_end_of_a_job_whose_requeue_was_given_up(
    either: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = either
    parent, child = await _family(storage, "continue")
    void_ends = requeue._Plans.void_ends

    async def void_and_give_up(plans: requeue._Plans) -> None:
        await void_ends(plans)
        raise Unavailable("the caller died")

    with monkeypatch.context() as patched:
        patched.setattr(requeue._Plans, "void_ends", void_and_give_up)
        with pytest.raises(Unavailable):
            await storage.jobs.requeue(only(parent))
    assert (await get_job(storage, child)).status is JobStatus.BLOCKED
    await tell(storage)
    assert (await get_job(storage, child)).status is JobStatus.PENDING
