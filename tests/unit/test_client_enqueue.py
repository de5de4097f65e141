"""Enqueueing through a client: batches, repeats, atomicity, options."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import Conflict, InvalidInput, NotFound, StorageError, Unavailable
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.jobs import EnqueueOutcome, NewJob, Unique
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

handlers = HandlerRegistry()


@handlers.job("sum", queue="sums", priority=3, tags=("t",))
async def add(numbers: list[int]) -> int:
    return sum(numbers)


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with await open_storage("sqlite:///:memory:") as opened:
        yield opened


class SpiedJobs:
    """The jobs of a store, with a record of the enqueue calls and faults put in their way."""

    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs
        self.calls: list[Sequence[NewJob]] = []
        self.enqueue_at_once = int(jobs.enqueue_at_once)
        self.lost_replies = 0
        self.outages = 0
        self.gate = asyncio.Event()
        self.gate.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jobs, name)

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        self.calls.append(requests)
        await self.gate.wait()
        if self.outages:
            self.outages -= 1
            raise Unavailable("away")
        outcomes: list[EnqueueOutcome] = await self._jobs.enqueue(requests, connection=connection)
        if self.lost_replies:
            self.lost_replies -= 1
            raise Unavailable("the reply was lost")
        return outcomes


@pytest.fixture
async def jobs(storage: Storage) -> SpiedJobs:
    spied = SpiedJobs(storage.jobs)
    storage.jobs = spied
    return spied


@pytest.fixture
async def client(storage: Storage, jobs: SpiedJobs) -> AsyncIterator[JobClient]:
    async with JobClient(storage, handlers) as opened:
        yield opened


async def stored(storage: Storage) -> int:
    return sum(sum(counts.by_status.values()) for counts in (await storage.jobs.counts()).values())


class TestOne:
    async def test_an_enqueued_job_is_stored_with_defaults_and_options(
        self, client: JobClient
    ) -> None:
        outcome = await client.enqueue(add.request([1, 2]), priority=1, metadata={"who": "me"})

        job = await client.get(outcome.job_id)
        assert job is not None
        assert (job.kind, job.queue, job.priority, job.tags) == ("sum", "sums", 1, ("t",))
        assert (job.payload, job.metadata) == ('{"numbers":[1,2]}', {"who": "me"})
        assert not outcome.deduplicated

    async def test_what_is_wrong_is_refused_before_the_store_is_asked(
        self, client: JobClient, jobs: SpiedJobs
    ) -> None:
        with pytest.raises(InvalidInput, match=r"add\.numbers"):
            await client.enqueue(EnqueueRequest("sum", {"numbers": "1"}))
        with pytest.raises(InvalidInput, match="priority"):
            await client.enqueue(add.request([1]), priority=1000)
        with pytest.raises(InvalidInput, match="did you mean delay"):
            await client.enqueue(add.request([1]), dela=1)  # type: ignore[call-arg]

        assert jobs.calls == []

    async def test_a_duplicate_names_the_holder(self, client: JobClient) -> None:
        first = await client.enqueue(add.request([1]), unique_key="k")

        second = await client.enqueue(add.request([2]), unique_key="k")

        assert second == EnqueueOutcome(first.job_id, deduplicated=True)

    async def test_a_held_key_in_mode_error_is_a_conflict(self, client: JobClient) -> None:
        await client.enqueue(add.request([1]), unique_key="k")

        with pytest.raises(Conflict, match="k"):
            await client.enqueue(add.request([1]), unique=Unique("k", "error"))

    async def test_the_same_id_and_content_is_one_job_and_other_content_a_conflict(
        self, client: JobClient, storage: Storage
    ) -> None:
        job_id = new_job_id()
        for _ in range(2):
            outcome = await client.enqueue(add.request([1]), id=job_id)
            assert outcome == EnqueueOutcome(job_id)

        with pytest.raises(Conflict):
            await client.enqueue(add.request([1]), id=job_id, priority=9)
        assert await stored(storage) == 1

    async def test_a_router_chooses_the_queue_of_raw_requests(self, storage: Storage) -> None:
        async with JobClient(storage, router=lambda kind: kind.partition(".")[0]) as client:
            outcome = await client.enqueue(EnqueueRequest("gh.sync"))

            job = await client.get(outcome.job_id)
        assert job is not None
        assert job.queue == "gh"


class TestOutages:
    async def test_a_lost_reply_is_repeated_under_the_same_id_and_stores_one_job(
        self, client: JobClient, jobs: SpiedJobs, storage: Storage
    ) -> None:
        jobs.lost_replies = 1

        outcome = await client.enqueue(add.request([1]))

        assert not outcome.deduplicated
        assert [call[0].id for call in jobs.calls] == [outcome.job_id] * 2
        assert await stored(storage) == 1

    async def test_a_lost_reply_with_a_key_is_not_taken_for_a_duplicate(
        self, client: JobClient, jobs: SpiedJobs
    ) -> None:
        jobs.lost_replies = 1

        outcome = await client.enqueue(add.request([1]), unique_key="k")

        assert not outcome.deduplicated
        assert len(jobs.calls) == 2

    async def test_an_outage_longer_than_repeat_for_is_raised(
        self, storage: Storage, jobs: SpiedJobs
    ) -> None:
        jobs.outages = 1_000_000
        async with JobClient(storage, repeat_for=timedelta(milliseconds=20)) as client:
            with pytest.raises(Unavailable):
                await client.enqueue(EnqueueRequest("k"))


class TestSharedCalls:
    async def test_callers_that_come_during_a_call_share_the_next_one(
        self, client: JobClient, jobs: SpiedJobs
    ) -> None:
        jobs.gate.clear()
        async with asyncio.TaskGroup() as callers:
            callers.create_task(client.enqueue(add.request([0])))
            await wait_until(lambda: jobs.calls, description="the first call is under way")
            tasks = [callers.create_task(client.enqueue(add.request([n]))) for n in range(1, 50)]
            await anyio.wait_all_tasks_blocked()
            jobs.gate.set()

        assert [len(call) for call in jobs.calls] == [1, 49]
        for number, task in enumerate(tasks, start=1):
            job = await client.get(task.result().job_id)
            assert job is not None
            assert job.payload == f'{{"numbers":[{number}]}}'

    async def test_where_no_call_waits_for_a_disk_two_calls_share_the_callers(
        self, storage: Storage, jobs: SpiedJobs
    ) -> None:
        storage.is_durable = False
        client = JobClient(storage, handlers)
        jobs.gate.clear()
        async with asyncio.TaskGroup() as callers:
            for number in range(51):
                callers.create_task(client.enqueue(add.request([number])))
            await wait_until(lambda: len(jobs.calls) == 2, description="both are under way")
            closing = callers.create_task(client.aclose())
            await anyio.wait_all_tasks_blocked()
            assert not closing.done()
            jobs.gate.set()

        assert [len(call) for call in jobs.calls] == [26, 25]
        assert await stored(storage) == 51

    async def test_nobody_sees_the_error_of_another(
        self, client: JobClient, storage: Storage
    ) -> None:
        missing = new_job_id()

        async def try_one(number: int) -> EnqueueOutcome | Exception:
            try:
                options: dict[str, Any] = {"after": [missing]} if number % 10 == 3 else {}
                return await client.enqueue(add.request([number]), **options)
            except Exception as error:
                return error

        outcomes = await asyncio.gather(*(try_one(number) for number in range(40)))

        for number, outcome in enumerate(outcomes):
            expected = NotFound if number % 10 == 3 else EnqueueOutcome
            assert isinstance(outcome, expected)
        assert await stored(storage) == 36

    async def test_many_producers_of_one_key_make_one_job(
        self, client: JobClient, storage: Storage
    ) -> None:
        outcomes = await asyncio.gather(
            *(client.enqueue(add.request([n]), unique_key="k") for n in range(300))
        )

        assert sum(not outcome.deduplicated for outcome in outcomes) == 1
        assert len({outcome.job_id for outcome in outcomes}) == 1
        assert await stored(storage) == 1

    async def test_requests_with_keys_travel_apart_and_sorted(
        self, client: JobClient, jobs: SpiedJobs
    ) -> None:
        await asyncio.gather(
            *(client.enqueue(add.request([1]), unique_key=key) for key in "cab"),
            *(client.enqueue(add.request([1])) for _ in range(2)),
        )

        keys = [[job.unique and job.unique.key for job in call] for call in jobs.calls]
        assert sorted(keys, key=str) == [["a", "b", "c"], [None, None]]


class TestMany:
    async def test_outcomes_come_in_the_order_of_the_requests_from_one_call(
        self, client: JobClient, jobs: SpiedJobs
    ) -> None:
        requests = [add.request([n]).options(unique_key=f"k{n % 3}") for n in range(9)]

        outcomes = await client.enqueue_many(requests)

        assert [outcome.deduplicated for outcome in outcomes] == [False] * 3 + [True] * 6
        assert [outcome.job_id for outcome in outcomes[3:6]] == [
            outcome.job_id for outcome in outcomes[:3]
        ]
        assert len(jobs.calls) == 1

    async def test_one_wrong_request_stores_none(
        self, client: JobClient, jobs: SpiedJobs, storage: Storage
    ) -> None:
        with pytest.raises(InvalidInput):
            await client.enqueue_many([add.request([1]), EnqueueRequest("sum", {"x": 1})])
        assert jobs.calls == []

        with pytest.raises(NotFound):
            await client.enqueue_many(
                [add.request([1]), add.request([2]).options(after=[new_job_id()])]
            )
        assert await stored(storage) == 0

    async def test_a_failing_list_leaves_the_lists_of_other_callers_alone(
        self, client: JobClient, storage: Storage
    ) -> None:
        bad = [add.request([1]), add.request([2]).options(after=[new_job_id()])]
        good = [add.request([n]) for n in range(5)]

        outcomes = await asyncio.gather(
            client.enqueue_many(good),
            client.enqueue_many(bad),
            client.enqueue_many(good),
            return_exceptions=True,
        )

        assert isinstance(outcomes[1], NotFound)
        assert [len(each) for each in (outcomes[0], outcomes[2]) if isinstance(each, list)] == [
            5,
            5,
        ]
        assert await stored(storage) == 10

    async def test_a_list_beyond_the_atomic_size_goes_in_steps(
        self, client: JobClient, jobs: SpiedJobs
    ) -> None:
        jobs.enqueue_at_once = 4

        outcomes = await client.enqueue_many([add.request([n]) for n in range(9)])

        assert [len(call) for call in jobs.calls] == [4, 4, 1]
        assert len(outcomes) == 9

    async def test_nothing_is_stored_for_nothing(self, client: JobClient, jobs: SpiedJobs) -> None:
        assert await client.enqueue_many([]) == []
        assert jobs.calls == []


class TestClosing:
    async def test_closing_waits_for_what_is_under_way_and_then_refuses(
        self, storage: Storage, jobs: SpiedJobs
    ) -> None:
        client = JobClient(storage)
        jobs.gate.clear()
        enqueueing = asyncio.ensure_future(client.enqueue(EnqueueRequest("k")))
        await wait_until(lambda: jobs.calls, description="the call is under way")
        closing = asyncio.ensure_future(client.aclose())
        jobs.gate.set()
        await closing

        assert enqueueing.done()
        assert await client.get((await enqueueing).job_id) is not None
        with pytest.raises(StorageError, match="closed"):
            await client.enqueue(EnqueueRequest("k"))
        await client.aclose()

    async def test_a_cancelled_caller_leaves_the_store_whole(
        self, client: JobClient, jobs: SpiedJobs, storage: Storage
    ) -> None:
        jobs.gate.clear()
        caller = asyncio.ensure_future(client.enqueue(EnqueueRequest("k")))
        await wait_until(lambda: jobs.calls, description="the call is under way")
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        jobs.gate.set()
        await client.flush()

        page = await client.list(JobFilter(kinds=("k",)))
        assert len(page.jobs) == 1
