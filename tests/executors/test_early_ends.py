"""Stops that come early, and handlers that end in time."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Cause
from forge_jobs.runtime.executors.messages import Ended, Start
from forge_jobs.runtime.executors.runner import ProcessRunner
from forge_jobs.runtime.executors.supply import Child
from forge_jobs.runtime.executors.warm import WarmPrograms
from forge_jobs.runtime.queue.run import Run, StopReason
from tests.support import injected_in_processes, process_handlers
from tests.support.factories import a_claimed_job
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


def a_child(module: ModuleType = process_handlers) -> Child:
    """A child that has not been started, and whose jobs make no calls."""
    return Child(f"{module.__name__}:handlers", HostId("host"), lambda *_: None)


@pytest.fixture
async def children() -> AsyncIterator[WarmPrograms[Child]]:
    """Children that are gone when the test ends."""
    warm = WarmPrograms(a_child)
    yield warm
    with anyio.fail_after(20):
        await warm.close()


def a_start(kind: str, payload: Mapping[str, Any]) -> Start:
    """The message that starts a job."""
    return Start(a_claimed_job(kind=kind, payload=json.dumps(payload)), "worker")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (StopReason.CANCEL, Cause.CANCELLED),
        (StopReason.TIMEOUT, Cause.TIMED_OUT),
        (StopReason.SHUTDOWN, Cause.INTERRUPTED),
        (StopReason.LOST, None),
    ],
)
@pytest.mark.parametrize("kind", ["process.waits", "process.waits_async"])
async def test_a_stop_right_behind_a_start_ends_the_run(
    children: WarmPrograms[Child], tmp_path: Path, kind: str, reason: StopReason, cause: Cause
) -> None:
    child = await children.take()
    answer = child.run(a_start(kind, {"mark": str(tmp_path / "mark")}), None)
    child.interrupt(reason)
    with anyio.fail_after(20):
        end = await answer
    assert isinstance(end, Ended)
    assert end.cause is cause
    # The stop was for that job alone.
    with anyio.fail_after(20):
        end = await child.run(a_start("process.adds_async", {"left": 1, "right": 2}), None)
    assert isinstance(end, Ended)
    assert end.cause is Cause.SUCCEEDED


@pytest.mark.parametrize("turns", range(6))
async def test_children_close_after_a_start_that_was_cancelled(
    children: WarmPrograms[Child], turns: int
) -> None:
    starts = asyncio.create_task(children.take())
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()
    starts.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starts
    with anyio.fail_after(20):
        await children.close()


async def test_a_child_that_ends_in_time_outlives_the_patience_of_a_cancelled_task(
    tmp_path: Path,
) -> None:
    loop, patience, over = asyncio.get_running_loop(), 1.5, asyncio.Event()
    mark = tmp_path / "mark"
    start = a_start(process_handlers.waits_async.kind, {"mark": str(mark)})
    handler = process_handlers.handlers.get(start.job.kind)
    assert handler is not None
    place = f"{process_handlers.__name__}:handlers"
    nothing: Any = None  # the job makes no calls
    runner = ProcessRunner(place, HostId("host"), lambda _: nothing, nothing, lambda _: None)
    run = Run(start.job, handler, "worker", 0.0, loop, patience=patience)
    task = asyncio.create_task(runner.run(run))
    await wait_until(mark.exists, description="the handler runs")
    task.cancel()
    end = await task
    loop.call_later(patience, over.set)
    assert end is not None
    assert end.cause is Cause.INTERRUPTED
    child = await runner.children.take()
    assert child.runs == 1, "the child is used again"
    await over.wait()
    assert child.is_alive
    runner.children.give_back(child, None)
    await runner.close()


@pytest.mark.parametrize("kind", ["injected.plain", "injected.async"])
async def test_a_stop_right_behind_a_start_ends_a_run_with_dependencies(
    tmp_path: Path, kind: str
) -> None:
    child = a_child(injected_in_processes)
    await child.start()
    mark = tmp_path / "mark"
    answer = child.run(a_start(kind, {"mark": str(mark), "hangs": "handler"}), None)
    child.interrupt(StopReason.CANCEL)
    with anyio.fail_after(20):
        end = await answer
        child.retire()
        await child.program.ended
    assert isinstance(end, Ended)
    assert end.cause is Cause.CANCELLED
    assert not mark.exists() or "handler" not in mark.read_text().splitlines()
