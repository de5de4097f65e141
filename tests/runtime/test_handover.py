"""Handovers of ended parents reach children, and their children, in one pass."""

from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import pytest

from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.transitions import Delivery, Handover
from forge_jobs.runtime.passes import cleanup
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import JobStore, Storage
from tests.support.factories import (
    dead,
    done,
    enqueue_one,
    get_job,
    register,
    run_one,
)

pytestmark = pytest.mark.anyio


async def test_a_child_is_due_once_all_its_parents_are_done(manual_storage: Storage) -> None:
    lease = await register(manual_storage)
    parents = [await enqueue_one(manual_storage) for _ in range(2)]
    child = await enqueue_one(manual_storage, after=tuple(After(each) for each in parents))

    await run_one(manual_storage, lease, done())
    assert await hand_over_once(manual_storage.jobs) == 1
    assert (await get_job(manual_storage, child)).status is JobStatus.BLOCKED

    await run_one(manual_storage, lease, done())
    assert await hand_over_once(manual_storage.jobs) == 1
    assert (await get_job(manual_storage, child)).status is JobStatus.PENDING


async def test_a_dead_parent_cancels_ten_generations_in_one_pass(manual_storage: Storage) -> None:
    lease = await register(manual_storage)
    chain = [await enqueue_one(manual_storage)]
    for _ in range(10):
        chain.append(await enqueue_one(manual_storage, after=(After(chain[-1]),)))
    await run_one(manual_storage, lease, dead())

    assert await hand_over_once(manual_storage.jobs) == 10

    for job_id in chain[1:]:
        job = await get_job(manual_storage, job_id)
        assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.PARENT_FAILED)


async def test_ten_generations_of_ten_queues_are_settled_in_one_pass(
    manual_storage: Storage,
) -> None:
    lease = await register(manual_storage)
    chain = [await enqueue_one(manual_storage)]
    for number in range(10):
        # Queues that sort against the order of the generations.
        queue, edge = f"q{9 - number}", After(chain[-1])
        chain.append(await enqueue_one(manual_storage, queue=queue, after=(edge,)))
    on_hold = await enqueue_one(manual_storage, queue="q5", after=(After(chain[4], "hold"),))
    await run_one(manual_storage, lease, dead())

    assert await hand_over_once(manual_storage.jobs) == 11

    for job_id in chain[1:]:
        job = await get_job(manual_storage, job_id)
        assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.PARENT_FAILED)
    assert (await get_job(manual_storage, on_hold)).status is JobStatus.BLOCKED
    assert await manual_storage.jobs.handovers(10) == []


async def test_more_children_than_a_batch_are_all_told(
    manual_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "HANDOVER_BATCH", 3)
    lease = await register(manual_storage)
    parent = await enqueue_one(manual_storage)
    children = [await enqueue_one(manual_storage, after=(After(parent),)) for _ in range(10)]
    await run_one(manual_storage, lease, done())

    assert await hand_over_once(manual_storage.jobs) == 10
    for child in children:
        assert (await get_job(manual_storage, child)).status is JobStatus.PENDING


async def test_a_pass_ends_with_its_budget_and_the_next_one_goes_on(
    manual_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "HANDOVER_BATCH", 3)
    lease = await register(manual_storage)
    parent = await enqueue_one(manual_storage)
    for _ in range(4):
        await enqueue_one(manual_storage, after=(After(parent),))
    await run_one(manual_storage, lease, done())
    assert await hand_over_once(manual_storage.jobs, budget=timedelta(0)) == 3
    assert await hand_over_once(manual_storage.jobs, budget=timedelta(0)) == 1


async def test_nothing_to_tell_is_nothing_done(manual_storage: Storage) -> None:
    assert await hand_over_once(manual_storage.jobs) == 0


async def test_news_that_the_store_keeps_listing_do_not_hold_the_pass_for_ever() -> None:
    class Stuck:
        calls = 0

        async def handovers(self, limit: int) -> list[Handover]:
            return [
                Handover(
                    id="1",
                    queue="default",
                    child_id=new_job_id(),
                    parent_id=new_job_id(),
                    parent_status=JobStatus.DONE,
                    on_failure="cancel",
                )
            ]

        async def deliver(self, deliveries: Sequence[Delivery]) -> int:
            self.calls += 1
            return 0

    stuck = Stuck()
    assert await hand_over_once(cast("JobStore", stuck)) == 0
    assert stuck.calls == 1
