"""Health of a pod without work while the store is away, and the consequences."""

import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.runtime.queue import loop
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import QUEUE, a_runtime, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


def echo_handlers() -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job("echo")
    async def echo(n: int) -> int:
        return n

    return handlers


async def test_an_idle_pod_says_that_its_store_is_away_long_before_it_is_fenced(
    storage: Storage,
) -> None:
    faults = Faults()
    settings = quick_settings(lease=seconds(3600), fence_margin=seconds(1))
    runtime = a_runtime(faulty(storage, faults), echo_handlers(), settings=settings)
    async with runtime.start() as handle:
        await wait_until(lambda: handle.health().able_to_claim, description="it is able to claim")
        faults.down = True
        await wait_until(
            lambda: not handle.health().able_to_claim, description="it says that it is not able"
        )
        assert any("store" in problem for problem in handle.health().problems)
        faults.down = False
        await wait_until(lambda: handle.health().able_to_claim, description="it is able again")


async def test_a_queue_whose_call_takes_longer_than_any_may_is_named(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_LONGEST_CALL", 0.2)
    faults = Faults()
    async with a_runtime(faulty(storage, faults), echo_handlers()).start() as handle:
        await wait_until(lambda: handle.health().able_to_claim, description="it is able to claim")
        faults.hold_replies("exchange")
        await handle.enqueue(EnqueueRequest("echo", {"n": 1}))
        problem = f"queue {QUEUE}: the store does not answer"
        await wait_until(lambda: problem in handle.health().problems, description="it is named")
        faults.let_go("exchange")
        await wait_until(lambda: handle.health().able_to_claim, description="it is able again")


async def test_loops_count_what_an_outage_cost_them_and_go_on(storage: Storage) -> None:
    faults = Faults()
    async with a_runtime(faulty(storage, faults), echo_handlers()).start() as handle:
        await wait_until(lambda: handle.health().queues[QUEUE].grant, description="a slot")
        faults.down = True
        loops = ("coordinator", "reaper")
        await wait_until(
            lambda: all(handle.health().loops[name].failures_total for name in loops),
            description="passes have failed",
        )
        faults.down = False
        await wait_until(
            lambda: all(not handle.health().loops[name].last_error for name in loops),
            description="passes succeed again",
        )


async def test_every_queue_of_a_pod_works_again_after_an_outage(storage: Storage) -> None:
    faults = Faults()
    queues = {f"q{number}": 1 for number in range(8)}
    runtime = QueueRuntime(faulty(storage, faults), echo_handlers(), settings=quick_settings())
    async with runtime.with_queues(**queues).start() as handle:
        await wait_until(
            lambda: all(queue.grant for queue in handle.health().queues.values()),
            description="a slot of each queue",
        )
        for _ in range(3):
            faults.down = True
            await wait_until(
                lambda: not handle.health().able_to_claim, description="the outage is noticed"
            )
            faults.down = False
            outcomes = [
                await handle.enqueue(EnqueueRequest("echo", {"n": 1}, queue=queue))
                for queue in queues
            ]
            for outcome in outcomes:
                assert await handle.result(outcome.job_id, timeout=50) == 1
        assert handle.health().lost_claims == 0
