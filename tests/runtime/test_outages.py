"""The store goes away, comes back, or gives no answer."""

import logging
from collections.abc import Sequence

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.errors import InvalidInput, StorageError
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Cause, Claim, JobStatus
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    claim_one,
    crashed,
    register,
    revive,
    times_claimed,
)
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import (
    QUEUE,
    a_runtime,
    ended,
    found_no_work,
    in_progress,
    job_because,
    quick_settings,
    seconds,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


def echo_handlers() -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job("echo")
    async def echo(n: int) -> int:
        return n

    return handlers


async def test_an_end_that_cannot_be_stored_is_kept_until_the_store_is_back(
    storage: Storage,
) -> None:
    faults = Faults()
    handlers = HandlerRegistry()
    started, finish = anyio.Event(), anyio.Event()

    @handlers.job("slow")
    async def slow() -> str:
        started.set()
        await finish.wait()
        return "kept"

    async with a_runtime(faulty(storage, faults), handlers).start() as handle:
        job_id = (await handle.enqueue(slow.request())).job_id
        await started.wait()
        faults.down = True
        finish.set()
        await wait_until(
            lambda: handle.health().queues["default"].store_failures >= 2,
            description="two tries failed",
        )
        assert not handle.health().able_to_claim
        faults.down = False
        assert await handle.result(job_id, timeout=50) == "kept"
        job = await ended(storage, job_id)
        assert (job.attempt, job.crashes) == (1, 0)
        await wait_until(lambda: handle.health().able_to_claim, description="it is able to claim")


async def test_a_lost_reply_to_an_end_is_no_lost_claim(storage: Storage) -> None:
    faults = Faults()
    handlers = echo_handlers()
    async with a_runtime(faulty(storage, faults), handlers).start() as handle:
        await wait_until(lambda: handle.health().queues["default"].grant, description="a slot")
        faults.lose_replies("finalize", 3)
        faults.lose_replies("exchange", 3)
        outcome = await handle.enqueue(next(iter(handlers)).request(5))
        assert await handle.result(outcome.job_id, timeout=50) == 5
        await wait_until(lambda: faults.lost("exchange"), description="all replies were lost")
        for n in range(5):
            outcome = await handle.enqueue(next(iter(handlers)).request(n))
            assert await handle.result(outcome.job_id, timeout=50) == n
        assert handle.health().lost_claims == 0


async def test_claims_whose_reply_was_lost_are_given_back_and_not_counted_as_crashes(
    storage: Storage,
) -> None:
    faults = Faults()
    handlers = echo_handlers()
    async with JobClient(storage, handlers) as client:
        outcome = await client.enqueue(next(iter(handlers)).request(1), delay=0.2)
    async with a_runtime(faulty(storage, faults), handlers).start() as handle:
        await wait_until(lambda: handle.health().queues["default"].grant, description="a slot")
        faults.lose_replies("exchange")
        await wait_until(lambda: faults.lost("exchange"), description="a reply was lost")
        job = await ended(storage, outcome.job_id)
    assert (job.status, job.crashes) == (JobStatus.DONE, 0)
    assert job.attempt == 1


async def test_claims_on_their_way_are_not_given_back(storage: Storage) -> None:
    faults = Faults()
    handlers = echo_handlers()
    async with a_runtime(faulty(storage, faults), handlers).start() as handle:
        await found_no_work(handle)
        async with JobClient(storage, handlers) as client:
            faults.hold_replies("exchange")
            outcome = await client.enqueue(next(iter(handlers)).request(1))
        await wait_until(lambda: in_progress(storage), description="the job is claimed")
        beats = faults.calls["heartbeat"]
        await wait_until(lambda: faults.calls["heartbeat"] > beats + 4, description="five beats")
        assert faults.calls["release"] == 0
        faults.let_go("exchange")
        job = await ended(storage, outcome.job_id)
    assert (job.attempt, await times_claimed(storage)) == (1, 1)


async def test_a_pod_cut_off_stops_its_handlers_in_time_and_goes_on_later(
    storage: Storage,
) -> None:
    faults = Faults()
    handlers = HandlerRegistry()
    reasons: list[str | None] = []

    @handlers.job("waits", max_attempts=1)
    async def waits(ctx: JobContext) -> int:
        if reasons:
            return ctx.attempt
        try:
            await anyio.sleep_forever()
        finally:
            reasons.append(ctx.stop_reason)
        return 0

    # Stopped half a second after the last beat that arrived. Silent for others half a minute after.
    settings = quick_settings(lease=seconds(30), fence_margin=seconds(29.5))
    async with a_runtime(faulty(storage, faults), handlers, settings=settings).start() as handle:
        job_id = (await handle.enqueue(waits.request())).job_id
        await wait_until(lambda: in_progress(storage), description="it runs")
        await wait_until(lambda: handle.health().queues["default"].running, description="it runs")
        faults.down = True
        await wait_until(lambda: reasons, description="the handler was stopped")
        stale = await storage.jobs.stale_claims(settings.lease, 10)
        assert stale == []
        assert any("fenced" in problem for problem in handle.health().problems)
        faults.down = False
        assert await handle.result(job_id, timeout=50) == 1
        await wait_until(lambda: handle.health().able_to_claim, description="it is able to claim")
    assert reasons == ["shutdown"]


async def test_a_pod_whose_lease_ran_out_registers_again(storage: Storage) -> None:
    handlers = echo_handlers()
    async with a_runtime(storage, handlers).start() as handle:
        await wait_until(lambda: handle.health().queues["default"].grant, description="a slot")
        [pod] = await storage.procs.pods()
        await storage.procs.unregister(handle._pod.services.lease)
        outcome = await handle.enqueue(next(iter(handlers)).request(3))
        assert await handle.result(outcome.job_id, timeout=50) == 3
        [again] = await storage.procs.pods()
        assert again.pod.host_id == pod.pod.host_id


async def test_stopping_while_the_store_is_down_ends_soon_and_says_what_is_left(
    storage: Storage,
) -> None:
    faults = Faults()
    handlers = HandlerRegistry()
    started = anyio.Event()

    @handlers.job("slow")
    async def slow() -> None:
        started.set()
        await anyio.sleep_forever()

    handle = await a_runtime(faulty(storage, faults), handlers).start()
    job_id = (await handle.enqueue(slow.request())).job_id
    await started.wait()
    faults.down = True
    with anyio.fail_after(20):
        report = await handle.stop(timeout=0.1)
    assert report.unstored == (job_id,)
    assert not report.is_clean


async def test_an_end_that_the_store_refuses_is_stored_without_its_texts(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("gives")
    async def gives(n: int) -> str:
        return "poison" if n == 3 else "fine"

    faults = Faults()
    refusing = faulty(storage, faults)
    for method in ("exchange", "finalize"):
        _refuse_poison(refusing, method, monkeypatch)
    async with a_runtime(refusing, handlers, 4).start() as handle:
        outcomes = await handle.enqueue_many([gives.request(n) for n in range(8)])
        jobs = [await ended(storage, outcome.job_id) for outcome in outcomes]
    assert [job.result for job in jobs] == [None if n == 3 else '"fine"' for n in range(8)]
    assert {job.cause for job in jobs} == {Cause.SUCCEEDED}


def _refuse_poison(storage: Storage, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = getattr(storage.jobs, method)

    async def refuse(*args: object) -> object:
        ends = args[1] if method == "exchange" else args[0]
        if any(end.transition.result == '"poison"' for end in ends):  # type: ignore[attr-defined]
            raise InvalidInput("value", "is not accepted by the database", "give another value")
        return await call(*args)

    monkeypatch.setattr(storage.jobs, method, refuse, raising=False)


async def test_a_start_is_recorded_before_a_job_with_a_crash_runs(storage: Storage) -> None:
    handlers = HandlerRegistry()
    faults = Faults()
    recorded: list[int] = []

    @handlers.job("crashy")
    async def crashy() -> None:
        recorded.append(faults.calls["record_start"])

    async with JobClient(storage, handlers) as client:
        outcome = await client.enqueue(crashy.request())
    lease = await register(storage, kinds=("crashy",))
    claimed = await claim_one(storage, lease, queue=QUEUE, kinds=("crashy",))
    assert await revive(storage, claimed, crashed(), seconds(0.000001))
    await storage.procs.unregister(lease)
    async with a_runtime(faulty(storage, faults), handlers).start():
        await job_because(storage, outcome.job_id, Cause.SUCCEEDED)
    assert recorded == [1]


async def test_a_start_that_the_store_refuses_is_no_failure_of_its_job(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = HandlerRegistry()
    record_start = storage.jobs.record_start
    refusals = 2

    @handlers.job("crashy")
    async def crashy() -> None:
        pass

    async def refuse(claims: Sequence[Claim]) -> list[bool]:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise StorageError("not now")
        return await record_start(claims)

    async with JobClient(storage, handlers) as client:
        outcome = await client.enqueue(crashy.request())
    lease = await register(storage, kinds=("crashy",))
    claimed = await claim_one(storage, lease, queue=QUEUE, kinds=("crashy",))
    assert await revive(storage, claimed, crashed(), seconds(0.000001))
    await storage.procs.unregister(lease)
    monkeypatch.setattr(storage.jobs, "record_start", refuse, raising=False)
    async with a_runtime(storage, handlers).start():
        job = await job_because(storage, outcome.job_id, Cause.SUCCEEDED)
    assert refusals < 0
    assert [error.cause for error in job.errors] == [Cause.CRASHED]


@pytest.mark.any_store
async def test_an_outage_of_many_queues_takes_few_lines_of_the_log(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forge_jobs.runtime.queue.loop")
    faults, handlers = Faults(), echo_handlers()
    names = [f"tenant-{number:02}" for number in range(30)]

    def lines() -> list[str]:
        name = "forge_jobs.runtime.queue.loop"
        return [each.message for each in caplog.records if each.name == name]

    runtime = QueueRuntime(faulty(storage, faults), handlers, settings=quick_settings())
    async with runtime.with_queues(**dict.fromkeys(names, 1)).start() as handle:
        queues = handle._pod.queues.values()
        for name in names:
            await found_no_work(handle, name)
        faults.down = True
        for each in queues:
            each.pool.hint()
        caplog.clear()
        await wait_until(lambda: all(each.failures for each in queues), description="all fail")
        began = lines()
        faults.down = False
        await wait_until(lambda: not any(each.failures for each in queues), description="none does")
    assert len(began) == 6
    assert began[5].startswith("further queues: the store does not answer, trying again: ")
    ended = lines()[6:]
    assert len(ended) == 6
    assert ended.count("further queues: the store answers again") == 1
