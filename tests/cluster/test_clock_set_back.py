"""Processes on a file, killed while the machine's clock was an hour ahead. Then the clock is set
right.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient, JobStatus, open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.clocks import WrongClock
from tests.support.ledger import Ledger
from tests.support.pods import Fleet
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.long,
    pytest.mark.parametrize("backend", ["sqlite"], indirect=True),
]

HOUR = timedelta(hours=1)


async def test_a_process_that_comes_after_does_their_work(
    url: str, storage: Storage, pods: Fleet, ledger: Path
) -> None:
    request = EnqueueRequest("ledger.linger", {"ledger": str(ledger), "seconds": 60}, queue="work")
    async with await open_storage(url, clock=WrongClock(HOUR)) as ahead:
        client = JobClient(ahead)
        lost = (await client.enqueue(request)).job_id
        killed = pods.start({"work": 1}, clock_off=HOUR.total_seconds())
        await wait_until(lambda: lost in Ledger.read(ledger).started(), description="it runs")
        killed.kill()
        waiting = (await client.enqueue(request.options())).job_id
        await client.aclose()

    pods.start({"work": 2})

    async def are_in_hand() -> bool:
        found = await storage.jobs.get([lost, waiting])
        return found[lost].status is JobStatus.DONE and waiting in Ledger.read(ledger).started()

    await wait_until(are_in_hand, description="the lost job is done, the other one runs")
    assert (await storage.jobs.get([lost]))[lost].crashes == 1
    [pod] = [each for each in await storage.procs.pods() if each.lease_remaining]
    leader = await storage.cron.leader()
    assert leader is not None
    assert leader.host_id == pod.pod.host_id
