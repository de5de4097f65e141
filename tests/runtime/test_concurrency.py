"""A process that runs only so many handlers at once, over all queues."""

from collections.abc import Awaitable, Callable

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Counting:
    """Handlers that note how many run at once, and in which queues they ran."""

    def __init__(self) -> None:
        self.handlers = HandlerRegistry()
        self.inside = self.most = 0
        self.ran: list[str] = []

        @self.handlers.job("counts")
        async def counts(queue: str) -> None:
            self.ran.append(queue)
            self.inside += 1
            self.most = max(self.most, self.inside)
            await anyio.sleep(0.002)
            self.inside -= 1

        self.counts = counts

    def have_run(self, jobs: int) -> Callable[[], bool]:
        return lambda: len(self.ran) == jobs and self.inside == 0

    async def enqueue(self, handle: QueueHandle, queue: str, jobs: int) -> None:
        for _ in range(jobs):
            await handle.enqueue(self.counts.request(queue), queue=queue)


def a_runtime(storage: Storage, handlers: HandlerRegistry, concurrency: int | None) -> QueueRuntime:
    return QueueRuntime(storage, handlers, settings=quick_settings(), concurrency=concurrency)


def stored_grants(storage: Storage) -> Callable[[], Awaitable[list[dict[str, int]]]]:
    async def read() -> list[dict[str, int]]:
        return [
            {queue: slots.grant for queue, slots in state.slots.items()}
            for state in await storage.procs.pods()
        ]

    return read


async def test_no_more_run_at_once_than_the_process_may_and_no_slot_lies_idle(
    storage: Storage,
) -> None:
    counting = Counting()
    runtime = a_runtime(storage, counting.handlers, 3).with_queues(a=4, b=4)
    async with runtime.start() as handle:
        grants = stored_grants(storage)

        async def are_three() -> bool:
            return [sum(each.values()) for each in await grants()] == [3]

        await wait_until(are_three, description="the pod has three slots")
        assert [state.pod.concurrency for state in await storage.procs.pods()] == [3]
        for queue in "ab":
            await counting.enqueue(handle, queue, 10)
        await wait_until(counting.have_run(20), description="all have run")

    assert counting.most <= 3


async def test_what_one_process_cannot_use_another_gets(storage: Storage) -> None:
    handlers = Counting().handlers
    grants = stored_grants(storage)
    async with (
        a_runtime(storage, handlers, 2).with_queues(a=10).start(),
        a_runtime(storage, handlers, None).with_queues(a=10).start(),
    ):

        async def are_shared() -> bool:
            return sorted(each["a"] for each in await grants()) == [2, 8]

        await wait_until(are_shared, description="two slots here, eight there")


async def test_with_more_queues_than_that_they_take_turns(storage: Storage) -> None:
    counting = Counting()
    runtime = a_runtime(storage, counting.handlers, 1).with_queues(a=2, b=2, c=2)
    client = JobClient(storage, counting.handlers)
    for queue in "abc":
        await client.enqueue_many([counting.counts.request(queue).options(queue=queue)] * 8)
    async with runtime.start():
        await wait_until(counting.have_run(24), description="all have run")

    assert counting.most == 1
    # One queue after the other would be eight of the first and four of the second.
    assert set(counting.ran[:12]) == set("abc")


async def test_a_number_that_is_none_is_refused(storage: Storage) -> None:
    for wrong in (0, -1, 100_001, True, 1.5, "2"):
        with pytest.raises(InvalidInput, match="concurrency"):
            QueueRuntime(storage, Counting().handlers, concurrency=wrong)  # type: ignore[arg-type]
