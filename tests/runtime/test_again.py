"""Handlers that return ``Again``: one job, many occurrences."""

import asyncio
from datetime import timedelta

import pytest

from forge_jobs.errors import JobCancelled, JobDead
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Again, Failed
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.privacy.encryption import Encryption, is_encrypted
from forge_jobs.storage.protocols import Storage
from tests.support.factories import counters
from tests.support.points import FailingPoint, armed
from tests.support.runtimes import a_runtime, ended, job_because, job_when
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio
LONG = timedelta(hours=1)


async def test_a_chain_is_one_job_whose_result_is_that_of_the_last(storage: Storage) -> None:
    handlers = HandlerRegistry()
    seen: list[tuple[str, int, int, int]] = []

    @handlers.job("pages")
    async def pages(ctx: JobContext, page: int = 1, found: int = 0) -> object:
        seen.append((ctx.job_id, ctx.occurrence, ctx.attempt, page))
        if page < 4:
            return Again(payload={"page": page + 1, "found": found + page})
        return found

    @handlers.job("report")
    async def report(ctx: JobContext) -> int:
        [parent] = await ctx.parents()
        return parent.result(int)

    async with a_runtime(storage, handlers, workers=2).start() as handle:
        chain = await handle.enqueue(pages.request())
        child = await handle.enqueue(report.request(), after=[After(chain.job_id)])
        assert await handle.result(chain.job_id, timeout=50) == 6
        assert await handle.result(child.job_id, timeout=50) == 6
    assert seen == [(chain.job_id, number, 1, number) for number in range(1, 5)]
    assert (await counters(storage))["succeeded"] == 5


@pytest.mark.any_store
@pytest.mark.parametrize("way", ["return", "raise"])
@pytest.mark.parametrize("is_async", [True, False])
async def test_returned_or_raised_from_the_loop_or_a_thread(
    storage: Storage, way: str, is_async: bool
) -> None:
    handlers = HandlerRegistry()

    def next_one(number: int) -> object:
        if number == 3:
            return "end"
        if way == "raise":
            raise Again(payload={"number": number + 1})
        return Again(payload={"number": number + 1})

    async def on_the_loop(number: int) -> object:
        return next_one(number)

    function = on_the_loop if is_async else next_one
    handler = handlers.register(function, "count")
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(handler.request(0))
        assert await handle.result(outcome.job_id, timeout=50) == "end"


@pytest.mark.any_store
async def test_each_occurrence_has_all_attempts_and_the_errors_stay(storage: Storage) -> None:
    handlers = HandlerRegistry()
    runs: list[tuple[int, int]] = []

    @handlers.job("flaky", max_attempts=2)
    async def flaky(ctx: JobContext) -> object:
        runs.append((ctx.occurrence, ctx.attempt))
        if ctx.attempt == 1:
            raise Failed(f"in {ctx.occurrence}", retry_in=0)
        return Again() if ctx.occurrence < 3 else None

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(flaky.request())
        job = await ended(storage, outcome.job_id)
    assert runs == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]
    assert job.status is JobStatus.DONE
    assert [each.message for each in job.errors] == ["in 1", "in 2", "in 3"]


