"""Programs whose loop begins a task inside ``create_task`` (``asyncio.eager_task_factory``).

Python 3.11 has no such tasks: there the tests bring their own.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from forge_jobs import EnqueueRequest, HandlerRegistry, JobClient, Shared
from forge_jobs.errors import StorageClosed
from forge_jobs.lanes import Lane
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.loops import eager_tasks
from tests.support.runtimes import QUEUE, a_runtime, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

HELD = 600


@pytest.fixture
def anyio_backend() -> str:
    """Name asyncio whatever ``FORGE_TEST_LOOP`` says: uvloop has no room for tasks of our own."""
    return "asyncio"


@pytest.fixture
async def loop() -> "asyncio.AbstractEventLoop":
    """The loop of the test, with eager tasks."""
    found = asyncio.get_running_loop()
    found.set_task_factory(eager_tasks())
    return found


async def test_a_task_begins_inside_create_task(loop: asyncio.AbstractEventLoop) -> None:
    seen: list[object] = []

    async def note() -> None:
        seen.append(asyncio.current_task())
        await asyncio.sleep(0)  # noqa: TID251

    task = loop.create_task(note())

    assert len(seen) == 1
    await task
    assert seen == [task]


async def test_hundreds_of_held_claims_run_one_after_another(
    loop: asyncio.AbstractEventLoop, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()
    runs: Counter[int] = Counter()

    @handlers.job("quick")
    async def quick(n: int) -> None:
        runs[n] += 1

    client = JobClient(storage)
    jobs = [EnqueueRequest("quick", {"n": n}) for n in range(2 * HELD)]
    settings = quick_settings(claim_ahead=seconds(10))
    async with client, a_runtime(storage, handlers, settings=settings).start() as handle:
        # The pace is known from the first jobs. A claim then brings as many as the call may.
        await client.enqueue_many(jobs[:HELD])
        await wait_until(lambda: len(runs) == HELD, description="half of the jobs have run")
        await client.enqueue_many(jobs[HELD:])
        await wait_until(lambda: len(runs) == len(jobs), description="all jobs have run")
        await handle.drain()

    counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
    assert {status for status, count in counts.items() if count} == {JobStatus.DONE}
    assert set(runs.values()) == {1}
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_lane_whose_call_fails_at_once_takes_what_comes_after(
    loop: asyncio.AbstractEventLoop,
) -> None:
    async def closed(items: Sequence[int]) -> Sequence[int]:
        raise StorageClosed("this program has closed the storage; open it again")

    lane = Lane(closed)

    for _ in range(2):
        async with asyncio.timeout(30):
            with pytest.raises(StorageClosed):
                await lane.submit(1)


async def test_items_of_one_turn_are_one_batch(loop: asyncio.AbstractEventLoop) -> None:
    batches: list[Sequence[int]] = []

    async def take(items: Sequence[int]) -> Sequence[int]:
        batches.append(list(items))
        return items

    lane = Lane(take)

    assert await asyncio.gather(*(lane.submit(n) for n in range(5))) == [*range(5)]
    assert batches == [[*range(5)]]


async def test_a_shared_value_that_fails_at_once_is_made_by_the_next_job(
    loop: asyncio.AbstractEventLoop, storage: Storage
) -> None:
    handlers = HandlerRegistry()
    outcomes: Iterator[Exception | None] = iter([RuntimeError("not yet"), None])

    async def value() -> str:
        if error := next(outcomes):
            raise error
        return "a value"

    @handlers.job("uses", max_attempts=1, keep_result=True)
    async def uses(found: str = Shared(value)) -> str:
        return found

    async with a_runtime(storage, handlers).start() as handle, JobClient(storage) as client:
        first = await handle.enqueue(uses.request())
        with pytest.raises(Exception, match="not yet"):
            await client.result(first.job_id, timeout=60)
        second = await handle.enqueue(uses.request())
        assert await client.result(second.job_id, timeout=60) == "a value"
