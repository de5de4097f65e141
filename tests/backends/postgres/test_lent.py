"""Statements of an enqueue in a caller's transaction, and conflicts with others."""

from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest
from msgspec import structs

from forge_jobs.errors import Conflict, NotFound, Unavailable
from forge_jobs.model.jobs import After, EnqueueOutcome, JobStatus, Unique
from forge_jobs.model.transitions import Finalization
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres import flavor
from forge_jobs.storage.sql.postgres.flavor import channel_of
from tests.support.asked import asked, beside_notices
from tests.support.callers import OPENERS, Opener, drivers_own
from tests.support.factories import (
    KIND,
    QUEUE,
    claim_for,
    counters,
    done,
    enqueue_one,
    new_job,
    register,
)
from tests.support.postgres import raw
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.only_rows]


@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
async def test_an_enqueue_is_one_statement_without_a_savepoint(
    storage: Storage, url: str, opener: Opener
) -> None:
    async with opener(url) as (connection, end):
        # The first says whose database the connection leads to.
        await storage.jobs.enqueue([new_job()], connection=connection)
        with asked() as seen:
            await storage.jobs.enqueue([new_job()], connection=connection)
            await storage.jobs.enqueue([new_job(unique=Unique("k"))], connection=connection)
            jobs = [new_job(queue=f"q{number % 3}") for number in range(10)]
            await storage.jobs.enqueue(jobs, connection=connection)
        assert beside_notices(seen) == 3
        await end(True)
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 3
    assert (await counters(storage))["enqueued"] == 3


@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
async def test_a_job_that_comes_after_others_is_one_statement_too(
    storage: Storage, url: str, opener: Opener
) -> None:
    lease = await register(storage)
    ended = await enqueue_one(storage)
    running = await enqueue_one(storage)
    claimed = await claim_for(storage, QUEUE, ["w", "x"], 2, frozenset({KIND}), lease)
    [theirs] = [each.claim for each in claimed if each.claim.job_id == ended]
    [left] = [each.claim for each in claimed if each.claim.job_id == running]
    await storage.jobs.finalize([Finalization(theirs, done())])
    waiting = await enqueue_one(storage)
    async with opener(url) as (connection, end):
        parent, *_ = uncommitted = new_job(), new_job()
        await storage.jobs.enqueue(uncommitted, connection=connection)
        first = new_job(queue="new", after=(After(parent.id), After(waiting), After(parent.id)))
        second = new_job(after=(After(first.id, "hold"), After(ended), After(running, "continue")))
        with asked() as seen:
            await storage.jobs.enqueue([first, second], connection=connection)
        assert beside_notices(seen) == 1
        await end(True)
    found = await storage.jobs.get([first.id, second.id])
    assert set(found[first.id].waits_for) == {parent.id, waiting}
    assert set(found[second.id].waits_for) == {first.id, ended, running}
    assert found[first.id].status is found[second.id].status is JobStatus.BLOCKED
    [news] = await storage.jobs.handovers(10)
    assert (news.child_id, news.parent_id) == (second.id, ended)
    assert news.parent_status is JobStatus.DONE
    # The end of the parent reaches the child, because the parent knows of the child.
    assert await storage.jobs.finalize([Finalization(left, done())]) == [True]
    told = {each.parent_id: each.on_failure for each in await storage.jobs.handovers(10)}
    assert told == {ended: "cancel", running: "continue"}
    assert (await counters(storage))["enqueued"] == 6


async def test_a_refused_call_sets_no_savepoint_either(storage: Storage, url: str) -> None:
    holder = await enqueue_one(storage, unique=Unique("k"))
    async with drivers_own(url) as (connection, end):
        stored = new_job(queue="mine")
        await storage.jobs.enqueue([stored], connection=connection)
        with asked() as seen:
            for refused in (
                [new_job(queue="new"), new_job(unique=Unique("k", "error"))],
                [new_job(queue="new"), new_job(after=(After(holder), After(new_job().id)))],
                [structs.replace(stored, kind="other")],
            ):
                with pytest.raises((Conflict, NotFound)):
                    await storage.jobs.enqueue(refused, connection=connection)
            assert await storage.jobs.enqueue([stored], connection=connection) == [
                EnqueueOutcome(stored.id)
            ]
            again = [new_job(unique=Unique("k"))]
            assert await storage.jobs.enqueue(again, connection=connection) == [
                EnqueueOutcome(holder, deduplicated=True)
            ]
        assert not [each for each in seen if "SAVEPOINT" in each.upper()]
        assert await connection.fetchval("SHOW search_path") == '"$user", public'
        assert await connection.fetchval("SHOW lock_timeout") == "0"
        await storage.jobs.enqueue([new_job(after=(After(holder),))], connection=connection)
        await end(True)
    counts = await storage.jobs.counts()
    assert counts.keys() == {QUEUE, "mine"}
    assert counts[QUEUE].by_status["blocked"] == counts[QUEUE].by_status["pending"] == 1
    assert await counters(storage) == {"enqueued": 2, "deduplicated": 1}


