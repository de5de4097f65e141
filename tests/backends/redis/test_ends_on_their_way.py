"""Ends that a program is just delivering to jobs of a sequence that wait again meanwhile."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.transitions import Handover
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.jobs import children, requeue
from tests.support.factories import get_job, only
from tests.support.lines import in_line, tell

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _on_their_way(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, news: list[Handover]
) -> AsyncIterator[None]:
    """Deliver ends that stood at the last look before the block, and reach the child behind it."""
    look, looked, go_on = children._standing, anyio.Event(), anyio.Event()

    async def look_and_wait(*args: object) -> object:
        monkeypatch.setattr(children, "_standing", look)
        standing = await look(*args)  # type: ignore[arg-type]
        assert len(standing) == len(news)
        looked.set()
        await go_on.wait()
        return standing

    monkeypatch.setattr(children, "_standing", look_and_wait)
    async with anyio.create_task_group() as group:
        group.start_soon(storage.jobs.deliver, [delivery(each) for each in news])
        await looked.wait()
        yield
        go_on.set()


async def _statuses(storage: Storage, *ids: JobId) -> list[JobStatus]:
    return [(await get_job(storage, each)).status for each in ids]


async def test_an_end_that_a_requeue_of_the_child_has_read_is_known_to_one_of_the_parent(
    either: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = either
    first, second, third = await in_line(storage, 3)
    await storage.jobs.cancel(only(second))
    await storage.jobs.cancel(only(first))
    news = [each for each in await storage.jobs.handovers(10) if each.child_id == second]
    assert news
    void_ends = requeue._Plans.void_ends

    async def let_the_parent_come_first(plans: requeue._Plans) -> None:
        monkeypatch.setattr(requeue._Plans, "void_ends", void_ends)
        await void_ends(plans)
        assert (await storage.jobs.requeue(only(first))).changed == (first,)
        await delivered.aclose()

    delivered = AsyncExitStack()
    await delivered.enter_async_context(_on_their_way(storage, monkeypatch, news))
    monkeypatch.setattr(requeue._Plans, "void_ends", let_the_parent_come_first)
    assert (await storage.jobs.requeue(only(second))).changed == (second,)
    await tell(storage)
    assert await _statuses(storage, first, second, third) == [
        JobStatus.PENDING,
        JobStatus.BLOCKED,
        JobStatus.BLOCKED,
    ]


async def test_an_end_of_before_has_no_effect_on_a_job_that_waits_again_by_its_sequence(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, moved, between = await in_line(storage, 3)
    await storage.jobs.cancel(only(moved))
    await tell(storage)
    await storage.jobs.requeue(only(moved))  # comes last, and waits for the first one no longer
    await storage.jobs.cancel(only(first))
    await storage.jobs.cancel(only(between))
    news = await storage.jobs.handovers(10)
    of_first = [each for each in news if (each.parent_id, each.child_id) == (first, moved)]
    assert of_first

    async with _on_their_way(storage, monkeypatch, of_first):
        assert (await storage.jobs.requeue(only(first))).changed == (first,)
        await tell(
            storage
        )  # Of the end of the one between. From now on the first one counts again.
    await tell(storage)
    statuses = await _statuses(storage, first, moved)
    assert statuses == [JobStatus.PENDING, JobStatus.BLOCKED]
