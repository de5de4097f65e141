"""A log that blocks, or whose handlers raise, changes nothing of what a pod does."""

import logging
import threading

import anyio
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.runtime.heartbeat.thread import HUNG_EXIT_CODE
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.storage.protocols import Storage
from tests.support.faulty import Faults, faulty
from tests.support.logs import BlockingHandler, RaisingHandler, added
from tests.support.runtimes import QUEUE, a_runtime, ended, quick_settings, seconds
from tests.support.waiting import all_stacks, wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

LEASE = 0.6


def of_the_program(record: logging.LogRecord) -> bool:
    return record.name == "program"


async def test_a_loop_blocked_in_a_log_call_keeps_its_claims(storage: Storage) -> None:
    handlers = HandlerRegistry()
    pods: list[QueueHandle] = []

    def has_beaten_for_two_leases() -> bool:
        heartbeat = pods[0]._pod.heartbeat
        assert heartbeat.last_success is not None
        blocked = heartbeat.watchdog.blocked_count
        return bool(blocked and heartbeat.last_success > began[0] + 2 * LEASE)

    began: list[float] = []
    log = BlockingHandler(of_the_program, has_beaten_for_two_leases)

    @handlers.job("talks", max_attempts=1)
    async def talks() -> bool:
        began.append(pods[0]._pod.plan.clock.elapsed())
        logging.getLogger("program").error("blocks")
        return has_beaten_for_two_leases()

    settings = quick_settings(
        lease=seconds(LEASE), fence_margin=seconds(0.2), blocked_after=seconds(0.1)
    )
    with added(log):
        async with a_runtime(storage, handlers, settings=settings).start() as handle:
            pods.append(handle)
            outcome = await handle.enqueue(talks.request())
            job = await ended(storage, outcome.job_id)
            assert (job.status, job.result, job.crashes) == (JobStatus.DONE, "true", 0)
            assert handle.health().lost_claims == 0


async def test_a_loop_that_hangs_in_a_log_call_is_given_up(storage: Storage) -> None:
    handlers = HandlerRegistry()
    codes: list[int] = []
    log = BlockingHandler(of_the_program, lambda: bool(codes))

    @handlers.job("talks", max_attempts=1)
    async def talks() -> bool | str:
        logging.getLogger("program").error("blocks")
        return bool(codes) or all_stacks()

    settings = quick_settings(lease=seconds(3), blocked_after=seconds(0.1), hung_after=seconds(0.3))
    runtime = a_runtime(storage, handlers, settings=settings, exit_process=codes.append)
    with added(log):
        async with runtime.start() as handle:
            outcome = await handle.enqueue(talks.request())
            assert await handle.result(outcome.job_id, timeout=50) is True
    assert codes == [HUNG_EXIT_CODE]


async def test_handlers_are_fenced_while_the_log_blocks(storage: Storage) -> None:
    handlers, faults = HandlerRegistry(), Faults()
    started, fenced = anyio.Event(), anyio.Event()

    @handlers.job("waits")
    async def waits() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            fenced.set()

    home = threading.current_thread()
    log = BlockingHandler(lambda _: threading.current_thread() is not home)
    settings = quick_settings(lease=seconds(LEASE), fence_margin=seconds(0.2))
    runtime = a_runtime(faulty(storage, faults), handlers, settings=settings)
    with added(log):
        async with runtime.start() as handle:
            await handle.enqueue(waits.request())
            await started.wait()
            faults.down = True
            await wait_until(fenced.is_set, description="the handler is stopped", timeout=10)
            assert log.blocks.is_set()
            faults.down = False
            log.let_go()
            await wait_until(lambda: handle.health().able_to_claim, description="it is back")


async def test_all_parts_outlive_a_log_handler_that_raises(storage: Storage) -> None:
    handlers, faults = HandlerRegistry(), Faults()

    @handlers.job("fails", max_attempts=1)
    async def fails() -> None:
        raise ValueError

    @handlers.job("works")
    async def works() -> str:
        return "done"

    settings = quick_settings(lease=seconds(LEASE), fence_margin=seconds(0.2))
    runtime = a_runtime(faulty(storage, faults), handlers, settings=settings)
    with added(RaisingHandler()):
        async with runtime.start() as handle:
            await wait_until(lambda: handle.health().queues[QUEUE].grant, description="a slot")
            faults.down = True
            await wait_until(
                lambda: any("fenced" in each for each in handle.health().problems),
                description="it is fenced",
                timeout=10,
            )
            loops = ("coordinator", "reaper")
            await wait_until(
                lambda: all(handle.health().loops[name].failures for name in loops),
                description="passes have failed",
            )
            faults.down = False
            failed = await handle.enqueue(fails.request())
            done = await handle.enqueue(works.request())
            assert await handle.result(done.job_id, timeout=50) == "done"
            assert (await ended(storage, failed.job_id)).status is JobStatus.DEAD
            await wait_until(
                lambda: not any(each.failures for each in handle.health().loops.values()),
                description="all loops work again",
            )
            assert handle.health().unlogged
