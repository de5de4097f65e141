"""Many writers at once: no deadlock, nothing is done twice, and a caller's open transaction stalls
only those who need its rows.
"""

import random
from collections import Counter
from datetime import timedelta

import anyio
import pytest
from sqlalchemy import text

from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import JobStatus, Unique
from forge_jobs.model.processes import Beat, ClaimState
from forge_jobs.model.queues import RateLimit
from forge_jobs.model.transitions import Demand, Finalization, Revival
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.base.transaction import Tx
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    SECOND,
    claim,
    claim_one,
    crashed,
    done,
    enqueue_one,
    enqueue_patiently,
    held,
    new_job,
    register,
)
from tests.support.postgres import database_of, deadlocks, raw, with_options
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.only_rows]


async def test_bulk_writes_in_any_order_never_wait_in_a_circle(storage: Storage, url: str) -> None:
    lease = await register(storage)
    await storage.jobs.enqueue([new_job() for _ in range(300)])
    claimed = await claim(storage, lease, limit=300)
    dice = random.Random(7)

    async def finalize_some() -> None:
        for _ in range(6):
            some = dice.sample(claimed, 150)
            await storage.jobs.finalize([Finalization(each.claim, done()) for each in some])

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(finalize_some)
    counts = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status
    assert counts["in_progress"] + counts["done"] == 300
    await storage.aclose()
    assert await deadlocks(url) == 0


