"""FLUSHALL, or every row deleted, under worker processes that go on."""

from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.storage.protocols import Storage
from tests.support.emptying import empty
from tests.support.ledger import Ledger
from tests.support.pods import Fleet
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

SLOTS = 3
JOBS = 12


@pytest.mark.daily
async def test_workers_have_their_slots_back_and_no_more_than_those(
    storage: Storage, backend: str, client: JobClient, pods: Fleet, ledger: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        pods.start({"work": SLOTS})
    await wait_until(lambda: _granted(storage), description="the slots are shared out")

    await empty(backend, tmp_path)

    await wait_until(lambda: _granted(storage), description="the slots are shared out again")
    payload = {"ledger": str(ledger), "seconds": 0.3}
    await client.enqueue_many([EnqueueRequest("ledger.work", payload, queue="work")] * JOBS)
    await wait_until(lambda: len(Ledger.read(ledger).ended()) == JOBS, description="all have run")
    assert _most_at_once(Ledger.read(ledger)) <= SLOTS
    assert [pod.exit_code for pod in pods.pods] == [None, None]


async def _granted(storage: Storage) -> bool:
    work = [each for each in await storage.procs.allocations() if each.queue == "work"]
    return any(sum(pod.grant for pod in each.pods.values()) == SLOTS for each in work)


def _most_at_once(ledger: Ledger) -> int:
    steps = [(run.started_ns, 1) for run in ledger.runs]
    steps += [(run.ended_ns, -1) for run in ledger.runs if run.ended_ns is not None]
    inside = most = 0
    for _, step in sorted(steps):
        inside += step
        most = max(most, inside)
    return most
