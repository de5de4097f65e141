"""Claims of queues with limits, which are one step of the server."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Hold, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.config.limits import lock_name
from forge_jobs.storage.sql.postgres.short import claim_cursors, claims
from tests.support.factories import (
    KIND,
    QUEUE,
    claim,
    done,
    enqueue_one,
    failed,
    get_job,
    new_job,
    register,
)
from tests.support.postgres import database_of, raw, touched, with_options
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
NAME = "tests.hosts"
OTHER = "tests.of_another_pod"


@pytest.fixture
async def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages to the server, of all connections that are opened from here on."""
    texts: list[str] = []
    connect = asyncpg.connect

    async def connected(*arguments: object, **options: object) -> object:
        connection = await connect(*arguments, **options)  # type: ignore[call-overload]
        connection.add_query_logger(lambda record: texts.append(record.query))
        return connection

    monkeypatch.setattr(asyncpg, "connect", connected)
    return texts


@pytest.fixture
async def store(url: str, asked: list[str]) -> AsyncIterator[Storage]:
    async with await open_storage(url) as opened:
        await opened.config.ensure_limits(QUEUE, {NAME: 1})
        yield opened


@pytest.fixture
async def lease(store: Storage) -> PodLease:
    return await register(store, lease_for=HOUR)


def demand(limit: int) -> Demand:
    return Demand(worker_ids=("w",), limit=limit, kinds=frozenset({KIND}))


async def add(storage: Storage, key: str, **fields: object) -> JobId:
    return await enqueue_one(storage, limit_name=NAME, limit_key=key, **fields)


async def test_an_exchange_within_limits_is_one_message(
    store: Storage, lease: PodLease, asked: list[str]
) -> None:
    for key in ("a", "a", "a", "b", "b"):
        await add(store, key)
    claimed = (await store.jobs.exchange(QUEUE, [], demand(3), lease)).claimed
    for _ in range(2):
        asked.clear()
        ends = [Finalization(each.claim, done()) for each in claimed]
        exchange = await store.jobs.exchange(QUEUE, ends, demand(3), lease)
        # Wake-ups, and settings of a session that is new or was used otherwise, may come between.
        [text] = [
            each
            for each in asked
            if "pg_notify(" not in each
            and not each.startswith(("SET", "RE"))
            and each not in {"BEGIN", "ROLLBACK"}  # a transaction of ours begins otherwise
        ]
        # No process can be frozen between the lock, the claims and the commit.
        assert "forge_claim_of_limits(" in text
        assert all(exchange.settled)
        claimed = exchange.claimed
    assert len(claimed) == 1


@pytest.mark.parametrize("end", [done(), failed(delay=HOUR)])
async def test_no_transaction_of_several_messages_has_the_lock_of_a_queue(
    store: Storage, lease: PodLease, asked: list[str], end: Transition
) -> None:
    for key in ("a", "a", "b", "b"):
        await add(store, key)
    # The first call does not know yet that jobs have limits.
    for count in (2, 2):
        claimed = (await store.jobs.exchange(QUEUE, [], demand(4), lease)).claimed
        assert len(claimed) == count
        ends = [Finalization(each.claim, end) for each in claimed]
        assert all(await store.jobs.finalize(ends))
    is_open = False
    steps = 0
    for text in asked:
        is_open = text != "COMMIT" and (is_open or "BEGIN ISOLATION" in text)
        if "forge_claim_of_limits(" in text or "pg_advisory_xact_lock(" in text:
            assert not is_open
            steps += 1
    assert steps == 2


async def test_an_end_that_needs_a_script_and_the_claim_answer_one_call(
    store: Storage, lease: PodLease
) -> None:
    first, second = sorted([await add(store, "a"), await add(store, "a")])
    claimed = (await store.jobs.exchange(QUEUE, [], demand(2), lease)).claimed
    assert [each.claim.job_id for each in claimed] == [first]
    end = Finalization(claimed[0].claim, failed(delay=HOUR))
    exchange = await store.jobs.exchange(QUEUE, [end], demand(2), lease)
    assert exchange.settled == (True,)
    assert [each.claim.job_id for each in exchange.claimed] == [second]


