"""Calls that write many rows, at once and in any order: no deadlock."""

import random
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

import anyio
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Locked
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, NewJob, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Cooldown, Delivery, Finalization, Revival
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    LEASE,
    QUEUE,
    claim,
    crashed,
    dead,
    done,
    failed,
    held,
    new_job,
    only,
    register,
)
from tests.support.postgres import deadlocks, raw, with_options
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

SEED = 20


@pytest.fixture
def url(url: str) -> str:
    """With room for everybody, and patience."""
    return with_options(url, pool_size=12, timeout=60)


async def at_once(*calls: Coroutine[Any, Any, Any]) -> None:
    async def wait_for(call: Coroutine[Any, Any, Any]) -> None:
        await call

    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(wait_for, call)


async def test_requeues_take_their_keys_in_one_order_whatever_their_ids(
    storage: Storage, url: str
) -> None:
    async def ended_jobs(*keys: str) -> list[JobId]:
        made = [new_job(unique=Unique(key)) for key in keys]
        found = [each.job_id for each in await storage.jobs.enqueue(made)]
        await storage.jobs.cancel(only(*found))
        return found

    mine, theirs = await ended_jobs("b", "m", "a"), await ended_jobs("a", "b")
    blocker = await ended_jobs("m")
    plain = url.partition("?")[0]
    async with (
        raw(plain) as connection,
        raw(plain) as watcher,
        anyio.create_task_group() as group,
    ):

        async def wait_in_the_server(count: int) -> None:
            async def do_wait() -> bool:
                waiting: int = await watcher.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND wait_event_type = 'Lock'"
                )
                return waiting == count

            await wait_until(do_wait, description=f"{count} requeues wait", timeout=30)

        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "UPDATE forge_jobs SET status = 'pending' WHERE id = $1", blocker[0]
        )
        group.start_soon(storage.jobs.requeue, only(*mine))
        await wait_in_the_server(1)
        group.start_soon(storage.jobs.requeue, only(*theirs))
        await wait_in_the_server(2)
        await transaction.rollback()
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 3
    await storage.aclose()
    assert await deadlocks(url) == 0


async def test_ends_of_parents_and_of_their_children_never_wait_in_a_circle(
    storage: Storage, url: str
) -> None:
    dice = random.Random(SEED)
    lease = await register(storage, lease_for=timedelta(hours=1))
    for _ in range(6):
        parents = [new_job() for _ in range(60)]
        await storage.jobs.enqueue(parents)
        ids = [each.id for each in parents]
        children: list[NewJob] = []
        for _ in range(120):
            after = tuple(After(parent, "continue") for parent in dice.sample(ids, 5))
            children.append(new_job(after=after))
        await storage.jobs.enqueue(children)
        claimed = await claim(storage, lease, limit=60)
        ends = [Finalization(each.claim, done()) for each in dice.sample(claimed, 60)]
        theirs = [each.id for each in children]
        await at_once(
            storage.jobs.finalize(ends),
            storage.jobs.delete(only(*theirs[:60])),
            storage.jobs.cancel(only(*theirs[60:])),
        )
    await storage.aclose()
    assert await deadlocks(url) == 0


class Storm:
    """Bulk writes of every sort on the jobs of one store, chosen by dice."""

    def __init__(self, storage: Storage, clock: ManualClock) -> None:
        self.storage = storage
        self.clock = clock
        self.ids: list[JobId] = []
        self.dice = random.Random(SEED)

    def some(self, count: int = 80) -> JobFilter:
        return only(*self.dice.sample(self.ids, min(count, len(self.ids))))

    async def enqueues(self) -> None:
        keys = self.dice.sample([f"key-{n}" for n in range(50)], 20)
        jobs = [new_job(unique=Unique(key)) for key in keys]
        parents = self.dice.sample(self.ids, min(3, len(self.ids)))
        soon = self.clock.now() + timedelta(seconds=1)
        jobs += [new_job(expires_at=soon) for _ in range(10)]
        jobs += [
            new_job(after=tuple(After(each, "continue") for each in parents)) for _ in range(10)
        ]
        with suppress(Locked):  # by a batch that takes longer than an enqueue waits
            self.ids += [each.job_id for each in await self.storage.jobs.enqueue(jobs)]

    async def works(self) -> None:
        lease = await register(self.storage)
        claimed = await claim(self.storage, lease, limit=40)
        await self.storage.jobs.heartbeat(lease, [held(each, "w") for each in claimed], LEASE)
        ends = [done(), failed(), dead(), failed(cooldown=Cooldown(timedelta(0), 1))]
        await self.storage.jobs.finalize(
            [Finalization(each.claim, self.dice.choice(ends)) for each in claimed[5:]]
        )

    async def reaps(self) -> None:
        self.clock.advance(timedelta(seconds=5))
        stale = await self.storage.jobs.stale_claims(timedelta(seconds=4), 100)
        revivals = [Revival(each.claim, crashed()) for each in stale]
        await self.storage.jobs.revive(revivals, timedelta(seconds=4))

    async def delivers(self) -> None:
        news = await self.storage.jobs.handovers(100)
        await self.storage.jobs.deliver([Delivery(each, "settle") for each in news])

    async def tidies(self) -> None:
        await self.storage.jobs.expire(100)
        await self.storage.jobs.roll_up(1000)
        await self.storage.jobs.cleanup(100)

    async def cancels(self) -> None:
        await self.storage.jobs.cancel(self.some())

    async def requeues(self) -> None:
        await self.storage.jobs.requeue(self.some())

    async def runs_now(self) -> None:
        await self.storage.jobs.run_now(self.some())


@pytest.mark.long
async def test_a_storm_of_all_bulk_writes_ends_without_a_deadlock(url: str) -> None:
    clock = ManualClock()
    async with await open_storage(url, clock=clock) as storage:
        storm = Storm(storage, clock)
        for _ in range(5):
            await storm.enqueues()
        verbs = [
            storm.enqueues,
            storm.works,
            storm.reaps,
            storm.delivers,
            storm.tidies,
            storm.cancels,
            storm.requeues,
            storm.runs_now,
        ]

        async def go_on(seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(12):
                await dice.choice(verbs)()

        async with anyio.create_task_group() as group:
            for seed in range(8):
                group.start_soon(go_on, SEED + seed)
        counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
        assert sum(counts.values()) == len(set(storm.ids))
    assert await deadlocks(url) == 0


async def test_eight_pods_that_claim_at_once_never_share_a_job_nor_exceed_a_limit(
    url: str,
) -> None:
    taken: list[JobId] = []
    async with await open_storage(url) as storage:
        leases = [await register(storage) for _ in range(8)]
        await storage.jobs.enqueue([new_job(priority=n % 3) for n in range(900)])

        async def drain(lease: PodLease) -> None:
            while claimed := await claim(storage, lease, limit=7):
                assert len(claimed) <= 7
                taken.extend(each.claim.job_id for each in claimed)

        async with anyio.create_task_group() as group:
            for lease in leases:
                group.start_soon(drain, lease)
        # Each passed by what the others had locked at that moment.
        for lease in leases:
            await drain(lease)
        counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
    assert len(taken) == len(set(taken)) == counts["in_progress"] == 900
