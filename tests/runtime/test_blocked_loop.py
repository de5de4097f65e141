"""A handler that blocks the event loop is reported, and keeps the claim."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from forge_jobs.clock import SystemClock
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import JobStatus
from forge_jobs.reports import flush_reports
from forge_jobs.runtime.heartbeat.thread import HUNG_EXIT_CODE
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime, ended, quick_settings, seconds
from tests.support.waiting import all_stacks

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

LEASE = 0.6


def sleeping(duration: float) -> None:
    time.sleep(duration)


def computing(duration: float) -> None:
    clock = SystemClock()
    until = clock.elapsed() + duration
    while clock.elapsed() < until:
        pass


@pytest.mark.parametrize("block", [sleeping, computing])
async def test_blocking_for_three_leases_keeps_the_claim_and_is_reported(
    storage: Storage, block: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()

    @handlers.job("blocks", max_attempts=1)
    async def blocks() -> str:
        block(3 * LEASE)
        return "done"

    settings = quick_settings(
        lease=seconds(LEASE), fence_margin=seconds(0.2), blocked_after=seconds(0.2)
    )
    async with a_runtime(storage, handlers, settings=settings).start() as handle:
        outcome = await handle.enqueue(blocks.request())
        job = await ended(storage, outcome.job_id)
        assert (job.status, job.attempt, job.crashes) == (JobStatus.DONE, 1, 0)
        assert handle.health().lost_claims == 0
        assert handle.health().blocked_count >= 1
    assert flush_reports(10)
    reports = [each for each in caplog.records if "has been blocked for" in each.getMessage()]
    assert block.__name__ in reports[0].getMessage()


async def test_a_loop_that_hangs_is_given_up(
    storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()
    codes: list[int] = []
    gave_up = threading.Event()

    def exit_process(code: int) -> None:
        codes.append(code)
        gave_up.set()

    @handlers.job("hangs", max_attempts=1)
    async def hangs() -> bool | str:
        return gave_up.wait(20) or all_stacks()

    settings = quick_settings(lease=seconds(3), blocked_after=seconds(0.1), hung_after=seconds(0.4))
    runtime = a_runtime(storage, handlers, settings=settings, exit_process=exit_process)
    async with runtime.start() as handle:
        outcome = await handle.enqueue(hangs.request())
        assert await handle.result(outcome.job_id, timeout=50) is True
        problems = handle.health().problems
        assert any(problem.endswith("this pod is shutting down") for problem in problems)
        # The beats have ended, so no handler may run on either.
        assert any(problem.startswith("fenced") for problem in problems)
    assert codes == [HUNG_EXIT_CODE]
    assert flush_reports(10)
    assert "this pod is shutting down" in caplog.text


class _Buffered(logging.Handler):
    """Writes nothing before a flush, as handlers with threads of their own may."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[str] = []
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.waiting.append(record.getMessage())

    def flush(self) -> None:
        self.written, self.waiting = self.written + self.waiting, []


async def test_the_end_of_a_hung_process_is_written_before_it(tmp_path: Path) -> None:
    handlers, log, gave_up = HandlerRegistry(), _Buffered(), threading.Event()
    written: list[str] = []

    def exit_process(code: int) -> None:
        written.extend(log.written)
        gave_up.set()

    @handlers.job("hangs", max_attempts=1)
    async def hangs() -> bool | str:
        return gave_up.wait(20) or all_stacks()

    settings = quick_settings(lease=seconds(3), blocked_after=seconds(0.1), hung_after=seconds(0.4))
    logging.getLogger().addHandler(log)
    try:
        async with (
            await open_storage(f"sqlite:///{tmp_path / 'jobs.db'}") as file,
            a_runtime(
                file, handlers, settings=settings, exit_process=exit_process
            ).start() as handle,
        ):
            outcome = await handle.enqueue(hangs.request())
            assert await handle.result(outcome.job_id, timeout=50) is True
    finally:
        logging.getLogger().removeHandler(log)
    assert any("this pod is shutting down" in line for line in written)