async def test_jobs_of_kinds_of_other_pods_are_passed_over(
    store: Storage, lease: PodLease, url: str
) -> None:
    await register(store, kinds=(OTHER,), lease_for=HOUR)
    others = [await add(store, "o", kind=OTHER, priority=-1) for _ in range(3)]
    # As many jobs of its kind as one look has room for are locked by a caller.
    locked = [await add(store, "locked") for _ in range(110)]
    mine = [await add(store, key, priority=1) for key in ("a", "a", "b")]
    unknown = await add(store, "u", kind="tests.of_no_pod")
    async with raw(url) as connection, connection.transaction():
        await connection.execute("SELECT FROM forge_jobs WHERE id = ANY ($1) FOR UPDATE", locked)
        claims = await claim(store, lease, limit=5)
        assert {each.claim.job_id for each in claims} == {min(mine[:2]), mine[2]}
    jobs = await store.jobs.get([*others, *mine, unknown])
    assert jobs[unknown].hold is Hold.UNKNOWN_KIND
    assert jobs[max(mine[:2])].hold is Hold.LIMIT
    assert {jobs[each].hold for each in others} == {None}


async def test_a_claim_waits_for_one_that_has_the_lock(
    store: Storage, lease: PodLease, url: str
) -> None:
    await add(store, "a")
    key = database_of(store).flavor.lock_key(lock_name(QUEUE))
    async with raw(url) as connection, raw(url) as watching:
        await connection.execute("SELECT pg_advisory_lock($1)", key)
        waiting = asyncio.create_task(claim(store, lease, limit=1))
        # For longer than a lone statement waits for a lock.
        await wait_until(
            lambda: watching.fetchval(
                "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)"
                " WHERE locktype = 'advisory' AND NOT granted"
                " AND clock_timestamp() - query_start > interval '200 ms')"
            ),
            description="the claim waits",
        )
        assert not waiting.done()
        await connection.execute("SELECT pg_advisory_unlock($1)", key)
        assert len(await waiting) == 1


async def test_behind_a_pooler_the_same_is_claimed(
    store: Storage, lease: PodLease, url: str
) -> None:
    for key in ("a", "a", "b"):
        await add(store, key)
    async with await open_storage(with_options(url, pgbouncer="true", wake="poll")) as pooled:
        claimed = (await pooled.jobs.exchange(QUEUE, [], demand(3), lease)).claimed
        assert len(claimed) == 2
        ends = [Finalization(each.claim, done()) for each in claimed]
        exchange = await pooled.jobs.exchange(QUEUE, ends, demand(3), lease)
        assert exchange.settled == (True, True)
        assert len(exchange.claimed) == 1
        counts = await pooled.jobs.counts((QUEUE,))
    assert counts[QUEUE].by_status["in_progress"] == 1


async def test_the_server_puts_no_entries_of_running_jobs_together(url: str) -> None:
    """The server would do so whenever a page is full, again and again: see ADR 312."""
    async with raw(url) as connection:
        options = await connection.fetchval(
            "SELECT reloptions FROM pg_class WHERE oid = 'forge_jobs_permits'::regclass"
        )
    assert options == ["deduplicate_items=off"]


async def test_a_claim_reads_no_job_on_hold_of_another_key(
    store: Storage, lease: PodLease, url: str
) -> None:
    """Also where the plans were made while no job was on hold."""
    waiting = 800
    await add(store, "full")
    assert len(await claim(store, lease, limit=1)) == 1
    await store.jobs.enqueue([new_job(limit_name=NAME, limit_key="full") for _ in range(waiting)])
    async with raw(url) as connection:
        await connection.execute("ANALYZE forge_jobs")
    # Puts them on hold.
    assert await claim(store, lease, limit=10) == []
    for number in range(2):
        keys = [f"{each} {number}" for each in "abcd"] * 2
        await store.jobs.enqueue([new_job(limit_name=NAME, limit_key=key) for key in keys])
        async with touched(store) as found:
            exchange = await store.jobs.exchange(QUEUE, [], demand(10), lease)
        assert len(exchange.claimed) == 4
    assert found[-1].fetched + found[-1].walked < waiting


