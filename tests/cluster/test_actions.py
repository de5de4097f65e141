"""The driver of an action is killed again and again. Each job is changed once."""

import random
import signal
import sys
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from forge_jobs import HandlerRegistry, QueueRuntime
from forge_jobs.model.actions import Action, ActionState
from forge_jobs.model.events import EventKind
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.queues import QueueChange
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.actions.continuing import Continuing
from forge_jobs.operating.operator import Operator
from forge_jobs.runtime.pod import loops
from forge_jobs.storage.protocols import Storage
from tests.support.acting import JOBS_OF_A_STEP
from tests.support.factories import new_job
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

QUEUES = ("one", "two")
DEATHS = 10
JOBS = 2 * DEATHS * JOBS_OF_A_STEP
"""Of each queue: more than the drivers that die can finish."""


@pytest.mark.long
async def test_drivers_killed_at_ten_random_points_change_each_job_once(
    storage: Storage, url: str, tmp_path: Path
) -> None:
    for queue in QUEUES:
        await storage.config.set_queue(queue, QueueChange(max_workers=1))
    stored = await storage.jobs.enqueue([new_job(queue=QUEUES[n % 2]) for n in range(2 * JOBS)])
    ids = sorted(each.job_id for each in stored)
    await storage.jobs.cancel(JobFilter(ids=tuple(ids)), limit=1_000)
    action = Action(
        id=new_job_id(),
        actor="ada",
        surface="code",
        verb="requeue_jobs",
        which=JobFilter(),
        queues=QUEUES,
    )
    await storage.jobs.put_action(action)
    chance = random.Random(7)
    for death in range(DEATHS):
        point = chance.choice(["actions:before", "actions:committed"])
        visit = str(chance.randint(1, 3))
        dying = (url, action.id, point, visit, str(tmp_path / f"died-{death}"))
        command = [sys.executable, "-m", "tests.support.acting", *dying]
        ended = await anyio.run_process(command, check=False)
        assert ended.returncode == -signal.SIGKILL
    half = await storage.jobs.get_action(action.id)
    assert half.state is ActionState.RUNNING
    async with Operator(storage, Actor(name="last", access=ALL)) as last:
        whole = await last.continue_action(action.id)
    assert (whole.state, whole.changed, whole.refused) == (ActionState.DONE, 2 * JOBS, 0)
    assert await storage.jobs.action_jobs(action.id, limit=1_000) == ids
    for queue in QUEUES:
        events = await storage.jobs.events(queue=queue, limit=1_000)
        requeued = [event.job_id for event in events if event.kind is EventKind.REQUEUED]
        assert len(requeued) == len(set(requeued)) == JOBS


async def _killed(url: str, what: str, point: str, visit: int, tmp_path: Path) -> None:
    dying = (url, what, point, str(visit), str(tmp_path / "died"))
    command = [sys.executable, "-m", "tests.support.acting", *dying]
    ended = await anyio.run_process(command, check=False)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("point", "state", "after"),
    [
        ("actions:recorded", ActionState.ABORTED, "false"),
        ("actions:changed", ActionState.DONE, "true"),
    ],
)
async def test_a_change_whose_program_is_killed_has_a_record_that_another_settles(
    storage: Storage, url: str, tmp_path: Path, point: str, state: ActionState, after: str
) -> None:
    await storage.config.set_queue("one", QueueChange(max_workers=1))
    await _killed(url, "pause:one", point, 1, tmp_path)
    [begun] = await storage.jobs.actions()
    assert (begun.state, begun.action.verb) == (ActionState.RUNNING, "pause_queue")
    [queue] = await storage.config.queues()
    assert queue.paused is (after == "true")
    continuing = Continuing(storage)
    assert [await continuing.go_on_once() for _ in range(3)] == [0, 1, 0]
    [settled] = await storage.jobs.actions()
    assert (settled.state, settled.action.before, settled.action.after) == (state, "false", after)


async def test_a_pod_goes_on_with_an_action_whose_driver_was_killed(
    storage: Storage, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_CONTINUE_EVERY", timedelta(milliseconds=50))
    await storage.config.set_queue("one", QueueChange(max_workers=0))
    stored = await storage.jobs.enqueue([new_job(queue="one") for _ in range(5 * JOBS_OF_A_STEP)])
    ids = sorted(each.job_id for each in stored)
    action = Action(
        id=new_job_id(),
        actor="ada",
        surface="code",
        verb="cancel_jobs",
        which=JobFilter(),
        queues=("one",),
    )
    await storage.jobs.put_action(action)
    await _killed(url, action.id, "actions:committed", 2, tmp_path)
    assert (await storage.jobs.get_action(action.id)).state is ActionState.RUNNING

    async def is_done() -> bool:
        return (await storage.jobs.get_action(action.id)).state is ActionState.DONE

    runtime = QueueRuntime(storage, HandlerRegistry()).with_queues(one=1)
    async with runtime.start():
        await wait_until(is_done, description="the pod has gone on", timeout=60)
    record = await storage.jobs.get_action(action.id)
    assert sum(part.changed for part in record.parts) == len(ids)
    assert await storage.jobs.action_jobs(action.id, limit=1_000) == ids