async def test_a_parent_that_somebody_keeps_locked_is_an_answer(
    storage: Storage, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flavor, "LOCK_S", 0.05)
    parent = await enqueue_one(storage)
    async with drivers_own(url) as (theirs, end_theirs), drivers_own(url) as (mine, end_mine):
        await theirs.execute("SELECT FROM forge_jobs WHERE id = $1 FOR UPDATE", parent)
        child = new_job(after=(After(parent),))
        with pytest.raises(Unavailable):
            await storage.jobs.enqueue([child], connection=mine)
        assert await mine.fetchval("SELECT 1") == 1
        await end_theirs(True)
        await storage.jobs.enqueue([child], connection=mine)
        await end_mine(True)
    assert (await storage.jobs.get([child.id]))[child.id].waits_for == (parent,)


async def test_a_job_that_wakes_nobody_tells_nobody(storage: Storage, url: str) -> None:
    parent = await enqueue_one(storage)
    async with drivers_own(url) as (connection, end):
        heard: list[str] = []
        async with raw(url) as ear:
            channel = channel_of("public")
            await ear.add_listener(channel, lambda *told: heard.append(told[-1]))
            job = new_job(queue="later", after=(After(parent),))
            await storage.jobs.enqueue([job], connection=connection)
            await end(True)
            await ear.execute(f"NOTIFY {channel}, 'end'")
            await wait_until(lambda: "end" in heard, description="the last notice is heard")
        assert not [each for each in heard if "later" in each]


async def test_what_is_in_the_way_of_one_is_told_and_the_others_are_undone(
    storage: Storage, url: str
) -> None:
    holder = await enqueue_one(storage, unique=Unique("k"))
    async with drivers_own(url) as (connection, end):
        first, dropped, last = new_job(), new_job(unique=Unique("k")), new_job(queue="new")
        outcomes = await storage.jobs.enqueue([first, dropped, last], connection=connection)
        assert [each.job_id for each in outcomes] == [first.id, holder, last.id]
        assert [each.deduplicated for each in outcomes] == [False, True, False]
        refused = [new_job(queue="other"), new_job(unique=Unique("k", "error"))]
        with pytest.raises(Conflict):
            await storage.jobs.enqueue(refused, connection=connection)
        assert await storage.jobs.enqueue([first], connection=connection) == [outcomes[0]]
        await end(True)
    found = await storage.jobs.get([first.id, last.id, *(each.id for each in refused)])
    assert found.keys() == {first.id, last.id}
    assert (await storage.jobs.counts()).keys() == {QUEUE, "new"}
    assert await counters(storage) == {"enqueued": 2, "deduplicated": 1}


async def test_the_callers_patience_is_as_it_was(storage: Storage, url: str) -> None:
    async with drivers_own(url) as (connection, end):
        for patience in ("0", "1234ms"):
            await connection.execute(f"SET LOCAL lock_timeout = '{patience}'")
            await storage.jobs.enqueue([new_job()], connection=connection)
            assert await connection.fetchval("SHOW lock_timeout") == patience
        await end(True)


@pytest.mark.long
async def test_two_hundred_serializable_transactions_that_share_nothing(
    storage: Storage, url: str
) -> None:
    await enqueue_one(storage)
    failed: list[str] = []
    for turn in range(10):
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(drivers_own(url)) for _ in range(20)]
            for number, (connection, _) in enumerate(callers):
                await connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
                job = new_job(unique=Unique(f"{turn} {number}"))
                try:
                    await storage.jobs.enqueue([job, new_job()], connection=connection)
                except Unavailable as error:
                    failed.append(f"enqueue {turn} {number}: {error}")
            for number, (_, end) in enumerate(callers):
                try:
                    await end(True)
                except asyncpg.SerializationError as error:
                    failed.append(f"commit {turn} {number}: {error}")
    assert failed == []
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 401


async def test_serializable_transactions_that_share_nothing_do_not_conflict(
    storage: Storage, url: str
) -> None:
    await enqueue_one(storage)

    async def begun(connection: Any) -> None:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")

    for number in range(5):
        async with drivers_own(url) as (one, end_one), drivers_own(url) as (other, end_other):
            for name, connection in (("one", one), ("other", other)):
                await begun(connection)
                job = new_job(unique=Unique(f"{name} {number}"))
                await storage.jobs.enqueue([job, new_job()], connection=connection)
            await end_one(True)
            await end_other(True)
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 21


async def test_no_version_of_a_deleted_queue_comes_back_with_one_that_it_makes(
    storage: Storage, url: str
) -> None:
    async with drivers_own(url) as (connection, end):
        await storage.jobs.enqueue([new_job(queue="lent")], connection=connection)
        await end(True)
    [lent] = await storage.procs.allocations()
    assert lent.version > 0
