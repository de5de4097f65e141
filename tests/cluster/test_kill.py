"""Worker processes killed with SIGKILL, again and again."""

from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, PodProcess, quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ALIVE = 4
SLOTS = 16
JOBS_OF_A_ROUND = 34


@pytest.mark.daily
@pytest.mark.parametrize("rounds", [12, pytest.param(50, marks=pytest.mark.long)])
async def test_kills_lose_nothing_and_repeat_only_what_was_in_flight(
    storage: Storage, client: JobClient, pods: Fleet, ledger: Path, rounds: int
) -> None:
    jobs = rounds * JOBS_OF_A_ROUND
    # A pod that dies so often would otherwise be suspected itself: the same few jobs are first in
    # the queue each time.
    settings = quick_settings(max_crashes=1_000)
    queues = {"work": SLOTS}
    request = EnqueueRequest(
        "ledger.work",
        {"ledger": str(ledger), "seconds": 0.03},
        queue="work",
        max_attempts=1_000,
    )
    outcomes = await client.enqueue_many([request] * jobs)
    accepted = {outcome.job_id for outcome in outcomes}
    alive = [pods.start(queues, settings) for _ in range(ALIVE)]
    killed: list[PodProcess] = []
    stored: dict[str, int] = {}
    """Jobs that were done at some kill, with the token of their last run until then."""

    for _ in range(rounds):
        victim = alive.pop(0)
        await wait_until(
            partial(_has_run_or_all_is_done, ledger, victim.process_id, jobs),
            description="the next victim runs jobs",
            timeout=100,
        )
        victim.kill()
        killed.append(victim)
        done = await _done(storage, accepted)
        tokens = _last_tokens(Ledger.read(ledger))
        stored |= {job_id: tokens[job_id] for job_id in done - stored.keys()}
        alive.append(pods.start(queues, settings))
    await wait_until(
        lambda: _is_drained(storage, jobs), description="every job is done", timeout=100
    )

    ran = Ledger.read(ledger)
    assert ran.ended() == accepted
    assert ran.overlaps() == []
    victims = {pod.process_id for pod in killed}
    last_token = _last_tokens(ran)
    repeated = [run for run in ran.runs if run.token < last_token[run.job_id]]
    assert {run.process_id for run in repeated} <= victims
    assert {job_id: last_token[job_id] for job_id in stored} == stored, "an end was not in flight"


async def _done(storage: Storage, accepted: Collection[JobId]) -> set[str]:
    found = await storage.jobs.get(list(accepted))
    return {job.id for job in found.values() if job.status is JobStatus.DONE}


def _last_tokens(ran: Ledger) -> dict[str, int]:
    return {job_id: max(run.token for run in runs) for job_id, runs in ran.by_job().items()}


def _has_run_or_all_is_done(ledger: Path, process_id: int, jobs: int) -> bool:
    so_far = Ledger.read(ledger)
    has_run = any(run.process_id == process_id for run in so_far.runs)
    return has_run or len(so_far.ended()) == jobs


async def _is_drained(storage: Storage, jobs: int) -> bool:
    counts = (await storage.jobs.counts(["work"]))["work"].by_status
    return counts.get(JobStatus.DONE, 0) == jobs
