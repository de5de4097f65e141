"""The driver of an action is killed again and again. Each job is changed once."""

import random
import signal
import sys
from pathlib import Path

import anyio
import pytest

from forge_jobs.model.actions import Action, ActionState
from forge_jobs.model.events import EventKind
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import new_job_id
from forge_jobs.model.queues import QueueChange
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.support.acting import JOBS_OF_A_STEP
from tests.support.factories import new_job

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

QUEUES = ("one", "two")
DEATHS = 10
JOBS = 2 * DEATHS * JOBS_OF_A_STEP
"""Of each queue: more than the drivers that die can finish."""


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
