"""Waiting for results: what is returned, what is raised, and when."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Unpack

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import ManualClock
from forge_jobs.errors import (
    InvalidInput,
    JobCancelled,
    JobDead,
    NotFound,
    ResultTimeout,
    StorageError,
    Unavailable,
)
from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, pass_on
from tests.support.factories import KIND, dead, done, error, failed, run_one
from tests.support.faulty import Faults, faulty
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=sorted(BACKENDS))
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Storage]:
    async with BACKENDS[request.param](tmp_path, clock) as opened:
        yield opened
    await pass_on(request.param, tmp_path)


async def enqueue(client: JobClient, **options: Unpack[EnqueueOptions]) -> JobId:
    return (await client.enqueue(EnqueueRequest(KIND), **options)).job_id


class TestResults:
    async def test_a_finished_job_gives_what_its_handler_returned(
        self, client: JobClient, storage: Storage, lease: PodLease
    ) -> None:
        job_id = await enqueue(client)
        await run_one(storage, lease, done('{"a":[1,2.5,null]}'))

        assert await client.result(job_id, timeout=0) == {"a": [1, 2.5, None]}

    async def test_none_is_a_result(
        self, client: JobClient, storage: Storage, lease: PodLease
    ) -> None:
        job_id = await enqueue(client)
        await run_one(storage, lease, done("null"))

        assert await client.result(job_id.lower(), timeout=0) is None

    async def test_a_job_that_keeps_no_result_gives_none(
        self, client: JobClient, storage: Storage, lease: PodLease
    ) -> None:
        job_id = await enqueue(client, keep_result=False)
        await run_one(storage, lease, done())

        assert await client.result(job_id, timeout=0) is None

    async def test_a_waiting_caller_gets_the_result_when_the_job_ends(
        self, client: JobClient, storage: Storage, lease: PodLease
    ) -> None:
        job_id = await enqueue(client)
        waiting = asyncio.ensure_future(client.result(job_id, timeout=50))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        await run_one(storage, lease, done("7"))

        assert await waiting == 7

    async def test_a_retry_to_come_is_waited_for(
        self, client: JobClient, storage: Storage, lease: PodLease
    ) -> None:
        job_id = await enqueue(client)
        await run_one(storage, lease, failed())
        waiting = asyncio.ensure_future(client.result(job_id, timeout=50))
        await asyncio.wait([waiting], timeout=0.05)
        assert not waiting.done()
        await run_one(storage, lease, done("1"))

        assert await waiting == 1


class TestFailures:
    async def test_a_dead_job_raises_with_its_error_and_remote_traceback(
        self, client: JobClient, storage: Storage, lease: PodLease
    ) -> None:
        job_id = await enqueue(client)
        trace = "Traceback: line 7 of the handler"
        await run_one(storage, lease, dead(error=error("no luck", traceback=trace)))

        with pytest.raises(JobDead) as caught:
            await client.result(job_id, timeout=0)

        assert caught.value.job_id == job_id
        assert "ValueError: no luck" in str(caught.value)
        assert caught.value.remote_traceback == trace
        assert trace in str(caught.value)

    async def test_a_cancelled_job_raises(self, client: JobClient) -> None:
        job_id = await enqueue(client)
        await client.cancel(job_id)

        with pytest.raises(JobCancelled, match="was cancelled"):
            await client.result(job_id, timeout=50)

    async def test_an_expired_job_says_that_it_expired(
        self, client: JobClient, storage: Storage, clock: ManualClock
    ) -> None:
        job_id = await enqueue(client, expires_at=clock.now() + timedelta(seconds=5))
        clock.advance(5)
        await storage.jobs.expire(10)

        with pytest.raises(JobCancelled, match="expired"):
            await client.result(job_id, timeout=50)

    async def test_a_missing_job_is_known_at_once(self, client: JobClient) -> None:
        with pytest.raises(NotFound, match="no job"):
            await client.result(new_job_id(), timeout=3600)

    async def test_a_job_that_is_deleted_meanwhile_ends_the_wait(self, client: JobClient) -> None:
        job_id = await enqueue(client)
        waiting = asyncio.ensure_future(client.result(job_id, timeout=3600))
        await asyncio.wait([waiting], timeout=0.03)
        await client.delete(job_id)

        with pytest.raises(NotFound, match="removed"):
            await waiting

    async def test_a_result_that_outlived_its_time_is_a_clear_error(
        self, client: JobClient, storage: Storage, lease: PodLease, clock: ManualClock
    ) -> None:
        job_id = await enqueue(client, result_ttl=60)
        await run_one(storage, lease, done("7"))
        assert await client.result(job_id, timeout=0) == 7
        clock.advance(120)
        await storage.jobs.cleanup(100)

        with pytest.raises(NotFound, match="no longer kept"):
            await client.result(job_id, timeout=3600)

    async def test_a_result_that_could_not_be_stored_says_so(
        self, client: JobClient, storage: Storage, lease: PodLease
    ) -> None:
        job_id = await enqueue(client)
        unencodable = error("result: cannot be written as JSON", cause=Cause.SUCCEEDED)
        await run_one(storage, lease, done(error=unencodable))

        with pytest.raises(NotFound, match="succeeded, but its result is not stored"):
            await client.result(job_id, timeout=0)

    async def test_time_that_runs_out_says_in_which_state_the_job_was_left(
        self, client: JobClient
    ) -> None:
        job_id = await enqueue(client)

        with pytest.raises(ResultTimeout, match="pending"):
            await client.result(job_id, timeout=0.03)

    async def test_the_time_is_up_at_the_very_moment_it_was_given(
        self, storage: Storage, clock: ManualClock
    ) -> None:
        async with JobClient(storage, clock=clock) as client:
            job_id = await enqueue(client)
            waiting = asyncio.ensure_future(client.result(job_id, timeout=10))
            await asyncio.wait([waiting], timeout=0.03)
            clock.advance(9.999)
            await asyncio.wait([waiting], timeout=0.1)
            assert not waiting.done()
            clock.advance(0.001)

            with pytest.raises(ResultTimeout, match="after 10 seconds"):
                await waiting

    @pytest.mark.parametrize("timeout", [-1, "5", float("nan")])
    async def test_a_timeout_must_be_a_duration(self, client: JobClient, timeout: float) -> None:
        with pytest.raises(InvalidInput, match="timeout"):
            await client.result(new_job_id(), timeout=timeout)

    async def test_closing_the_client_ends_the_wait(self, storage: Storage) -> None:
        client = JobClient(storage)
        job_id = await enqueue(client)
        waiting = asyncio.ensure_future(client.result(job_id, timeout=3600))
        await asyncio.wait([waiting], timeout=0.03)
        await client.aclose()

        with pytest.raises(StorageError, match="closed"):
            await waiting

    async def test_closing_the_client_during_a_look_ends_the_wait_too(
        self, storage: Storage
    ) -> None:
        faults = Faults()
        client = JobClient(faulty(storage, faults))
        job_id = await enqueue(client)
        faults.hold_replies("get")
        waiting = asyncio.ensure_future(client.result(job_id, timeout=3600))
        await wait_until(lambda: faults.waiting["get"], description="a look is under way")
        await client.aclose()
        try:
            with pytest.raises(StorageError, match="client is closed"):
                await waiting
        finally:
            faults.let_go("get")


class TestManyWaiters:
    async def test_they_share_their_looks(self, storage: Storage, lease: PodLease) -> None:
        faults = Faults()
        async with JobClient(faulty(storage, faults)) as client:
            ids = [await enqueue(client) for _ in range(60)]
            waiting = [asyncio.ensure_future(client.result(each, timeout=50)) for each in ids * 5]
            await wait_until(lambda: faults.calls["list"] > 4, description="some looks")
            looks = faults.calls["list"] + faults.calls["get"]
            # As many as a lone caller needs for this time, and not three hundred times that.
            assert looks < 40
            for _ in ids:
                await run_one(storage, lease, done("7"))
            assert await asyncio.gather(*waiting) == [7] * 300

    async def test_each_has_its_own_end(
        self, client: JobClient, storage: Storage, lease: PodLease
    ) -> None:
        alive = [await enqueue(client, delay=3600) for _ in range(15)]
        ended = await enqueue(client)
        await run_one(storage, lease, done("1"))
        gone = await enqueue(client, delay=3600)
        missing = new_job_id()
        waits = [client.result(each, timeout=0.1) for each in alive]
        others = [client.result(each, timeout=50) for each in (ended, missing, gone)]
        waiting = asyncio.gather(*waits, *others, return_exceptions=True)
        await client.delete(gone)
        *late, result, unknown, removed = await waiting
        assert all(isinstance(each, ResultTimeout) for each in late)
        assert result == 1
        assert isinstance(unknown, NotFound)
        assert isinstance(removed, NotFound)

    async def test_one_that_stops_waiting_disturbs_nobody(
        self, client: JobClient, storage: Storage, lease: PodLease
    ) -> None:
        job_id = await enqueue(client)
        first, second = (asyncio.ensure_future(client.result(job_id, timeout=50)) for _ in range(2))
        await asyncio.wait([first], timeout=0.03)
        first.cancel()
        await run_one(storage, lease, done("2"))
        assert await second == 2

    async def test_an_outage_is_waited_out(self, storage: Storage, lease: PodLease) -> None:
        faults = Faults()
        async with JobClient(faulty(storage, faults)) as client:
            job_id = await enqueue(client)
            waiting = asyncio.ensure_future(client.result(job_id, timeout=50))
            faults.down = True
            looks = faults.calls["get"]
            await wait_until(lambda: faults.calls["get"] > looks + 1, description="failed looks")
            faults.down = False
            await run_one(storage, lease, done("3"))
            assert await waiting == 3

    async def test_an_outage_that_lasts_reaches_the_callers(self, storage: Storage) -> None:
        faults = Faults()
        async with JobClient(faulty(storage, faults), repeat_for=0.05) as client:
            job_id = await enqueue(client)
            faults.down = True
            waits = [client.result(job_id, timeout=50) for _ in range(2)]
            for error in await asyncio.gather(*waits, return_exceptions=True):
                assert isinstance(error, Unavailable)


async def test_a_job_that_waits_can_be_explained(client: JobClient, storage: Storage) -> None:
    job_id = await enqueue(client, delay=3600)

    explanation = await client.explain(job_id)

    assert explanation.text
    with pytest.raises(NotFound):
        await client.explain(new_job_id())


async def test_a_job_behind_parents_is_explained_by_them(client: JobClient) -> None:
    parent = await enqueue(client)
    child = await enqueue(client, after=[parent])

    assert parent in (await client.explain(child)).blocked_by
    job = await client.get(child)
    assert job is not None
    assert job.status is JobStatus.BLOCKED