@pytest.mark.any_store
async def test_arguments_that_do_not_fit_are_a_final_failure_that_names_the_field(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    runs: list[int] = []

    @handlers.job("pages", max_attempts=5)
    async def pages(page: int) -> object:
        runs.append(page)
        return Again(payload={"page": "two"})

    @handlers.job("odd", max_attempts=5)
    async def odd() -> object:
        runs.append(0)
        return Again(payload={"pag": 2})

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(pages.request(1))
        with pytest.raises(JobDead, match=r"pages\.page"):
            await handle.result(outcome.job_id, timeout=50)
        job = await ended(storage, outcome.job_id)
        assert (job.attempt, [each.type for each in job.errors]) == (1, ["InvalidInput"])
        outcome = await handle.enqueue(odd.request())
        with pytest.raises(JobDead, match="pag"):
            await handle.result(outcome.job_id, timeout=50)
    assert runs == [1, 0]


@pytest.mark.any_store
async def test_a_checkpoint_is_of_one_occurrence(storage: Storage) -> None:
    handlers = HandlerRegistry()
    found: list[object] = []

    @handlers.job("pages")
    async def pages(ctx: JobContext) -> object:
        found.append(await ctx.load_checkpoint())
        await ctx.checkpoint(ctx.occurrence)
        if ctx.attempt == 1:
            raise Failed("once more", retry_in=0)
        return Again() if ctx.occurrence < 2 else None

    async with a_runtime(storage, handlers).start() as handle:
        await ended(storage, (await handle.enqueue(pages.request())).job_id)
    assert found == [None, 1, None, 2]


@pytest.mark.any_store
async def test_a_new_payload_is_encrypted_and_an_old_one_gets_the_newest_key(
    storage: Storage,
) -> None:
    old, new = Encryption.new_key(), Encryption.new_key()
    before = HandlerRegistry(encryption=Encryption([old]))
    handlers = HandlerRegistry(encryption=Encryption([new, old]))
    cards: list[str] = []

    async def pay(ctx: JobContext, card: str) -> object:
        cards.append(card)
        if ctx.occurrence == 1:
            return Again(payload={"card": "4222"})
        return Again(LONG) if ctx.occurrence == 2 else None

    request = before.register(pay, "pay").request("4111")
    handlers.register(pay, "pay")
    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(request)
        job = await job_because(storage, outcome.job_id, Cause.SUCCEEDED)
        await wait_until(lambda: len(cards) == 2, description="the second occurrence runs")
        job = await job_when(storage, outcome.job_id, JobStatus.PENDING)
        assert is_encrypted(job.payload)
        assert Encryption([new]).key_name in job.payload
        await handle.cancel(outcome.job_id)
    assert cards == ["4111", "4222"]


class TestStops:
    pytestmark = pytest.mark.any_store

    async def test_a_cancel_ends_the_chain_though_the_handler_asks_for_more(
        self, storage: Storage
    ) -> None:
        handlers = HandlerRegistry()
        started = asyncio.Event()

        @handlers.job("stubborn")
        async def stubborn() -> object:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return Again()
            return None

        async with a_runtime(storage, handlers).start() as handle:
            outcome = await handle.enqueue(stubborn.request())
            await started.wait()
            await handle.cancel(outcome.job_id)
            with pytest.raises(JobCancelled):
                await handle.result(outcome.job_id, timeout=50)
        job = await ended(storage, outcome.job_id)
        assert (job.status, job.errors) == (JobStatus.CANCELLED, ())

    async def test_at_a_shutdown_the_handlers_word_counts(self, storage: Storage) -> None:
        handlers = HandlerRegistry()
        started = asyncio.Event()

        @handlers.job("polite")
        async def polite(done: int = 0) -> object:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return Again(LONG, payload={"done": done + 5})
            return None

        async with a_runtime(storage, handlers).start() as handle:
            outcome = await handle.enqueue(polite.request())
            await started.wait()
            await handle.stop(timeout=0)
        job = await job_because(storage, outcome.job_id, Cause.SUCCEEDED)
        assert (job.status, job.payload) == (JobStatus.PENDING, '{"done":5}')

    async def test_past_the_timeout_too_with_a_record_of_the_overrun(
        self, storage: Storage
    ) -> None:
        handlers = HandlerRegistry()

        @handlers.job("slow", timeout=0.05)
        async def slow() -> object:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return Again(LONG)
            return None

        async with a_runtime(storage, handlers).start() as handle:
            outcome = await handle.enqueue(slow.request())
            job = await job_because(storage, outcome.job_id, Cause.SUCCEEDED)
        assert job.status is JobStatus.PENDING
        assert len(job.errors) == 1


@pytest.mark.parametrize("point", ["claim:committed", "finalize:committed"])
async def test_a_lost_reply_begins_no_occurrence_twice(storage: Storage, point: str) -> None:
    handlers = HandlerRegistry()
    runs: list[int] = []

    @handlers.job("count")
    async def count(ctx: JobContext, number: int) -> object:
        runs.append(number)
        assert ctx.attempt == 1
        return Again(payload={"number": number + 1}) if number < 20 else "end"

    lost = FailingPoint(times=3)
    with armed(point, lost):
        async with a_runtime(storage, handlers, workers=2).start() as handle:
            outcome = await handle.enqueue(count.request(1))
            assert await handle.result(outcome.job_id, timeout=50) == "end"
    assert lost.raised == 3
    assert runs == list(range(1, 21))


@pytest.mark.any_store
async def test_the_hook_of_the_end_is_called_for_the_last_occurrence(storage: Storage) -> None:
    handlers = HandlerRegistry()
    heard: list[int] = []

    def on_done(ctx: JobContext) -> None:
        heard.append(ctx.occurrence)

    @handlers.job("count", on_done=on_done)
    async def count(ctx: JobContext) -> object:
        return Again() if ctx.occurrence < 3 else None

    async with a_runtime(storage, handlers).start() as handle:
        await ended(storage, (await handle.enqueue(count.request())).job_id)
    assert heard == [3]


@pytest.mark.any_store
async def test_an_alias_stays_the_kind(storage: Storage) -> None:
    handlers = HandlerRegistry()
    kinds: list[str] = []

    @handlers.job("new.name", aliases=["old.name"])
    async def named(ctx: JobContext) -> object:
        kinds.append(ctx.kind)
        return Again() if len(kinds) < 3 else None

    async with a_runtime(storage, handlers).start() as handle:
        outcome = await handle.enqueue(EnqueueRequest("old.name", queue="default"))
        await ended(storage, outcome.job_id)
    assert kinds == ["old.name"] * 3
