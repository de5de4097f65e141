"""What an enqueue in a caller's transaction asks of the server, and whom it conflicts with."""

from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from forge_jobs.errors import Conflict, Unavailable
from forge_jobs.model.jobs import Unique
from forge_jobs.storage.protocols import Storage
from tests.support.asked import asked
from tests.support.callers import OPENERS, Opener, drivers_own
from tests.support.factories import QUEUE, counters, enqueue_one, new_job

pytestmark = pytest.mark.anyio


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
        assert sum(seen.values()) == 3
        await end(True)
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 3
    assert (await counters(storage))["enqueued"] == 3


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
