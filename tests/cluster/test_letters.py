"""A process dies while relaying letters. Each letter becomes one job all the same."""

import signal
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, dead_letter_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.support.ledger import Ledger
from tests.support.pods import Fleet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

JOBS = 30


@pytest.mark.parametrize("point", ["letters:read", "letters:stored", "letters:committed"])
async def test_a_process_that_dies_while_it_relays_loses_and_doubles_no_letter(
    point: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    await storage.config.set_queue("work", QueueChange(dead_letter="parked"))
    request = EnqueueRequest("ledger.die", {"ledger": str(ledger)}, queue="work")
    accepted = {one.job_id for one in await client.enqueue_many([request] * JOBS)}
    marker = ledger.with_name("died")
    queues = {"work": 4, "parked": 2}
    fleet = [pods.start(queues, dies_at=(point, 2, str(marker))) for _ in range(2)]

    async def is_done() -> bool:
        counts = (await storage.jobs.counts(["parked"])).get("parked")
        return counts is not None and counts.by_status[JobStatus.DONE] == len(accepted)

    await wait_until(is_done, description="every letter was read", timeout=100)
    # One pass may have taken all letters, and comes to the point once. Of three in two processes
    # two were of one process.
    for _ in range(3):
        if not marker.exists():
            accepted |= {one.job_id for one in await client.enqueue_many([request] * JOBS)}
            await wait_until(is_done, description="every letter was read", timeout=100)

    def is_dead() -> bool:
        return any(pod.exit_code is not None for pod in fleet)

    await wait_until(is_dead, description="a process has died", timeout=100)
    dead = [pod for pod in fleet if pod.exit_code is not None]
    assert [pod.exit_code for pod in dead] == [-signal.SIGKILL]
    page = await storage.jobs.list(JobFilter(queues=("parked",)), limit=1_000)
    found = (await storage.jobs.get([each.id for each in page.jobs])).values()
    letters = [letter for job in found if (letter := dead_letter_of(job)) is not None]
    assert sorted(letter.job_id for letter in letters) == sorted(accepted)
    assert Ledger.read(ledger).ended() == {job.id for job in found}
    assert await storage.jobs.letters(10) == []
