"""Fleets of two to six pods with different queues under load, whose coordinators are killed."""

from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from forge_jobs import EnqueueRequest, JobClient
from forge_jobs.model.ids import HostId
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.cluster.grants import GrantLog, exceeded, grant_log
from tests.support.ledger import Ledger
from tests.support.pods import Fleet, PodProcess
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.long,
]

WORK, SIDE = 6, 4
BOTH = {"work": WORK, "side": SIDE}
ONE = {"work": WORK}


async def is_shared(storage: Storage, wanted: dict[str, tuple[int, int]]) -> bool:
    """Return whether the queues (pods, slots) have such shares, which differ by one at most."""
    for allocation in await storage.procs.allocations():
        pods, slots = wanted[allocation.queue]
        grants = [each.grant for each in allocation.pods.values()]
        if len(grants) != pods or sum(grants) != slots or max(grants) - min(grants) > 1:
            return False
    return True


async def shared(
    storage: Storage, pods: list[tuple[PodProcess, dict[str, int]]], work: int = WORK
) -> None:
    """Wait until these pods, and no others, have equal shares of all slots."""
    slots = {"work": work, "side": SIDE}
    wanted = {
        queue: (sum(queue in declared for _, declared in pods), slots[queue]) for queue in slots
    }
    await wait_until(
        partial(is_shared, storage, wanted), description=f"shares are {wanted}", timeout=100
    )


async def coordinator(
    storage: Storage, pods: list[tuple[PodProcess, dict[str, int]]]
) -> tuple[PodProcess, dict[str, int]]:
    """The pod that leads."""

    async def look() -> tuple[PodProcess, dict[str, int]] | None:
        leader = await storage.cron.leader()
        processes: dict[HostId, int] = {
            state.pod.host_id: state.pod.process_id for state in await storage.procs.pods()
        }
        if leader is None or not leader.remaining:
            return None
        led_by = processes.get(leader.host_id)
        return next(((pod, names) for pod, names in pods if pod.process_id == led_by), None)

    found: tuple[PodProcess, dict[str, int]] = await wait_until(
        look, description="a living pod leads", timeout=100
    )
    return found


async def load(client: JobClient, queue: str, ledger: Path) -> None:
    """Far more jobs than are done before the test ends."""
    request = EnqueueRequest("ledger.work", {"ledger": str(ledger), "seconds": 0.1}, queue=queue)
    await client.enqueue_many([request.options(max_attempts=1_000)] * 5_000)


async def test_no_commit_grants_more_than_the_maximum_whoever_joins_dies_or_coordinates(
    url: str, storage: Storage, client: JobClient, pods: Fleet, tmp_path: Path
) -> None:
    ledgers = {queue: tmp_path / queue for queue in BOTH}
    for queue, path in ledgers.items():
        await load(client, queue, path)
    async with grant_log(url) as log:
        alive = [(pods.start(declared), declared) for declared in (BOTH, ONE)]
        await shared(storage, alive)
        alive += [(pods.start(declared), declared) for declared in (BOTH, ONE, BOTH, ONE)]
        await shared(storage, alive)

        await storage.config.set_queue("work", QueueChange(max_workers=9))
        await shared(storage, alive, 9)
        before = len(await log.sums())
        assert max(await log.sums()) == 9

        await storage.config.set_queue("work", QueueChange(max_workers=3))
        await shared(storage, alive, 3)
        await _never_grew(log, before)
        lowered = len(await log.sums())

        killed: list[PodProcess] = []
        while len(alive) > 2:
            leader = await coordinator(storage, alive)
            if sum("side" in declared for _, declared in alive) == 1 and "side" in leader[1]:
                alive.append((pods.start(BOTH), BOTH))
                await shared(storage, alive, 3)
            leader[0].kill()
            killed.append(leader[0])
            alive.remove(leader)
            await shared(storage, alive, 3)
        assert max(islice(await log.sums(), lowered, None)) == 3
        assert max(await log.sums("side")) == SIDE
        too_many = [
            run
            for queue, path in ledgers.items()
            for run in await exceeded(log, Ledger.read(path), queue)
        ]

    assert too_many == []
    assert len(killed) >= 4
    for path in ledgers.values():
        assert Ledger.read(path).overlaps() == []


async def _never_grew(log: GrantLog, since: int) -> None:
    """The sum of grants only sank, from the first write after a maximum was lowered on."""
    sums = (await log.sums())[since:]
    assert sums == sorted(sums, reverse=True)
    assert sums[-1] == 3
