"""Pods that relay an outbox beside their queues."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import ConfigError, EnqueueRequest, HandlerRegistry, InvalidInput, Outbox
from forge_jobs.clients.outbox.relay import OutboxReport
from forge_jobs.clock import ManualClock
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.processes import OutboxGauge
from forge_jobs.runtime.passes import outbox as passes
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.runtime import QueueRuntime
from tests.support.outboxes import PAIRS, Pair, pair_of
from tests.support.runtimes import quick_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

SETTINGS = quick_settings(lease=timedelta(hours=1))


@pytest.fixture(params=PAIRS, ids="-to-".join)
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    """Two empty stores."""
    async with pair_of(request.param[0], request.param[1], tmp_path) as made:
        yield made


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Pair]:
    """Two empty stores, where the pair makes no difference."""
    async with pair_of("sqlite", "sqlite", tmp_path) as made:
        yield made


@pytest.fixture
def woken_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pod look at an outbox without a wake-up, but at the start of the loop."""
    monkeypatch.setattr(passes, "LOOK_EVERY", timedelta(hours=1))


def some(count: int) -> list[EnqueueRequest]:
    return [EnqueueRequest("mail.send", {"n": n}, queue="mail") for n in range(count)]


def a_runtime(pair: Pair) -> tuple[QueueRuntime, list[int]]:
    """A runtime of the destination, and the numbers that the handler got."""
    handlers, seen = HandlerRegistry(), list[int]()

    @handlers.job("mail.send", queue="mail")
    async def send(n: int) -> None:
        seen.append(n)

    runtime = QueueRuntime(pair.there, handlers, settings=SETTINGS)
    return runtime.with_queues("mail"), seen


async def has_looked(handle: QueueHandle) -> None:
    await wait_until(
        lambda: handle.health().loops["outbox"].last_success_ago is not None,
        description="the outbox was looked at",
    )


async def all_relayed(pair: Pair, ids: list[JobId]) -> None:
    async def look() -> bool:
        return await pair.stored() == sorted(ids)

    await wait_until(look, description="all jobs are on the other store", timeout=60)


@pytest.mark.usefixtures("woken_only")
async def test_a_commit_wakes_the_relay_of_a_pod_and_a_roll_back_brings_nothing(
    pair: Pair,
) -> None:
    runtime, seen = a_runtime(pair)
    async with runtime.with_outbox(pair.outbox()).start() as handle:
        await has_looked(handle)
        await pair.write(some(1), commits=False)
        ids = await pair.write(some(3))
        await all_relayed(pair, ids)
        ids += await pair.write(some(2))
        await all_relayed(pair, ids)
        for each in ids:
            await handle.result(each, timeout=60)
    assert sorted(seen) == [0, 0, 1, 1, 2]


async def test_two_pods_relay_each_record_once(files: Pair) -> None:
    first, seen = a_runtime(files)
    second, also = a_runtime(files)
    ids = await files.write(some(20))
    async with (
        first.with_outbox(files.outbox()).start() as handle,
        second.with_outbox(files.outbox()).start(),
    ):
        await all_relayed(files, ids)
        for each in ids:
            await handle.result(each, timeout=60)
    assert sorted(seen + also) == list(range(20))


async def test_a_pod_starts_and_works_while_the_database_of_the_outbox_is_away(
    files: Pair,
) -> None:
    asked = 0

    async def open_outbox() -> Outbox:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise Unavailable("the database is away on purpose")
        return files.outbox()

    runtime, _ = a_runtime(files)
    ids = await files.write(some(2))
    async with runtime.with_outbox(open_outbox).start() as handle:
        mine = await handle.enqueue(*some(1))
        await handle.result(mine.job_id, timeout=60)
        await all_relayed(files, [*ids, mine.job_id])
        assert handle.health().loops["outbox"].failures_total == 3
    assert asked == 4


