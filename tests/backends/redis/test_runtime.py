"""A runtime on Redis: the costs without work, and the faults it survives."""

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import anyio
import pytest
from msgspec import structs

from forge_jobs.clients.client import JobClient
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import Unavailable
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Exchange
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.redis.base.scripts import script
from forge_jobs.storage.redis.driver import messages
from forge_jobs.testing.servers import RedisServer
from tests.support import servers
from tests.support.asked import asked
from tests.support.proxy import proxy
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

HURRY = 10
"""How much faster than real the clocks of a runtime are here."""


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with servers.a_redis(durable=True) as started:
        yield started


@pytest.fixture
def handlers() -> HandlerRegistry:
    registry = HandlerRegistry()

    @registry.job("works", max_attempts=50)
    def works(number: int) -> int:
        return number

    return registry


def hurried() -> RuntimeSettings:
    """The defaults, with every duration a tenth."""
    plain = RuntimeSettings()
    durations = {
        name: value / HURRY
        for name in plain.__struct_fields__
        if isinstance(value := getattr(plain, name), timedelta)
    }
    return structs.replace(plain, **durations)


@pytest.mark.long
async def test_an_idle_pod_of_ten_queues_costs_two_commands_a_second_at_most(
    server: RedisServer, handlers: HandlerRegistry
) -> None:
    async with await open_storage(server.url) as storage:
        runtime = QueueRuntime(storage, handlers, settings=hurried())
        async with runtime.with_queues(**{f"q{n}": 2 for n in range(10)}).start():
            # What a start does is done after two leases.
            await anyio.sleep(20 / HURRY)
            start = time.monotonic()
            with asked() as commands:
                await anyio.sleep(40 / HURRY)
            per_second = commands.total() / (time.monotonic() - start) / HURRY
    assert per_second + 1 / messages.PING_AFTER_S <= 2


async def test_a_busy_pod_makes_one_trip_for_each_exchange(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("nothing", keep_result=False)
    async def nothing() -> None:
        pass

    async with await open_storage(server.url) as storage:
        exchange, sizes = storage.jobs.exchange, []

        async def seen(queue: str, ends: Any, demand: Demand, lease: PodLease) -> Exchange:
            found = await exchange(queue, ends, demand, lease)
            sizes.append(max(len(ends), len(found.claimed)))
            return found

        monkeypatch.setattr(storage.jobs, "exchange", seen)
        async with JobClient(storage, handlers) as client:
            await client.enqueue_many([EnqueueRequest("nothing")] * 6_000)

        async def all_done() -> bool:
            [counts] = (await storage.jobs.counts()).values()
            return counts.by_status.get(JobStatus.DONE) == 6_000

        with asked() as commands:
            # So much ahead that the store's bound is what ends a claim, at any pace.
            settings = structs.replace(RuntimeSettings(), claim_ahead=timedelta(seconds=10))
            async with a_runtime(storage, handlers, 10, settings=settings).start():
                await wait_until(all_done, description="all jobs are done")
    assert max(sizes) == storage.jobs.exchange_at_once
    assert commands[f"EVALSHA {script('exchange').sha}"] == len(sizes)


async def result_of(handle: QueueHandle, job_id: JobId) -> Any:
    """The result, looked for again while the server is away."""

    async def look() -> tuple[Any] | None:
        try:
            return (await handle.result(job_id, timeout=1),)
        except (Unavailable, TimeoutError):
            return None

    (result,) = await wait_until(look, description=f"job {job_id} has ended")
    return result


async def test_jobs_go_on_after_a_restart_a_flush_of_scripts_and_cut_connections(
    server: RedisServer, handlers: HandlerRegistry
) -> None:
    def kill_and_start() -> None:
        server.kill()
        server.start()

    with proxy(server.url) as between:
        async with (
            await open_storage(between.url) as storage,
            a_runtime(storage, handlers, 4).start() as handle,
        ):
            faults = [
                lambda: server.command("SCRIPT FLUSH"),
                between.cut,
                server.restart,
                lambda: server.command("CLIENT KILL", "TYPE", "normal"),
                kill_and_start,
            ]
            for number, fault in enumerate(faults):
                jobs = [
                    (await handle.enqueue(EnqueueRequest("works", {"number": n}))).job_id
                    for n in range(20)
                ]
                await anyio.to_thread.run_sync(fault)
                for n, job_id in enumerate(jobs):
                    assert await result_of(handle, job_id) == n, f"after fault {number}"
            await wait_until(
                lambda: handle.health().listening, description="wake-ups are heard again"
            )


async def test_a_pod_started_before_its_server_waits_for_it(
    server: RedisServer, handlers: HandlerRegistry
) -> None:
    async with await open_storage(server.url) as storage:
        await anyio.to_thread.run_sync(server.stop)
        async with anyio.create_task_group() as group:

            async def run() -> None:
                async with a_runtime(storage, handlers).start() as handle:
                    outcome = await handle.enqueue(EnqueueRequest("works", {"number": 7}))
                    assert await handle.result(outcome.job_id, timeout=50) == 7

            group.start_soon(run)
            await anyio.to_thread.run_sync(server.start)