async def test_jobs_that_went_on_hold_are_passed_once_a_while(
    store: Storage, lease: PodLease, url: str
) -> None:
    """Their entries stay in the index of ready jobs until a vacuum, known to be dead or not."""
    many = 6_000
    for _ in range(many // 1_000):
        await store.jobs.enqueue([new_job() for _ in range(1_000)])
    async with raw(url) as connection:
        await connection.execute("UPDATE forge_jobs SET hold = 'limit'")
    await store.jobs.enqueue([new_job() for _ in range(50)])
    # No session knows at first that they are dead.
    assert len(await claim(store, lease, limit=1)) == 1
    assert len((await store.jobs.exchange(QUEUE, [], demand(1), lease)).claimed) == 1
    async with await open_storage(url) as other, touched(other) as found:
        for _ in range(3):
            assert len((await other.jobs.exchange(QUEUE, [], demand(1), lease)).claimed) == 1
    first, *others = (each.blocks for each in found[-3:])
    assert max(others) < first / 2


async def test_claims_within_limits_pass_dead_entries_once_a_while(
    store: Storage, lease: PodLease
) -> None:
    await store.config.set_limit(QUEUE, NAME, 100_000)
    for number in range(6):
        await store.jobs.enqueue([_of(f"{number}") for _ in range(1_000)])
    await claim(store, lease, limit=4_000)
    async with touched(store) as found:
        for _ in range(4):
            assert len((await store.jobs.exchange(QUEUE, [], demand(1), lease)).claimed) == 1
    first, *others = (each.blocks for each in found[-4:])
    assert max(others) < first / 2


async def test_a_claim_behind_dead_entries_that_comes_short_looks_at_all_jobs(
    store: Storage, lease: PodLease
) -> None:
    await store.config.set_limit(QUEUE, NAME, 100_000)
    for number in range(6):
        await store.jobs.enqueue([_of(f"{number}") for _ in range(1_000)])
    while len(await claim(store, lease, limit=900)) == 900:
        pass
    await store.jobs.enqueue([_of("a"), _of("b")])
    assert len((await store.jobs.exchange(QUEUE, [], demand(1), lease)).claimed) == 1
    before = await add(store, "c", priority=-1)
    answer = await store.jobs.exchange(QUEUE, [], demand(3), lease)
    assert len(answer.claimed) == 2
    assert before in {each.claim.job_id for each in answer.claimed}


async def test_claims_that_begin_behind_dead_entries_pass_no_job_on_hold_of_a_key_they_meet(
    store: Storage, lease: PodLease, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They pass a ready job that comes to stand before them, for a second at most."""
    monkeypatch.setattr(claim_cursors, "FOR_S", float(HOUR.total_seconds()))
    await store.config.set_limit(QUEUE, NAME, 100_000)
    for number in range(6):
        await store.jobs.enqueue([_of(f"{number}") for _ in range(1_000)])
    await claim(store, lease, limit=4_000)
    await claim_one_of("4", store, lease)
    before = await add(store, "4", priority=-1)
    assert await claim_one_of("4", store, lease) != before
    async with raw(url) as other:
        await other.execute("UPDATE forge_jobs SET hold = 'limit' WHERE id = $1", before)
    assert await claim_one_of("4", store, lease) == before


async def test_jobs_that_a_failing_script_skips_are_due_at_once(
    store: Storage, lease: PodLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first job is of a kind of other pods, so the claim goes on in a script."""
    await enqueue_one(store, kind=OTHER)
    mine = {await enqueue_one(store) for _ in range(2)}
    with monkeypatch.context() as patch:

        def refused(*_: object, **__: object) -> None:
            raise Unavailable("the server has gone")

        patch.setattr(claims, "claim", refused)
        answer = await store.jobs.exchange(QUEUE, [], demand(2), lease)
    assert (len(answer.claimed), answer.next_due_in) == (1, timedelta(0))
    again = await store.jobs.exchange(QUEUE, [], demand(2), lease)
    assert {each.claim.job_id for each in (*answer.claimed, *again.claimed)} == mine


async def claim_one_of(key: str, storage: Storage, lease: PodLease) -> JobId:
    [one] = (await storage.jobs.exchange(QUEUE, [], demand(1), lease)).claimed
    assert (await get_job(storage, one.claim.job_id)).limit_key == key
    return one.claim.job_id


def _of(key: str) -> NewJob:
    return new_job(limit_name=NAME, limit_key=key)
