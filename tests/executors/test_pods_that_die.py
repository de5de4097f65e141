"""Pods that are killed, and terminals that interrupt them: nothing is left, nothing dies early."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from forge_jobs import JobClient, QueueRuntime, open_storage
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.storage.protocols import Storage
from tests.cluster.conftest import backend, client, storage, url
from tests.executors.test_processes import gone, process_of
from tests.support import process_handlers as jobs
from tests.support.pods import forkserver, quick_settings
from tests.support.runtimes import ended, job_when
from tests.support.waiting import wait_until

__all__ = ["backend", "client", "storage", "url"]

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


def _serve(url: str) -> None:
    # As a shell does for a program in the foreground: the group that Ctrl-C reaches.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    raise SystemExit(asyncio.run(_run(url)))


async def _run(url: str) -> int:
    async with await open_storage(url) as opened:
        runtime = QueueRuntime(opened, jobs.handlers, settings=quick_settings())
        return await runtime.with_queues(default=2).run()


@contextmanager
def a_pod(url: str) -> Iterator[int]:
    """Run a pod in a separate process, until the end of the test."""
    process = forkserver.Process(target=_serve, args=(url,), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        process.kill()
        process.join()


async def test_a_pod_that_is_killed_leaves_no_process(
    url: str, storage: Storage, client: JobClient, tmp_path: Path
) -> None:
    marks = [tmp_path / "deaf", tmp_path / "orphan"]
    with a_pod(url) as pod:
        deaf = await client.enqueue(jobs.deaf.request(str(marks[0])))
        await client.enqueue(jobs.leaves.request(str(marks[1])))
        left = [
            await wait_until(partial(process_of, mark), description="the handler runs")
            for mark in marks
        ]
        left += [each.pid for each in psutil.Process(pod).children(recursive=True)]
        assert len(set(left)) >= 6
        os.kill(pod, signal.SIGKILL)
        for process_id in left:
            await gone(process_id)
    job = await job_when(storage, deaf.job_id, JobStatus.IN_PROGRESS)
    assert job.crashes == 0, "the claim is for a reaper to find"


@pytest.mark.long
async def test_ctrl_c_reaches_the_pod_and_not_its_children(
    url: str, storage: Storage, client: JobClient, tmp_path: Path
) -> None:
    mark, gate = tmp_path / "mark", tmp_path / "gate"
    with a_pod(url) as pod:
        outcome = await client.enqueue(jobs.waits_for.request(str(mark), str(gate)))
        await wait_until(lambda: process_of(mark), description="the handler runs")
        os.killpg(pod, signal.SIGINT)
        process = psutil.Process(pod)
        await wait_until(
            lambda: _drains(storage),
            description="the pod drains",
        )
        gate.touch()
        job = await ended(storage, outcome.job_id)
        await wait_until(
            lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE,
            description="the pod has ended",
        )
    assert (job.status, job.cause, job.attempt) == (JobStatus.DONE, Cause.SUCCEEDED, 1)


async def _drains(storage: Storage) -> bool:
    return any(pod.draining for pod in await storage.procs.pods())
