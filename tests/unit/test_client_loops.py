"""A client belongs to the event loop of its first use. Elsewhere the error names the fix."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import ForgeJobsError, WrongEventLoop
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.lanes import Lane
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.runtime.shared.rates.limiter import RateLimiter
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage

pytestmark = pytest.mark.anyio

REQUEST = EnqueueRequest("mail.send", queue="mail")
SOME_ID = new_job_id()


@pytest.fixture
async def storage() -> AsyncIterator[Storage]:
    async with await open_storage("sqlite:///:memory:") as opened:
        yield opened


async def elsewhere(call: Callable[[], Awaitable[Any]]) -> Any:
    """Return the answer of ``call`` in another event loop. A missing answer is a failure."""

    async def run() -> Any:
        async with asyncio.timeout(20):
            return await call()

    return await asyncio.to_thread(lambda: asyncio.run(run()))


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.enqueue(REQUEST),
        lambda client: client.enqueue(REQUEST, unique_key="k"),
        lambda client: client.enqueue_many([REQUEST]),
        lambda client: client.get(SOME_ID),
        lambda client: client.result(SOME_ID, 5),
        lambda client: client.explain(SOME_ID),
        lambda client: client.list(),
        lambda client: client.cancel(SOME_ID),
        lambda client: client.requeue(SOME_ID),
        lambda client: client.run_now(JobFilter()),
        lambda client: client.delete(SOME_ID),
        lambda client: client.queue_of("mail.send"),
        lambda client: client.aclose(),
    ],
)
async def test_every_call_from_a_second_loop_names_the_blocking_client(
    storage: Storage, call: Callable[[JobClient], Awaitable[Any]]
) -> None:
    async with JobClient(storage) as client:
        await client.enqueue(REQUEST)
        with pytest.raises(WrongEventLoop, match=r"client\.sync, or SyncJobClient"):
            await elsewhere(lambda: call(client))
        # The error is theirs alone: here all goes on.
        outcome = await client.enqueue(REQUEST)
        assert await client.get(outcome.job_id)
        assert await asyncio.to_thread(client.sync.get, outcome.job_id)


async def test_a_rate_limiter_belongs_to_its_loop_too(storage: Storage) -> None:
    limiter = RateLimiter(storage.config)
    for call in (lambda: limiter.acquire("gh"), lambda: limiter.drain("gh")):
        with pytest.raises(ForgeJobsError):
            await call()
        with pytest.raises(WrongEventLoop):
            await elsewhere(call)


async def test_a_lane_that_is_busy_elsewhere_answers_a_second_loop_at_once() -> None:
    """The caller waited for ever: the call goes on in the first loop, and ends there."""
    gate = asyncio.Event()

    async def call(items: Any) -> Any:
        await gate.wait()
        return items

    lane: Lane[int, int] = Lane(call)
    first = asyncio.ensure_future(lane.submit(1))
    await anyio.lowlevel.checkpoint()
    with pytest.raises(WrongEventLoop):
        await elsewhere(lambda: lane.submit(2))
    gate.set()
    assert await first == 1
