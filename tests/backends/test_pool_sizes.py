"""A pool that is too small for a pod's queues is reported when the pod starts."""

import logging

import anyio
import pytest

from forge_jobs import HandlerRegistry, QueueRuntime, open_storage
from forge_jobs.clock import SystemClock
from forge_jobs.runtime.passes.gauges import PodMeter, gauges_once
from forge_jobs.runtime.shared.store_calls import CallMeter, metered
from tests.support.factories import register
from tests.support.proxy import proxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

CLOCK, CALLS = SystemClock(), 40


@pytest.fixture(params=["postgres", "redis"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(("pool_size", "is_told"), [(4, True), (5, False)])
async def test_a_pool_smaller_than_the_queues_is_told(
    url: str, pool_size: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    separator = "&" if "?" in url else "?"
    async with await open_storage(f"{url}{separator}pool_size={pool_size}") as storage:
        runtime = QueueRuntime(storage, HandlerRegistry()).with_queues("a", "b", "c")
        async with runtime.start():
            pass
    told = [record.message for record in caplog.records if "pool_size=5" in record.message]
    assert len(told) == is_told


async def test_health_says_how_many_calls_had_to_wait_for_a_connection(url: str) -> None:
    separator = "&" if "?" in url else "?"
    async with await open_storage(f"{url}{separator}pool_size=1") as storage:
        before = storage.health()
        assert (before.pool_size, before.pool_in_use) == (1, 0)
        seen = list[int]()

        async def count() -> None:
            await storage.jobs.counts()
            seen.append(storage.health().pool_in_use)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(count)
        after = storage.health()
    # One call has the connection, and the others wait.
    assert after.pool_waits - before.pool_waits >= 2
    assert max(seen) <= 1
    assert after.pool_in_use == 0


async def test_a_connection_that_is_handed_on_is_in_use(url: str) -> None:
    separator = "&" if "?" in url else "?"
    async with await open_storage(f"{url}{separator}pool_size=1") as storage:
        waiting = 8
        seen = list[int]()

        async def count() -> None:
            nonlocal waiting
            await storage.jobs.counts()
            waiting -= 1

        async with anyio.create_task_group() as group:
            for _ in range(waiting):
                group.start_soon(count)
            while waiting > 1:
                # In each turn of the loop, also in those between two calls.
                await anyio.lowlevel.checkpoint()
                seen.append(storage.health().pool_in_use)
    assert set(seen[seen.index(1) : -1]) == {1}


async def test_the_wait_for_a_connection_does_not_count_as_time_of_the_store(url: str) -> None:
    """Calls have the connection one after the other: their times come to the whole at most."""
    separator = "&" if "?" in url else "?"
    took = list[float]()

    class Times(CallMeter):
        def observe(self, name: str, seconds: float, *, failed: bool = False) -> None:
            took.append(seconds)

    with proxy(url) as between:
        # On a busy machine the last call waits for longer than five seconds.
        options = "pool_size=1&timeout=60"
        async with await open_storage(f"{between.url}{separator}{options}") as plain:
            storage = metered(plain, Times())
            await storage.jobs.counts()
            took.clear()
            # Beside the store's time, that of the loop with all calls at once is short.
            between.slow_down(replies=0.01)
            began = CLOCK.elapsed()
            async with anyio.create_task_group() as group:
                for _ in range(CALLS):
                    group.start_soon(storage.jobs.counts)
            whole = CLOCK.elapsed() - began
            assert plain.health().pool_waits >= CALLS - 1
    assert len(took) == CALLS
    # With the waits half as many times the whole as there are calls.
    assert sum(took) < whole * CALLS / 4


async def test_a_pass_measures_the_connections_before_those_of_the_pass(url: str) -> None:
    separator = "&" if "?" in url else "?"
    async with await open_storage(f"{url}{separator}pool_size=1") as storage:
        lease = await register(storage)
        is_busy = True

        async def read() -> None:
            while is_busy:
                await storage.jobs.counts()

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await wait_until(lambda: storage.health().pool_in_use, description="a call is made")
            is_busy = False
            measured = await gauges_once(storage, lease, PodMeter(), running=0)
    assert (measured.pool_size, measured.pool_in_use) == (1, 1)