async def test_a_relay_that_fails_is_reported_and_repeated(
    files: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = files.outbox()
    relay_once, failures = outbox.relay_once, 0

    async def fails_twice(**options: object) -> object:
        nonlocal failures
        failures += 1
        if failures < 3:
            raise ZeroDivisionError("a defect on purpose")
        return await relay_once(**options)  # type: ignore[arg-type]

    monkeypatch.setattr(outbox, "relay_once", fails_twice)
    runtime, _ = a_runtime(files)
    ids = await files.write(some(2))
    async with runtime.with_outbox(outbox).start() as handle:
        await all_relayed(files, ids)
        assert handle.health().loops["outbox"].failures_total == 2
    told = [each.getMessage() for each in caplog.records if "loop outbox" in each.getMessage()]
    assert len(told) == 1
    assert "a defect on purpose" in told[0]


async def test_a_closed_database_of_an_outbox_leaves_the_pod_at_work(files: Pair) -> None:
    runtime, _ = a_runtime(files)
    async with runtime.with_outbox(files.outbox()).start() as handle:
        await has_looked(handle)
        await files.here.aclose()
        await wait_until(
            lambda: "was closed" in handle.health().loops["outbox"].last_error,
            description="the health has the reason",
        )
        mine = await handle.enqueue(*some(1))
        await handle.result(mine.job_id, timeout=60)


@asynccontextmanager
async def a_silent_destination(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[asyncio.Event]:
    """Let each enqueue there hang, and set the event once one does."""
    reached, heals = asyncio.Event(), asyncio.Event()
    enqueue = pair.there.jobs.enqueue

    async def hang(jobs: list[NewJob]) -> list[EnqueueOutcome]:
        reached.set()
        await heals.wait()
        return await enqueue(jobs)

    monkeypatch.setattr(pair.there.jobs, "enqueue", hang)
    try:
        yield reached
    finally:
        heals.set()


async def test_a_stop_does_not_wait_for_a_silent_destination(
    files: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await files.write(some(2))
    runtime, _ = a_runtime(files)
    async with a_silent_destination(files, monkeypatch) as reached:
        handle = await runtime.with_outbox(files.outbox()).start()
        await reached.wait()
        await handle.stop(timeout=0.1)
    await all_relayed(files, ids)


async def test_a_stop_ends_a_pass_between_two_calls_of_the_destination(files: Pair) -> None:
    await files.write(some(5))
    asked: list[int] = []
    enqueue = files.there.jobs.enqueue

    async def noted(jobs: list[NewJob]) -> list[EnqueueOutcome]:
        asked.append(len(jobs))
        return await enqueue(jobs)

    files.there.jobs.enqueue = noted  # type: ignore[method-assign,assignment]
    relay = files.outbox()._relay
    report = await relay.relay_once(batch=1, is_stopping=lambda: len(asked) == 2)
    assert (report.relayed, asked) == (2, [1, 1])


async def test_what_is_no_outbox_and_what_comes_too_late_is_refused(files: Pair) -> None:
    runtime, _ = a_runtime(files)
    with pytest.raises(InvalidInput, match="outbox"):
        runtime.with_outbox(files.here)  # type: ignore[arg-type]
    async with runtime.start() as handle:
        assert "outbox" not in handle.health().loops
        with pytest.raises(ConfigError, match="with_outbox"):
            runtime.with_outbox(files.outbox())


async def test_when_a_pass_went_well_for_the_last_time_is_measured(
    files: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    outbox = files.outbox()
    loop = passes.OutboxLoop("outbox", outbox, clock=clock, rng=random.Random(1))

    async def measured() -> OutboxGauge:
        [gauge] = await passes.measure_all([loop], clock.now())
        return gauge

    assert (await measured()).relayed_at is None
    await loop._relay()
    relayed_at = clock.now()
    clock.advance(timedelta(seconds=90))
    assert (await measured()).relayed_at == relayed_at

    async def fails(**_: object) -> OutboxReport:
        raise Unavailable("the destination is away")

    monkeypatch.setattr(outbox, "relay_once", fails)
    with pytest.raises(Unavailable):
        await loop._relay()
    assert (await measured()).relayed_at == relayed_at
