"""An old snapshot keeps dead rows alive: the work goes on, and the cost is reported."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import ClaimState, PodLease
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    KIND,
    LEASE,
    QUEUE,
    claim,
    cleaned_up,
    done,
    held,
    new_job,
    register,
)
from tests.support.postgres import a_role, raw, touched, with_options

pytestmark = pytest.mark.anyio

ROUNDS, BATCH = 12, 250
ENDED = ROUNDS * BATCH
"""Jobs that have come and gone since the snapshot."""

PASSES = {"claim": 2.5, "beat": 6.0, "silent claims": 2.5, "ends": 0.5, "cleanup": 1.5}
"""How often a call may meet each of those that have ended, and that no vacuum may remove."""


@asynccontextmanager
async def old_snapshot(url: str) -> AsyncGenerator[None]:
    """Hold a transaction that sees none of the jobs that come meanwhile."""
    async with (
        raw(url) as reader,
        reader.transaction(isolation="repeatable_read", readonly=True),
    ):
        assert await reader.fetchval("SELECT count(*) FROM forge_jobs") == 0
        yield
        assert await reader.fetchval("SELECT count(*) FROM forge_jobs") == 0


async def a_whole_life(storage: Storage, lease: PodLease) -> None:
    """Run a batch of jobs from enqueue to end. No job is left to be claimed."""
    await storage.jobs.enqueue([new_job() for _ in range(BATCH)])
    claimed = await claim(storage, lease, limit=BATCH)
    assert len(claimed) == BATCH
    beat = await storage.jobs.heartbeat(lease, [held(each, "w") for each in claimed], LEASE)
    assert list(beat.claims.values()) == [ClaimState.HELD] * BATCH
    assert all(await storage.jobs.finalize([Finalization(each.claim, done()) for each in claimed]))
    assert await claim(storage, lease, limit=BATCH) == []


async def come_and_go(storage: Storage, clock: ManualClock) -> None:
    """Many jobs end and are removed, as far as the store can."""
    for _ in range(ROUNDS):
        await a_whole_life(storage, await register(storage))
        clock.advance(8 * DAY)
        assert await cleaned_up(storage, batch=BATCH // 2) >= BATCH


async def test_jobs_come_and_go_under_an_old_snapshot(url: str) -> None:
    clock = ManualClock()
    async with await open_storage(url, clock=clock) as storage, old_snapshot(url):
        await come_and_go(storage, clock)
        counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
    assert not any(counts.values())


async def test_calls_read_no_more_rows_under_an_old_snapshot_and_pass_each_dead_one_a_few_times(
    url: str,
) -> None:
    """A vacuum takes the dead ones away, once the snapshot has ended."""
    clock = ManualClock()
    async with await open_storage(url, clock=clock) as storage, old_snapshot(url):
        await come_and_go(storage, clock)
        lease = await register(storage)
        await storage.jobs.enqueue([new_job() for _ in range(2 * BATCH)])
        async with raw(url) as connection:
            await connection.execute("ANALYZE forge_jobs")
        async with touched(storage) as found:
            claimed = await claim(storage, lease, limit=10)
            await storage.jobs.heartbeat(lease, [held(each, "w") for each in claimed], LEASE)
            await storage.jobs.stale_claims(LEASE, 500)
            await storage.jobs.finalize([Finalization(each.claim, done()) for each in claimed])
            await storage.jobs.cleanup(100)
    assert len(claimed) == 10
    assert max(each.scanned + each.fetched for each in found) <= 60
    assert len(found) == len(PASSES)
    passes = [each.walked / ENDED for each in found]
    assert all(each <= most for each, most in zip(passes, PASSES.values(), strict=True)), passes


async def test_one_claim_a_while_passes_the_dead_rows_and_none_of_the_jobs_is_left_out(
    url: str,
) -> None:
    asked = Demand(worker_ids=(), limit=10, kinds=frozenset({KIND}))
    async with await open_storage(url) as storage, old_snapshot(url):
        lease = await register(storage)
        for _ in range(ROUNDS):
            await a_whole_life(storage, lease)
        await storage.jobs.enqueue([new_job() for _ in range(45)])
        async with touched(storage) as found:
            exchanges = [await storage.jobs.exchange(QUEUE, [], asked, lease) for _ in range(4)]
        await storage.jobs.enqueue([new_job(priority=-1)])
        exchanges.append(await storage.jobs.exchange(QUEUE, [], asked, lease))
    assert [len(each.claimed) for each in exchanges] == [10, 10, 10, 10, 6]
    assert found[0].walked > ENDED
    assert all(each.walked < ENDED / 10 for each in found[1:4]), found
    in_front = exchanges[-1]
    assert in_front.claimed[-1].priority == -1
    assert in_front.next_due_in == timedelta(0)


async def test_the_oldest_transaction_that_keeps_dead_rows_is_known(url: str) -> None:
    async with await open_storage(url) as storage:
        assert storage.open_transactions is not None
        assert (await storage.open_transactions()).oldest == timedelta(0)
        async with raw(url) as idle, idle.transaction():
            await idle.execute("SELECT 1")
            # The transaction has no snapshot between its statements, and has changed nothing.
            assert (await storage.open_transactions()).oldest == timedelta(0)
        async with old_snapshot(url):
            first = await storage.open_transactions()
            second = await storage.open_transactions()
            assert timedelta(0) < first.oldest < second.oldest
            assert (first.hidden, second.hidden) == (0, 0)
        async with raw(url) as writer, writer.transaction():
            await writer.execute("SELECT pg_current_xact_id()")
            assert (await storage.open_transactions()).oldest > timedelta(0)
        assert (await storage.open_transactions()).oldest == timedelta(0)


async def test_a_role_that_may_not_see_the_age_of_a_transaction_says_that_there_is_one(
    url: str,
) -> None:
    async with (
        a_role(url, "word") as its_url,
        await open_storage(with_options(its_url, schema="its_own")) as storage,
    ):
        assert storage.open_transactions is not None
        async with old_snapshot(url):
            found = await storage.open_transactions()
    assert (found.oldest, found.hidden) == (timedelta(0), 1)
