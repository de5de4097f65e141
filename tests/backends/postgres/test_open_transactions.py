"""Transactions of callers that stay open: who needs nothing of them goes on."""

from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Unavailable
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, JobStatus, Unique
from forge_jobs.model.queues import QueueSettings
from forge_jobs.model.transitions import Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.callers import by, drivers_own
from tests.support.factories import (
    KIND,
    QUEUE,
    claim_one,
    done,
    enqueue_one,
    get_job,
    new_job,
    register,
)
from tests.support.runtimes import a_runtime, ended, job_when, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage(storage: Storage) -> Storage:
    """A store that knows the default queue."""
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    return storage


@pytest.fixture
async def engine(url: str) -> AsyncGenerator[AsyncEngine]:
    """The application's own."""
    made = create_async_engine(by("asyncpg", url), poolclass=NullPool)
    yield made
    await made.dispose()


async def test_a_key_in_an_open_transaction_stalls_only_those_who_want_that_key(
    storage: Storage, url: str
) -> None:
    mine = new_job(unique=Unique("taken"))
    waited: list[str] = []

    async def want_the_same(client: JobClient) -> None:
        outcome = await client.enqueue(EnqueueRequest(KIND), unique_key="taken")
        assert outcome.deduplicated
        waited.append(outcome.job_id)

    async with JobClient(storage, repeat_for=60) as client, drivers_own(url) as (connection, end):
        await storage.jobs.enqueue([mine], connection=connection)
        async with anyio.create_task_group() as group:
            group.start_soon(want_the_same, client)
            with anyio.fail_after(20):
                for n in range(30):
                    await client.enqueue(EnqueueRequest(KIND), unique_key=f"free-{n}")
                    await client.enqueue(EnqueueRequest(KIND))
            assert waited == []
            await end(True)
    assert waited == [mine.id]
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 61


async def test_who_waits_for_a_key_for_too_long_is_told_so_and_stores_nothing(
    storage: Storage, url: str
) -> None:
    async with JobClient(storage, repeat_for=0.5) as client, drivers_own(url) as (connection, end):
        await storage.jobs.enqueue([new_job(unique=Unique("taken"))], connection=connection)
        with anyio.fail_after(20), pytest.raises(Unavailable, match="an open transaction"):
            await client.enqueue(EnqueueRequest(KIND), unique_key="taken")
        await end(False)
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 0


async def test_a_queue_that_an_open_transaction_begins_stalls_no_other_queue(
    storage: Storage, url: str
) -> None:
    lease = await register(storage)
    async with JobClient(storage, repeat_for=0.1) as client, drivers_own(url) as (connection, end):
        await storage.jobs.enqueue([new_job(queue="new")], connection=connection)
        with anyio.fail_after(20), pytest.raises(Unavailable):
            await client.enqueue(EnqueueRequest(KIND), queue="new")
        outcome = await client.enqueue(EnqueueRequest(KIND))
        assert (await claim_one(storage, lease)).claim.job_id == outcome.job_id
        await end(True)
        await client.enqueue(EnqueueRequest(KIND), queue="new")
    assert (await storage.jobs.counts(["new"]))["new"].by_status["pending"] == 2


