"""A runtime on a file that others lock, and on a file that cancels its callers."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import new_worker_id
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.opening import open_storage
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    claim_for,
    counters,
    enqueue_one,
    held,
    register,
)
from tests.support.runtimes import a_runtime, ended, found_no_work, quick_settings, seconds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


async def test_a_handler_that_enqueues_while_the_file_is_locked_is_only_kept_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = HandlerRegistry()
    locked, started = anyio.Event(), anyio.Event()

    @handlers.job("parent", max_attempts=1)
    async def parent(ctx: JobContext) -> str:
        started.set()
        await locked.wait()
        return (await ctx.enqueue(EnqueueRequest("child"))).job_id

    @handlers.job("child")
    def child() -> str:
        return "ran"

    # Long enough for a lease, so that the lock is all there is to wait for.
    settings = quick_settings(lease=seconds(30))
    caplog.set_level(logging.WARNING, "forge_jobs")
    async with (
        await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage,
        a_runtime(storage, handlers, settings=settings).start() as handle,
    ):
        await found_no_work(handle)
        outcome = await handle.enqueue(EnqueueRequest("parent"))
        await started.wait()
        with closing(
            sqlite3.connect(tmp_path / "jobs.db", isolation_level=None, timeout=10)
        ) as rival:
            rival.execute("BEGIN IMMEDIATE")
            locked.set()
            await wait_until(
                lambda: "has held the write lock" in caplog.text, description="writers wait"
            )
            rival.execute("ROLLBACK")
        child_id = await handle.result(outcome.job_id, timeout=50)
        assert await handle.result(child_id, timeout=50) == "ran"
        job = await ended(storage, outcome.job_id)
        assert (job.attempt, job.cause, job.errors) == (1, Cause.SUCCEEDED, ())
        assert handle.health().lost_claims == 0
    assert "database is locked" not in caplog.text


async def test_a_claim_whose_caller_gave_up_is_made_wholly_or_not_at_all_and_found_by_a_beat(
    tmp_path: Path,
) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/jobs.db?synchronous=off") as storage:
        lease = await register(storage)
        for _ in range(60):
            await enqueue_one(storage)
        known = set()
        for number in range(30):
            with anyio.move_on_after(number * 0.0001):
                workers = [new_worker_id() for _ in range(2)]
                claimed = await claim_for(storage, QUEUE, workers, 2, frozenset({KIND}), lease)
                known |= {job.claim for job in claimed}
        beat = await storage.jobs.heartbeat(lease, [held(claim) for claim in known], LEASE)
        assert set(beat.claims) == known
        assert beat.unknown, "every claim was waited for, so nothing was shown"
        counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
        assert counts[JobStatus.IN_PROGRESS] == len(known) + len(beat.unknown)
        assert counts[JobStatus.IN_PROGRESS] % 2 == 0
        assert await storage.jobs.release(list(beat.unknown)) == [True] * len(beat.unknown)
        counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
        assert counts[JobStatus.PENDING] == 60 - len(known)
        assert (await counters(storage))["enqueued"] == 60