async def test_batches_with_the_same_keys_never_wait_in_a_circle(
    storage: Storage, url: str
) -> None:
    keys = [f"key-{n}" for n in range(100)]
    dice = random.Random(7)

    async def enqueue_some() -> None:
        for _ in range(5):
            wanted = [new_job(unique=Unique(key)) for key in dice.sample(keys, 60)]
            await enqueue_patiently(storage, wanted)

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(enqueue_some)
    stored = (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"]
    assert stored <= 100
    await storage.aclose()
    assert await deadlocks(url) == 0


async def test_of_many_producers_of_one_key_one_stores_a_job(url: str) -> None:
    winners: Counter[str] = Counter()

    async def produce(storage: Storage) -> None:
        for _ in range(40):
            [outcome] = await enqueue_patiently(storage, [new_job(unique=Unique("only"))])
            winners[outcome.job_id] += not outcome.deduplicated

    async with await open_storage(with_options(url, pool_size=8)) as storage:
        async with anyio.create_task_group() as group:
            for _ in range(16):
                group.start_soon(produce, storage)
        assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 1
    assert list(winners.values()) == [1]


async def test_a_key_that_is_freed_while_many_want_it_is_never_held_twice(storage: Storage) -> None:
    lease = await register(storage)
    stored: list[str] = []
    ended: list[str] = []

    async def produce() -> None:
        for _ in range(40):
            [outcome] = await enqueue_patiently(storage, [new_job(unique=Unique("only"))])
            if not outcome.deduplicated:
                stored.append(outcome.job_id)

    async def consume() -> None:
        for _ in range(60):
            for each in await claim(storage, lease):
                await storage.jobs.finalize([Finalization(each.claim, done())])
                ended.append(each.claim.job_id)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(produce)
        group.start_soon(consume)
    assert len(stored) == len(set(stored))
    assert len(stored) - len(ended) in (0, 1)
    assert set(ended) <= set(stored)


async def test_a_window_that_opened_while_a_call_was_on_its_way_counts(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job of the window may have run before the call looks."""
    lease = await register(storage)
    opener = await enqueue_one(storage, unique=Unique("k", "cooldown", timedelta(hours=2)))
    ended = Finalization((await claim_one(storage, lease)).claim, done())
    assert await storage.jobs.finalize([ended]) == [True]
    monkeypatch.setattr(Tx, "now", _AnHourAgo(), raising=False)
    late = new_job(unique=Unique("k", "cooldown", timedelta(hours=2)))
    [outcome] = await storage.jobs.enqueue([late])
    assert (outcome.job_id, outcome.deduplicated) == (opener, True)


class _AnHourAgo:
    """As transactions read the clock that then take an hour until they look at keys."""

    def __get__(self, tx: Tx, owner: object = None) -> int:
        now = tx.__dict__["now"] = tx.flavor.now_us(tx.connection) - 3_600_000_000
        return now


async def test_an_open_transaction_of_a_caller_starves_no_beat(url: str) -> None:
    clock = ManualClock()
    async with await open_storage(url, clock=clock) as storage:
        lease = await register(storage)
        await storage.jobs.enqueue([new_job(), new_job()])
        locked, other = await claim(storage, lease, limit=2)
        async with raw(url) as connection, connection.transaction():
            await connection.execute(
                "SELECT 1 FROM forge_jobs WHERE id = $1 FOR UPDATE", locked.claim.job_id
            )
            clock.advance(10 * SECOND)
            with anyio.fail_after(20):
                beat = await storage.jobs.heartbeat(
                    lease, [held(locked, "w1"), held(other, "w2")], LEASE
                )
            assert set(beat.claims.values()) == {ClaimState.HELD}
            clock.advance(10 * SECOND)
            # The beat was noted beside the row: no reaper revives the claim, and no call waits.
            assert await storage.jobs.stale_claims(LEASE, 10) == []
            with anyio.fail_after(20):
                revived = await storage.jobs.revive([Revival(locked.claim, crashed())], LEASE)
            assert revived == [False]
            with anyio.fail_after(20):
                assert await storage.jobs.finalize([Finalization(other.claim, done())]) == [True]
        beat = await storage.jobs.heartbeat(lease, [held(locked, "w1")], LEASE)
        assert beat.claims[locked.claim] is ClaimState.HELD
        assert await storage.jobs.stale_claims(LEASE, 10) == []


async def test_a_beat_that_had_to_wait_tells_the_slots_of_afterwards(
    storage: Storage, url: str
) -> None:
    lease = await register(storage)
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).queues
    beats: list[Beat] = []

    async def beat() -> None:
        beats.append(await storage.jobs.heartbeat(lease, [], LEASE))

    async with (
        raw(url) as connection,
        anyio.create_task_group() as group,
        connection.transaction(),
    ):
        # As a coordinator does after finding the lease lapsed.
        await connection.execute("SELECT 1 FROM forge_pods FOR UPDATE")
        group.start_soon(beat)
        await wait_until(
            lambda: connection.fetchval(
                "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)"
                " WHERE NOT granted AND datname = current_database())"
            ),
            description="the beat waits",
        )
        await connection.execute("DELETE FROM forge_slots")
    assert [(each.lease_held, each.queues) for each in beats] == [(True, {})]


async def test_claims_pass_by_what_a_caller_has_locked(storage: Storage, url: str) -> None:
    lease = await register(storage)
    first = await enqueue_one(storage)
    second = await enqueue_one(storage)
    async with raw(url) as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM forge_jobs WHERE id = $1 FOR UPDATE", first)
        with anyio.fail_after(20):
            claimed = await claim(storage, lease, limit=2)
        assert [each.claim.job_id for each in claimed] == [second]
    assert (await claim_one(storage, lease)).claim.job_id == first


async def test_a_job_is_never_left_on_hold_by_a_claim_that_races_a_registration(
    storage: Storage, url: str
) -> None:
    lease = await register(storage)
    job_id = await enqueue_one(storage, kind="new")
    demand = Demand(worker_ids=("w",), limit=1, kinds=frozenset({KIND}))

    def slow_claim(tx: Tx) -> None:
        assert not tx.flavor.claim(tx, QUEUE, demand, lease).rows
        tx.execute(text("SELECT pg_sleep(0.7)"))

    async with raw(url) as connection, anyio.create_task_group() as group:
        group.start_soon(database_of(storage).write, slow_claim)
        await wait_until(
            lambda: connection.fetchval(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE query LIKE '%pg_sleep(0.7)%' AND pid <> pg_backend_pid()"
            ),
            description="the claim has put the job on hold, and not committed it yet",
        )
        await register(storage, kinds=("new",))
    [job] = (await storage.jobs.get([job_id])).values()
    assert job.hold is None
    assert job.status is JobStatus.PENDING


async def test_a_takers_clock_is_read_under_the_lock(storage: Storage) -> None:
    await storage.config.ensure_rate_limit("gh", RateLimit(50, per=timedelta(days=1)))
    granted: list[bool] = []

    async def take() -> None:
        for _ in range(10):
            grant = await storage.config.take_tokens("gh", 1)
            granted.append(grant.granted)

    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(take)
    assert sum(granted) == 50


async def test_a_taker_that_waited_for_another_takes_as_of_its_own_time(url: str) -> None:
    clock = ManualClock()
    limit = RateLimit(capacity=10, per=10 * SECOND)
    async with await open_storage(url, clock=clock) as storage:
        await storage.config.ensure_rate_limit("gh", limit)
        await storage.config.take_tokens("gh", 4)
        async with (
            raw(url) as connection,
            anyio.create_task_group() as group,
            connection.transaction(),
        ):
            # As a taker of none does that came a second later and was first to have the lock.
            await connection.execute(
                "UPDATE forge_rate_limits SET updated_at = updated_at + 1000000,"
                " level = level - capacity * 1000000"
            )
            group.start_soon(storage.config.take_tokens, "gh", 2)
            await wait_until(
                lambda: connection.fetchval(
                    "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)"
                    " WHERE NOT granted AND datname = current_database())"
                ),
                description="the taker waits",
            )
        clock.advance(SECOND)
        [bucket] = await storage.config.rate_limits()
        assert bucket.available == 10 - (4 + 2) + 1


async def test_an_end_behind_a_lock_that_is_never_given_up_is_to_be_sent_again(url: str) -> None:
    async with (
        await open_storage(url) as storage,
        await open_storage(with_options(url, timeout=1)) as impatient,
    ):
        lease = await register(storage)
        await enqueue_one(storage)
        claimed = await claim_one(storage, lease)
        async with raw(url) as connection, connection.transaction():
            await connection.execute("SELECT 1 FROM forge_jobs FOR UPDATE")
            assert await impatient.jobs.finalize([Finalization(claimed.claim, done())]) == [None]
        assert await storage.jobs.finalize([Finalization(claimed.claim, done())]) == [True]


async def test_the_scripts_see_what_others_committed_after_a_lock(storage: Storage) -> None:
    """The isolation is read committed, whatever else a session may be set to."""
    level = await database_of(storage).write(
        lambda tx: tx.execute(text("SHOW transaction_isolation")).scalar_one()
    )
    assert level == "read committed"
