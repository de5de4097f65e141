"""A worker process dies at each place where dying could cost a job, or run one twice."""

import signal
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import seed_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.storage.protocols import Storage
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, PodProcess
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

JOBS = 40
SLOTS = 4
POINTS = {
    "claim:before": 2,
    "claim:committed": 2,
    "run:start": 5,
    "run:end": 5,
    "finalize:before": 3,
    "finalize:committed": 3,
    "beat:before": 2,
    "beat:committed": 2,
    "slots:planned": 1,
    "slots:granted": 1,
    "handover:read": 1,
    "handover:committed": 1,
}
"""The last visit of each point."""


@pytest.mark.daily("claim:committed", "finalize:committed", "handover:read")
@pytest.mark.parametrize("point", sorted(POINTS))
async def test_a_process_that_dies_anywhere_costs_and_doubles_nothing(
    point: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    accepted = await _family(client, ledger)
    marker = str(ledger.with_name("died"))
    fleet = [pods.start({"work": SLOTS}, dies_at=(point, POINTS[point], marker)) for _ in range(2)]

    await wait_until(
        lambda: _is_done(storage, len(accepted)), description="every job is done", timeout=100
    )

    [dead] = await wait_until(lambda: _dead(fleet), description=f"a pod died at {point}")
    assert dead.exit_code == -signal.SIGKILL
    ran = Ledger.read(ledger)
    assert ran.ended() == accepted
    assert ran.overlaps() == []
    last_token = {job_id: max(run.token for run in runs) for job_id, runs in ran.by_job().items()}
    repeated = [run for run in ran.runs if run.token < last_token[run.job_id]]
    assert {run.process_id for run in repeated} <= {dead.process_id}


CHAINS, OCCURRENCES = 4, 12


@pytest.mark.parametrize("point", ["run:end", "finalize:before", "finalize:committed"])
async def test_a_chain_loses_and_doubles_no_occurrence_with_its_process(
    point: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    """Kill a pod after the handler has said Again, before and after the store knows."""
    payload = {"ledger": str(ledger), "number": 1, "last": OCCURRENCES}
    request = EnqueueRequest("ledger.chain", payload, queue="work")
    chains = {(await client.enqueue(request)).job_id for _ in range(CHAINS)}
    marker = str(ledger.with_name("died"))
    fleet = [pods.start({"work": SLOTS}, dies_at=(point, 5, marker)) for _ in range(2)]

    await wait_until(
        lambda: _is_done(storage, CHAINS), description="every chain has ended", timeout=100
    )

    [dead] = await wait_until(lambda: _dead(fleet), description=f"a pod died at {point}")
    assert dead.exit_code == -signal.SIGKILL
    ran = Ledger.read(ledger)
    assert set(ran.by_job()) == chains
    for runs in ran.by_job().values():
        # In this ledger the number of an attempt is that of the occurrence.
        numbers = [run.attempt for run in sorted(runs, key=lambda run: run.token)]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(1, OCCURRENCES + 1))
    # Only the dead process has runs that were repeated, and at most one of each chain.
    last = {(run.job_id, run.attempt): run.token for run in ran.runs}
    doubled = [run for run in ran.runs if run.token < last[run.job_id, run.attempt]]
    assert {run.process_id for run in doubled} <= {dead.process_id}
    assert len({run.job_id for run in doubled}) == len(doubled)


@pytest.mark.parametrize("point", ["enqueue:before", "enqueue:committed", "run:end"])
async def test_pods_that_start_together_and_die_make_one_seeded_job(
    point: str, storage: Storage, pods: Fleet, ledger: Path
) -> None:
    seed: dict[str, str | int] = {"ledger": str(ledger), "number": 1, "last": OCCURRENCES}
    marker = str(ledger.with_name("died"))
    fleet = [pods.start({"work": 1}, dies_at=(point, 1, marker), seed=seed) for _ in range(4)]

    await wait_until(lambda: _is_done(storage, 1), description="the chain has ended", timeout=100)
    await wait_until(lambda: _dead(fleet), description=f"a pod died at {point}")

    [job] = (await storage.jobs.list(JobFilter(), limit=10)).jobs
    assert (job.id, job.status) == (seed_job_id("ledger.chain"), JobStatus.DONE)
    numbers = {run.attempt for run in Ledger.read(ledger).runs}
    assert numbers == set(range(1, OCCURRENCES + 1))


@pytest.mark.long
@pytest.mark.parametrize("point", ["reap:read", "reap:committed"])
async def test_a_reaper_that_dies_there_leaves_its_work_to_others(
    point: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    accepted = await _family(client, ledger)
    first = pods.start({"work": SLOTS})
    await wait_until(lambda: Ledger.read(ledger).started(), description="the first pod works")
    marker = str(ledger.with_name("died"))
    reapers = [pods.start({"work": SLOTS}, dies_at=(point, 1, marker)) for _ in range(2)]
    first.kill()

    await wait_until(
        lambda: _is_done(storage, len(accepted)), description="every job is done", timeout=100
    )

    assert len(await wait_until(lambda: _dead(reapers), description="a reaper died")) == 1
    ran = Ledger.read(ledger)
    assert ran.ended() == accepted
    assert ran.overlaps() == []


@pytest.mark.parametrize("point", ["stop:drained", "stop:leaving"])
async def test_a_pod_that_dies_while_it_leaves_is_replaced(
    point: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    accepted = await _family(client, ledger)
    marker = str(ledger.with_name("died"))
    leaving = pods.start({"work": SLOTS}, dies_at=(point, 1, marker))
    await wait_until(lambda: Ledger.read(ledger).ended(), description="the pod works")
    leaving.send(signal.SIGTERM)
    assert await leaving.wait() == -signal.SIGKILL
    pods.start({"work": SLOTS})

    await wait_until(
        lambda: _is_done(storage, len(accepted)), description="every job is done", timeout=100
    )

    ran = Ledger.read(ledger)
    assert ran.ended() == accepted
    assert ran.overlaps() == []
    # Before the last ends are stored, at most as many as slots are missing, afterwards none.
    assert len(ran.repeated()) <= (SLOTS if point == "stop:drained" else 0)


async def _family(client: JobClient, ledger: Path) -> set[str]:
    """Enqueue jobs of which every fourth waits for the one before, and return their ids."""
    ids: list[str] = []
    for number in range(JOBS):
        request = EnqueueRequest(
            "ledger.work", {"ledger": str(ledger), "seconds": 0.02}, queue="work"
        )
        after = [ids[-1]] if number % 4 == 3 else []
        ids.append((await client.enqueue(request, after=after)).job_id)
    return set(ids)


async def _is_done(storage: Storage, jobs: int) -> bool:
    counts = (await storage.jobs.counts(["work"]))["work"].by_status
    return counts.get(JobStatus.DONE, 0) == jobs


def _dead(fleet: list[PodProcess]) -> list[PodProcess]:
    return [pod for pod in fleet if pod.exit_code is not None]