@pytest.mark.daily("True")
@pytest.mark.parametrize("commits", [True, False])
async def test_a_job_whose_end_waits_for_a_commit_is_kept_beyond_the_lease(
    storage: Storage, engine: AsyncEngine, commits: bool
) -> None:
    handlers = HandlerRegistry()
    settings = quick_settings(lease=seconds(1), fence_margin=seconds(0.2))
    ended_in, go_on, go_on_after, others = (anyio.Event() for _ in range(4))
    attempts: list[int] = []

    @handlers.job("slow")
    async def slow(ctx: JobContext) -> None:
        attempts.append(ctx.attempt)
        async with engine.connect() as connection:
            await ctx.finish_in(connection, 7)
            ended_in.set()
            await go_on.wait()
            await (connection.commit() if commits else connection.rollback())
        await go_on_after.wait()

    @handlers.job("long")
    async def long(ctx: JobContext) -> int:
        attempts.append(ctx.attempt)
        await others.wait()
        return ctx.attempt

    @handlers.job("quick")
    async def quick() -> None:
        return

    async with (
        await storage.reopen() as elsewhere,
        a_runtime(storage, handlers, 8, settings=settings).start() as handle,
        # A second pod, whose reaper may take what is silent.
        a_runtime(elsewhere, HandlerRegistry(), 8, settings=settings).start(),
    ):
        one = await handle.enqueue(slow.request())
        two = await handle.enqueue(long.request())
        await ended_in.wait()

        async def is_silent() -> bool:
            beat_at = (await get_job(storage, one.job_id)).heartbeat_at
            assert beat_at is not None
            return await storage.cron.now() - beat_at > 3 * settings.lease

        async def beats() -> bool:
            return not await is_silent()

        await wait_until(is_silent, description="no beat of the locked job for three leases")
        with anyio.fail_after(20):
            third = await handle.enqueue(quick.request())
            assert (await ended(storage, third.job_id)).status is JobStatus.DONE
        others.set()
        assert (await ended(storage, two.job_id)).attempt == 1
        await elsewhere.jobs.cleanup(100)
        go_on.set()
        if not commits:
            await wait_until(beats, description="a beat of the job that is locked no more")
        go_on_after.set()
        first = await ended(storage, one.job_id)
        assert (first.status, first.attempt, first.crashes) == (JobStatus.DONE, 1, 0)
        assert first.result == ("7" if commits else "null")
        assert handle.health().lost_claims == 0
    assert attempts == [1, 1]


async def test_an_end_in_an_old_snapshot_is_refused_and_the_job_runs_on(
    storage: Storage, url: str
) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    async with drivers_own(url) as (connection, end):
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await connection.fetch("SELECT 1 FROM forge_jobs")
        claimed = await claim_one(storage, lease)
        with pytest.raises(Unavailable, match="gave way"):
            await storage.jobs.finalize(
                [Finalization(claimed.claim, done())], connection=connection
            )
        await end(True)
    assert (await get_job(storage, claimed.claim.job_id)).status is JobStatus.IN_PROGRESS
    assert await storage.jobs.finalize([Finalization(claimed.claim, done())]) == [True]


async def test_a_key_whose_job_ends_in_an_open_transaction_is_held_until_the_commit(
    storage: Storage, url: str
) -> None:
    lease = await register(storage)
    job_id = await enqueue_one(storage, unique=Unique("k"))
    claimed = await claim_one(storage, lease)
    async with drivers_own(url) as (connection, end):
        await storage.jobs.finalize([Finalization(claimed.claim, done())], connection=connection)
        with anyio.fail_after(20):
            [outcome] = await storage.jobs.enqueue([new_job(unique=Unique("k"))])
        assert (outcome.job_id, outcome.deduplicated) == (job_id, True)
        await end(True)
    await enqueue_one(storage, unique=Unique("k"))
    await job_when(storage, job_id, JobStatus.DONE)
    assert len((await storage.jobs.list(JobFilter(), cursor=None, limit=10)).jobs) == 2


@pytest.mark.long
async def test_a_queue_goes_on_beside_a_transaction_that_has_made_a_running_job_a_parent(
    storage: Storage, url: str
) -> None:
    handlers = HandlerRegistry()
    go_on = anyio.Event()
    ran: list[int] = []

    @handlers.job("parent")
    async def parent() -> str:
        await go_on.wait()
        return "kept"

    @handlers.job("quick")
    async def quick(n: int) -> None:
        ran.append(n)

    async with a_runtime(storage, handlers, 4).start() as handle:
        running = await handle.enqueue(parent.request())
        await job_when(storage, running.job_id, JobStatus.IN_PROGRESS)
        async with drivers_own(url) as (connection, end):
            child = new_job(kind="quick", payload='{"n": 136}', after=(After(running.job_id),))
            await storage.jobs.enqueue([child], connection=connection)
            go_on.set()
            others = [(await handle.enqueue(quick.request(n))).job_id for n in range(136)]
            for job_id in others:
                assert (await ended(storage, job_id)).status is JobStatus.DONE
            assert (await get_job(storage, running.job_id)).status is JobStatus.IN_PROGRESS
            await end(True)
        first = await ended(storage, running.job_id)
        assert (first.status, first.result, first.attempt) == (JobStatus.DONE, '"kept"', 1)
        assert (await ended(storage, child.id)).status is JobStatus.DONE
    assert sorted(ran) == list(range(137))
