"""Slots of real pods on one store: exact at every commit, and in what really ran."""

import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.cluster.grants import exceeded, grant_log
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

SLOTS = 6


async def grants(storage: Storage) -> list[int]:
    """The grants of the queue, largest first."""
    for allocation in await storage.procs.allocations():
        if allocation.queue == "work":
            return sorted((slots.grant for slots in allocation.pods.values()), reverse=True)
    return []


async def grants_are(storage: Storage, expected: list[int]) -> bool:
    """Return whether the grants are as expected."""
    return await grants(storage) == expected


async def test_slots_are_split_and_rebalanced_and_never_exceed_the_maximum(
    url: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    request = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0.1}, queue="work")
    await client.enqueue_many([request] * 600)
    async with grant_log(url) as log:
        first = pods.start({"work": SLOTS})
        await wait_until(lambda: grants_are(storage, [6]), description="one pod has all slots")
        second = pods.start({"work": SLOTS})
        await wait_until(lambda: grants_are(storage, [3, 3]), description="two pods share")
        third = pods.start({"work": SLOTS})
        await wait_until(lambda: grants_are(storage, [2, 2, 2]), description="three pods share")
        third.kill()
        await wait_until(lambda: grants_are(storage, [3, 3]), description="a killed pod's go back")
        await second.freeze()
        await wait_until(lambda: grants_are(storage, [6]), description="a frozen pod's too")
        thawed_ns = time.monotonic_ns()
        second.send(signal.SIGCONT)
        await wait_until(lambda: grants_are(storage, [3, 3]), description="it gets its share again")
        first.send(signal.SIGTERM)
        assert await first.wait() == 0
        await wait_until(lambda: grants_are(storage, [6]), description="a stopped pod's at once")
        sums = await log.sums()
        ran = Ledger.read(ledger)
        too_many = await exceeded(log, ran)

    assert max(sums) == SLOTS
    assert too_many == []
    # Handlers of a frozen process may come to their end before the process knows of the freeze. The
    # store then refuses their results.
    thawed = ran.open_at(thawed_ns, second.process_id)
    assert len(thawed) <= 3
    assert ran.most_at_once(but=thawed) <= SLOTS
    assert ran.most_at_once(third.process_id) <= 2


async def test_a_lowered_maximum_is_reached_without_growing_and_interrupts_nobody(
    url: str, storage: Storage, client: JobClient, pods: Fleet, ledger: Path
) -> None:
    request = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0.3}, queue="work")
    await client.enqueue_many([request] * 200)
    pods.start({"work": SLOTS})
    pods.start({"work": SLOTS})
    await wait_until(lambda: grants_are(storage, [3, 3]), description="two pods share")
    await wait_until(
        lambda: Ledger.read(ledger).most_at_once() == SLOTS, description="all slots are used"
    )

    async with grant_log(url) as log:
        await storage.config.set_queue("work", QueueChange(max_workers=2))
        await wait_until(lambda: grants_are(storage, [1, 1]), description="one slot each is left")
        sums = await log.sums()

    assert sums == sorted(sums, reverse=True)
    job = await storage.jobs.counts(["work"])
    assert job["work"].by_status.get("dead", 0) == 0
    assert {run.attempt for run in Ledger.read(ledger).runs} == {1}


@pytest.mark.daily
async def test_another_pod_leads_soon_after_the_coordinator_is_killed(
    storage: Storage, pods: Fleet
) -> None:
    pods.start({"work": 1})
    pods.start({"work": 1})
    led = await wait_until(lambda: _led(storage), description="somebody leads")
    pids = {pod.pod.host_id: pod.pod.process_id for pod in await storage.procs.pods()}
    [leader] = [pod for pod in pods.pods if pod.process_id == pids[led.host_id]]

    leader.kill()

    successor = await wait_until(
        lambda: _led(storage, not_by=led.host_id), description="another pod leads"
    )
    assert successor.term == led.term + 1


async def test_a_clean_stop_hands_the_lead_over_before_the_lease_would_run_out(
    storage: Storage, pods: Fleet
) -> None:
    settings = quick_settings(leader_lease=timedelta(minutes=5))
    pods.start({"work": 1}, settings)
    pods.start({"work": 1}, settings)
    led = await wait_until(lambda: _led(storage), description="somebody leads")
    pids = {pod.pod.host_id: pod.pod.process_id for pod in await storage.procs.pods()}
    [leader] = [pod for pod in pods.pods if pod.process_id == pids[led.host_id]]

    leader.send(signal.SIGTERM)

    assert await leader.wait() == 0
    await wait_until(
        lambda: _led(storage, not_by=led.host_id), description="another pod leads", timeout=100
    )


async def _led(storage: Storage, not_by: str = "") -> object:
    """Return the leader once two pods are there and the leader is not ``not_by``."""
    leader = await storage.cron.leader()
    if leader is None or leader.remaining <= timedelta(0) or leader.host_id in ("", not_by):
        return None
    if not not_by and len(await storage.procs.pods()) < 2:
        return None
    return leader
