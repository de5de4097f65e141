"""``advance``: time passes for the store, and real waits stay real."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs import (
    HandlerRegistry,
    InvalidInput,
    JobStatus,
    QueueRuntime,
    RuntimeSettings,
    open_storage,
)
from forge_jobs.clock import SystemClock, from_us
from forge_jobs.model.jobs import Cause
from forge_jobs.model.retries import Fixed
from forge_jobs.testing import Kit, TravelClock
from forge_jobs.testing.kit.fixtures import lend
from tests.kit import shop

pytestmark = pytest.mark.anyio


async def test_a_delayed_job_becomes_due(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.send_receipt.request(7), delay=3600)
    await forge_kit.advance(minutes=59)
    assert len(await forge_kit.drain()) == 0
    await forge_kit.advance(minutes=1)
    assert (await forge_kit.drain()).counts == {"done": 1}


async def test_retries_end_with_a_dead_job() -> None:
    handlers = HandlerRegistry()

    @handlers.job("fails", max_attempts=3, retry=Fixed(timedelta(days=1)))
    def fails() -> None:
        raise ValueError("never")

    with lend() as lent:
        kit = lent.kit(handlers)
        await kit.enqueue(fails.request())
        assert [run.attempt for run in await kit.drain()] == [1]
        assert len(await kit.drain()) == 0
        await kit.advance(days=2)
        assert [run.attempt for run in await kit.drain()] == [2]
        await kit.advance(timedelta(days=2))
        assert (await kit.drain()).counts == {"dead": 1}


async def test_schedules_fire_by_their_catch_up_rule() -> None:
    handlers, days = HandlerRegistry(), list[int]()

    @handlers.cron("0 12 * * *", name="latest")
    @handlers.cron("0 12 * * *", name="all", catch_up="all", window=timedelta(days=40))
    @handlers.job("nightly")
    def nightly() -> None:
        days.append(1)

    with lend() as lent:
        kit = lent.kit(handlers)
        # Nothing has declared the schedules before: they count from the time before the jump.
        await kit.advance(days=31)
        await kit.assert_enqueued(nightly, count=32, status="pending")
        assert (await kit.drain()).counts == {"done": 32}
        await kit.advance(days=1)
        assert len(await kit.drain()) == 2
    assert len(days) == 34


async def test_what_expires_and_what_waits_for_that(forge_kit: Kit) -> None:
    now = await forge_kit.storage.cron.now()
    first = await forge_kit.enqueue(
        shop.send_receipt.request(1), expires_at=now + timedelta(hours=1)
    )
    await forge_kit.enqueue(shop.chain.request(0), after=[first.job_id])
    await forge_kit.advance(hours=1, seconds=1)
    [job] = await forge_kit.assert_enqueued(shop.send_receipt, status="cancelled")
    assert job.cause is Cause.EXPIRED
    await forge_kit.assert_enqueued(shop.chain, status="cancelled", count=1)


async def test_retention_removes_what_has_ended(forge_kit: Kit) -> None:
    await forge_kit.enqueue(shop.send_receipt.request(1))
    await forge_kit.enqueue(shop.end.request("dead"))
    await forge_kit.drain()
    await forge_kit.advance(days=8)
    await forge_kit.assert_enqueued(status=JobStatus.DONE, count=0)
    await forge_kit.assert_enqueued(status=JobStatus.DEAD, count=1)
    await forge_kit.advance(days=31)
    await forge_kit.assert_enqueued(count=0)


async def test_the_clock_goes_on_and_timeouts_take_real_time(forge_kit: Kit) -> None:
    began = SystemClock().elapsed()
    then = await forge_kit.advance(weeks=100)
    assert then - from_us(SystemClock().time_us()) > timedelta(weeks=99)
    with pytest.raises(TimeoutError):
        await forge_kit.run_inline(shop.wait_long)
    await forge_kit.enqueue(shop.wait_long.request())
    [run] = await forge_kit.drain()
    assert run.cause is Cause.TIMED_OUT
    assert await forge_kit.storage.cron.now() > then
    assert SystemClock().elapsed() - began < timedelta(weeks=1).total_seconds()


async def test_a_pod_of_the_test_runs_on_and_runs_what_has_become_due(forge_kit: Kit) -> None:
    handlers = HandlerRegistry()
    started, go_on = threading.Event(), threading.Event()

    @handlers.job("blocks")
    def block() -> str:
        started.set()
        assert go_on.wait(50)
        return "whole"

    handlers.add(shop.send_receipt)
    runtime = QueueRuntime(forge_kit.storage, handlers).with_queues("mail", "default")
    async with runtime.start() as handle:
        blocked = await handle.enqueue(block.request())
        later = await handle.enqueue(shop.send_receipt.request(7), delay=86_400)
        await asyncio.to_thread(started.wait)

        await forge_kit.advance(days=31)

        assert await handle.result(later.job_id, timeout=50) == "7 in attempt 1"
        go_on.set()
        assert await handle.result(blocked.job_id, timeout=50) == "whole"


async def test_a_pod_that_keeps_its_lease_learns_the_new_time(forge_kit: Kit) -> None:
    settings = RuntimeSettings(lease=timedelta(hours=3), leader_lease=timedelta(hours=3))
    runtime = QueueRuntime(forge_kit.storage, shop.handlers, settings=settings).with_queues("mail")
    async with runtime.start() as handle:
        await handle.result((await handle.enqueue(shop.send_receipt.request(1))).job_id, timeout=50)
        later = await handle.enqueue(shop.send_receipt.request(7), delay=3_600)
        await forge_kit.advance(hours=1)
        assert await handle.result(later.job_id, timeout=50) == "7 in attempt 1"


def test_without_a_loop_and_from_test_to_test() -> None:
    for _ in range(2):
        with lend() as lent:
            kit = lent.kit(shop.handlers)
            kit.sync.enqueue(shop.send_receipt.request(7), delay=60)
            assert len(kit.sync.drain()) == 0
            there = kit.sync.advance(minutes=2)
            # The test before has not moved the clock of this one.
            assert there - from_us(SystemClock().time_us()) < timedelta(minutes=3)
            assert len(kit.sync.drain()) == 1


@pytest.mark.parametrize("by", [-1, timedelta(days=40_000), float("nan"), "1h"])
async def test_what_is_no_time_is_refused(forge_kit: Kit, by: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^advance"):
        await forge_kit.advance(by)


async def test_a_store_with_another_clock_is_refused() -> None:
    async with await open_storage("sqlite:///:memory:") as storage:
        with pytest.raises(InvalidInput, match=r"^clock: is not known"):
            await Kit(storage, shop.handlers).advance(days=1)
        with pytest.raises(InvalidInput, match=r"^clock: shows"):
            await Kit(storage, shop.handlers, clock=TravelClock()).advance(days=1)


async def test_a_store_that_the_test_opens_with_the_clock() -> None:
    clock = TravelClock()
    async with await open_storage("sqlite:///:memory:", clock=clock) as storage:
        kit = Kit(storage, shop.handlers, clock=clock)
        await kit.enqueue(shop.send_receipt.request(7), delay=60)
        await kit.advance(60)
        assert len(await kit.drain()) == 1
