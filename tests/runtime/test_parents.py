"""A handler reads the jobs that its job was enqueued after."""

from dataclasses import dataclass

import pytest

from forge_jobs.errors import InvalidInput, JobDead, NotFound
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.storage.protocols import Storage
from tests.support.factories import only
from tests.support.runtimes import a_runtime, ended, job_when

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


@dataclass
class Count:
    words: int


def counting(encryption: Encryption | None = None) -> HandlerRegistry:
    """Handlers that count words, and one that adds the counts up."""
    handlers = HandlerRegistry(encryption=encryption)

    @handlers.job("count", max_attempts=1)
    async def count(text: str) -> Count:
        if not text:
            raise ValueError("no text")
        return Count(len(text.split()))

    @handlers.job("sum")
    async def add_up(ctx: JobContext) -> int:
        parents = await ctx.parents()
        return sum(each.result(Count).words for each in parents if each.error is None)

    @handlers.job("sum.sync")
    def add_up_in_a_thread(ctx: JobContext) -> int:
        return sum(each.result()["words"] for each in ctx.sync.parents())

    return handlers


@pytest.mark.parametrize("kind", ["sum", "sum.sync"])
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_a_job_goes_on_with_the_results_of_its_parents(
    storage: Storage, kind: str, is_encrypted: bool
) -> None:
    handlers = counting(Encryption([Encryption.new_key()]) if is_encrypted else None)
    count, add_up = handlers.get("count"), handlers.get(kind)
    assert count is not None
    assert add_up is not None
    async with a_runtime(storage, handlers, 3).start() as handle:
        texts = ["one", "two three", "four five six"]
        parents = [(await handle.enqueue(count.request(text))).job_id for text in texts]
        outcome = await handle.enqueue(add_up.request(), after=parents)
        assert await handle.result(outcome.job_id, timeout=50) == 6


async def test_a_parent_that_failed_says_so_and_a_removed_one_is_gone(storage: Storage) -> None:
    handlers = counting()
    seen: list[tuple[JobStatus | None, str, str | None]] = []

    @handlers.job("look")
    async def look(ctx: JobContext) -> None:
        done, dead, removed = await ctx.parents()
        for each in (done, dead, removed):
            error = None if each.error is None else each.error.message
            seen.append((each.status, each.kind, error))
        with pytest.raises(InvalidInput, match=r"type: does not fit the result of job .*\(count\)"):
            done.result(str)
        with pytest.raises(JobDead, match="no text"):
            dead.result()
        with pytest.raises(NotFound, match="removed"):
            removed.result()

    count = handlers.get("count")
    assert count is not None
    ids = sorted(new_job_id() for _ in range(3))
    async with a_runtime(storage, handlers, 2).start() as handle:
        for job_id, text in zip(ids, ["one", "", "gone"], strict=True):
            await handle.enqueue(count.request(text), id=job_id)
            await ended(storage, job_id)
        after = [After(each, "continue") for each in ids]
        outcome = await handle.enqueue(look.request(), after=after, delay=3600)
        await storage.jobs.delete(only(ids[2]))
        await job_when(storage, outcome.job_id, JobStatus.PENDING)
        await storage.jobs.run_now(only(outcome.job_id))
        await handle.result(outcome.job_id, timeout=50)
    assert seen == [
        (JobStatus.DONE, "count", None),
        (JobStatus.DEAD, "count", "no text"),
        (None, "", None),
    ]


async def test_a_parent_that_keeps_no_result_has_none_to_read(storage: Storage) -> None:
    handlers = counting()

    @handlers.job("look")
    async def look(ctx: JobContext) -> None:
        [parent] = await ctx.parents()
        assert parent.status is JobStatus.DONE
        with pytest.raises(NotFound, match=r"\(count\) keeps no result"):
            parent.result(Count)

    count = handlers.get("count")
    assert count is not None
    async with a_runtime(storage, handlers, 2).start() as handle:
        parent = await handle.enqueue(count.request("one"), keep_result=False)
        outcome = await handle.enqueue(look.request(), after=[parent.job_id])
        await handle.result(outcome.job_id, timeout=50)


async def test_a_job_after_none_has_no_parents(storage: Storage) -> None:
    handlers = counting()
    add_up = handlers.get("sum")
    assert add_up is not None
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(add_up.request())
        assert await handle.result(outcome.job_id, timeout=50) == 0
