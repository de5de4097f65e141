"""ctx.progress and ctx.log: what handlers tell reaches the store, whatever the end of the run."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import anyio
import pytest

from forge_jobs.clock import SystemClock
from forge_jobs.errors import InvalidInput, Unavailable
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Dead, Snoozed
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.progress import (
    LINE_BYTES,
    LINES_KEPT,
    LogLine,
    NewProgress,
    Progress,
    ProgressNote,
)
from forge_jobs.privacy.secrets import Secret
from forge_jobs.runtime.progress.sender import ProgressSender
from forge_jobs.storage.protocols import Storage
from tests.support.factories import a_claimed_job, only
from tests.support.runtimes import a_runtime, ended, job_because, job_when, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


async def progress_of(storage: Storage, job_id: JobId) -> Progress | None:
    return (await storage.jobs.states([job_id]))[job_id].progress


async def lines_of(storage: Storage, job_id: JobId, attempt: int | None = None) -> list[LogLine]:
    return [*(await storage.jobs.job_log(job_id, attempt=attempt)).lines]


async def texts_of(storage: Storage, job_id: JobId, attempt: int | None = None) -> list[str]:
    return [line.text for line in await lines_of(storage, job_id, attempt)]


class CountedNotes:
    """Counts the calls that store notes, and can refuse them."""

    def __init__(self, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[Sequence[ProgressNote]] = []
        self.fails: Callable[[], Exception | None] = lambda: None
        self._note = storage.jobs.note_progress
        monkeypatch.setattr(storage.jobs, "note_progress", self._counted)

    async def _counted(self, notes: Sequence[ProgressNote]) -> Sequence[bool | None]:
        self.calls.append(notes)
        if (error := self.fails()) is not None:
            raise error
        return await self._note(notes)


@pytest.fixture
def counted(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> CountedNotes:
    return CountedNotes(storage, monkeypatch)


@pytest.mark.parametrize("in_thread", [False, True], ids=["async def", "def"])
async def test_a_running_handler_is_heard(storage: Storage, in_thread: bool) -> None:
    handlers, go_on = HandlerRegistry(), threading.Event()

    @handlers.job("tells")
    async def tells(ctx: JobContext) -> None:
        ctx.progress.set(1, 4, "begun")
        ctx.log.info("at %s of %d", "file", 4)
        await wait_until(go_on.is_set, description="the handler may end")

    @handlers.job("tells in a thread")
    def tells_in_a_thread(ctx: JobContext) -> None:
        ctx.progress.set(1, 4, "begun")
        ctx.log.info("at %s of %d", "file", 4)
        go_on.wait()

    async with a_runtime(storage, handlers).start() as handle:
        request = (tells_in_a_thread if in_thread else tells).request()
        job_id = (await handle.enqueue(request)).job_id

        async def is_told() -> bool:
            return bool(await lines_of(storage, job_id))

        try:
            await wait_until(is_told, description="the line is stored while the handler runs")
            found = await progress_of(storage, job_id)
            assert found is not None
            assert (found.current, found.total, found.fraction) == (1, 4, 0.25)
            assert (found.message, found.attempt) == ("begun", 1)
        finally:
            go_on.set()
        await ended(storage, job_id)
    [line] = await lines_of(storage, job_id)
    assert (line.number, line.level, line.text) == (1, logging.INFO, "at file of 4")


async def _stop(storage: Storage, job_id: JobId) -> None:
    await storage.jobs.cancel(only(job_id))


ENDS: dict[str, tuple[Any, JobStatus]] = {
    "done": (None, JobStatus.DONE),
    "failed": (RuntimeError("x"), JobStatus.DEAD),
    "rejected": (Dead("x"), JobStatus.DEAD),
    "snoozed": (Snoozed(seconds(3600)), JobStatus.PENDING),
    "timeout": ("sleep", JobStatus.DEAD),
    "cancel": ("sleep", JobStatus.CANCELLED),
}


@pytest.mark.parametrize("how", ENDS)
async def test_what_a_run_tells_last_is_there_when_its_end_is_seen(
    storage: Storage, how: str
) -> None:
    handlers = HandlerRegistry()
    raises, status = ENDS[how]
    timeout = seconds(0.05) if how == "timeout" else seconds(600)

    @handlers.job("ends", max_attempts=1, timeout=timeout)
    async def ends(ctx: JobContext) -> None:
        ctx.log.info("first")
        try:
            if raises == "sleep":
                await anyio.sleep_forever()
        finally:
            for number in range(50):
                ctx.progress.set(number, 50)
                ctx.log.info("no. %d", number)
        if raises is not None:
            raise raises

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(ends.request())).job_id
        if how == "cancel":
            await job_when(storage, job_id, JobStatus.IN_PROGRESS)

            async def has_begun() -> bool:
                return bool(await lines_of(storage, job_id))

            await wait_until(has_begun, description="the handler has begun")
            await _stop(storage, job_id)
        if how == "snoozed":
            await job_because(storage, job_id, Cause.SNOOZED)
        else:
            await job_when(storage, job_id, status)
        # Read after the end was seen, while the pod goes on.
        expected = ["first", *(f"no. {number}" for number in range(50))]
        assert await texts_of(storage, job_id) == expected
        found = await progress_of(storage, job_id)
    assert found is not None
    assert found.current == 49


async def test_a_stop_stores_what_interrupted_runs_have_told(storage: Storage) -> None:
    handlers, started = HandlerRegistry(), anyio.Event()

    @handlers.job("interrupted")
    async def interrupted(ctx: JobContext) -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            ctx.log.info("cleaned up")

    settings = quick_settings(grace=seconds(0.01))
    async with a_runtime(storage, handlers, settings=settings).start() as handle:
        job_id = (await handle.enqueue(interrupted.request())).job_id
        await started.wait()
    await job_because(storage, job_id, Cause.INTERRUPTED)
    assert await texts_of(storage, job_id) == ["cleaned up"]


async def test_jobs_that_tell_nothing_cost_no_call(storage: Storage, counted: CountedNotes) -> None:
    handlers = HandlerRegistry()

    @handlers.job("silent")
    async def silent(ctx: JobContext) -> str:
        return ctx.job_id

    async with a_runtime(storage, handlers, workers=5).start() as handle:
        outcomes = await handle.enqueue_many([silent.request() for _ in range(30)])
        for outcome in outcomes:
            await ended(storage, outcome.job_id)
    assert counted.calls == []


async def test_all_running_jobs_share_a_call_about_once_a_second(
    storage: Storage, counted: CountedNotes
) -> None:
    handlers = HandlerRegistry()
    jobs, running, go_on = 20, [0], asyncio.Event()

    @handlers.job("busy")
    async def busy(ctx: JobContext) -> None:
        running[0] += 1
        while not go_on.is_set():
            ctx.progress.set(running[0], jobs)
            ctx.log.info("tick")
            await anyio.sleep(0.001)

    async with a_runtime(storage, handlers, workers=jobs).start() as handle:
        outcomes = await handle.enqueue_many([busy.request() for _ in range(jobs)])
        await wait_until(lambda: running[0] == jobs, description="all run")
        counted.calls.clear()
        begun = asyncio.get_running_loop().time()
        await wait_until(lambda: len(counted.calls) >= 3, description="three calls")
        took = asyncio.get_running_loop().time() - begun
        assert len(counted.calls) <= 1 + took / 0.8
        assert any(len(notes) == jobs for notes in counted.calls)
        go_on.set()
        for outcome in outcomes:
            await ended(storage, outcome.job_id)


async def test_a_timer_that_rings_early_loses_no_call(
    storage: Storage, counted: CountedNotes
) -> None:
    counted.fails = lambda: Unavailable("away")
    sender = ProgressSender(storage.jobs, SystemClock())
    sender.open(a_claimed_job(), ()).set_progress(NewProgress(1.0))
    with pytest.raises(Unavailable):
        await sender.send_once()
    timer = sender._timer
    assert timer is not None
    timer.cancel()
    sender._wake()  # as a timer of uvloop does, half a millisecond before its time
    assert await sender.wakeup.wait(seconds(0))
    await sender.send_once()
    assert len(counted.calls) == 1
    with anyio.fail_after(20):
        assert await sender.wakeup.wait(), "it is asked for again"


async def test_what_is_told_in_an_outage_is_stored_after_it(
    storage: Storage, counted: CountedNotes
) -> None:
    handlers, down = HandlerRegistry(), [True]
    counted.fails = lambda: Unavailable("away") if down[0] else None

    @handlers.job("told late")
    async def told_late(ctx: JobContext) -> None:
        for number in range(LINES_KEPT + 7):
            ctx.log.info("%d", number)
        ctx.progress.set(7)
        await wait_until(lambda: len(counted.calls) > 1, description="the store was asked again")
        down[0] = False

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(told_late.request())).job_id
        await ended(storage, job_id)
    lines = await lines_of(storage, job_id)
    # The newest are kept, and the numbers say how many are not.
    assert [line.number for line in lines] == list(range(8, LINES_KEPT + 8))


async def test_a_store_that_takes_ends_and_no_notes_keeps_no_job_from_its_end(
    storage: Storage, counted: CountedNotes, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()
    counted.fails = lambda: InvalidInput("text", "is refused", "give another")

    @handlers.job("refused")
    async def refused(ctx: JobContext) -> None:
        ctx.log.info("hidden")

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(refused.request())).job_id
        assert (await ended(storage, job_id)).status is JobStatus.DONE
    assert await lines_of(storage, job_id) == []
    assert "are dropped" in caplog.text


async def test_texts_that_no_store_keeps_are_made_storable(storage: Storage) -> None:
    handlers, wants_two = HandlerRegistry(), "%s and %s"

    @handlers.job("odd")
    async def odd(ctx: JobContext) -> None:
        ctx.progress.set(1, 2, "a\0b \ud800")
        ctx.log.info("c\0d \udfff")
        ctx.log.info("x" * 3 * LINE_BYTES)
        ctx.log.info(wants_two, "one")
        try:
            raise ValueError("boom\0")
        except ValueError:
            ctx.log.exception("it failed")

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(odd.request())).job_id
        await ended(storage, job_id)
    first, cut, unformatted, failed = await texts_of(storage, job_id)
    assert first == "c\\x00d \\udfff"
    assert len(cut) == LINE_BYTES
    assert unformatted == "%s and %s (could not be formatted: TypeError)"
    assert failed.startswith("it failed\nTraceback")
    assert failed.endswith("ValueError: boom\\x00")
    found = await progress_of(storage, job_id)
    assert found is not None
    assert found.message == "a\\x00b \\ud800"


@pytest.mark.parametrize("current", [float("nan"), float("inf"), -1, "1", None, True, 10**400])
async def test_a_progress_that_is_no_number_fails_the_run(storage: Storage, current: Any) -> None:
    handlers = HandlerRegistry()

    @handlers.job("wrong", max_attempts=1)
    async def wrong(ctx: JobContext) -> None:
        ctx.progress.set(current)

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(wrong.request())).job_id
        job = await ended(storage, job_id)
    assert job.errors[-1].type == "InvalidInput"
    assert job.errors[-1].message.startswith("current")


@pytest.mark.parametrize("shown", [logging.DEBUG, logging.ERROR])
async def test_lines_of_info_are_kept_whatever_the_log_shows(
    storage: Storage, caplog: pytest.LogCaptureFixture, shown: int
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("levels")
    async def levels(ctx: JobContext) -> None:
        ctx.log.debug("debug")
        ctx.log.info("info")
        ctx.log.warning("warning")

    with caplog.at_level(shown, logger="forge_jobs.job"):
        async with a_runtime(storage, handlers).start() as handle:
            job_id = (await handle.enqueue(levels.request())).job_id
            await ended(storage, job_id)
    expected = ["debug", "info", "warning"] if shown == logging.DEBUG else ["info", "warning"]
    assert await texts_of(storage, job_id) == expected
    assert ("info" in caplog.text) == (shown == logging.DEBUG)


async def test_each_attempt_has_its_lines(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("retried", max_attempts=3)
    async def retried(ctx: JobContext) -> None:
        ctx.log.info("attempt %d", ctx.attempt)
        ctx.progress.set(ctx.attempt)
        if ctx.attempt < 3:
            raise RuntimeError("again")

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(retried.request())).job_id
        await storage.jobs.run_now(only(job_id))

        async def is_over() -> bool:
            await storage.jobs.run_now(only(job_id))
            states = await storage.jobs.states([job_id])
            return states[job_id].is_final

        await wait_until(is_over, description="the third attempt has ended")
    assert (await storage.jobs.job_log(job_id)).attempts == (1, 2, 3)
    for attempt in (1, 2, 3):
        assert await texts_of(storage, job_id, attempt) == [f"attempt {attempt}"]


async def test_secrets_of_the_payload_are_hidden(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("private")
    async def private(ctx: JobContext, token: Annotated[str, Secret]) -> None:
        ctx.log.info("with %s", token)
        ctx.progress.set(1, message=f"using {token}")

    async with a_runtime(storage, handlers).start() as handle:
        job_id = (await handle.enqueue(private.request(token="hush-hush"))).job_id
        await ended(storage, job_id)
    assert await texts_of(storage, job_id) == ["with ***"]
    found = await progress_of(storage, job_id)
    assert found is not None
    assert found.message == "using ***"
