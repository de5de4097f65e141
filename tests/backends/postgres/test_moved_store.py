"""A store that is restored from a dump, or replicated row by row, is the same store."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from forge_jobs.clock import EPOCH
from forge_jobs.errors import InvalidInput
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.storage.opening import open_storage
from forge_jobs.testing.servers import PostgresServer
from tests.support.factories import QUEUE, enqueue_one, new_job
from tests.support.postgres import raw
from tests.support.proxy import proxy
from tests.support.servers import a_postgres
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture
def old() -> Iterator[PostgresServer]:
    with a_postgres(settings={"wal_level": "logical"}) as server:
        yield server


@pytest.fixture
def new() -> Iterator[PostgresServer]:
    with a_postgres() as server:
        yield server


def copied(old: PostgresServer, new: PostgresServer, *options: str) -> None:
    """Copy everything from the old server to the new one."""
    assert old._programs is not None
    programs: Path = old._programs
    dump = subprocess.run(
        [programs / "pg_dump", "--format=custom", *options, old.url],
        capture_output=True,
        check=True,
    )
    subprocess.run(
        [programs / "pg_restore", f"--dbname={new.url}", "--clean", "--if-exists"],
        input=dump.stdout,
        check=True,
    )


async def replicated(old: PostgresServer, new: PostgresServer) -> None:
    copied(old, new, "--schema-only")
    async with raw(old.url) as there, raw(new.url) as here:
        # No table may have the same number as before, not even by chance.
        await here.execute("CREATE TABLE further (a int, b text)")
        await there.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        await here.execute(
            f"CREATE SUBSCRIPTION everything CONNECTION '{old.url}' PUBLICATION everything"
        )
        await wait_until(
            lambda: here.fetchval(
                "SELECT bool_and(srsubstate IN ('s', 'r')) FROM pg_subscription_rel"
            ),
            description="the rows have come",
        )
        await here.execute("DROP SUBSCRIPTION everything")


@pytest.mark.parametrize("how", ["dump", "replication"])
async def test_a_store_that_moved_takes_callers_transactions_without_a_restart(
    old: PostgresServer, new: PostgresServer, how: str
) -> None:
    with proxy(old.url) as between:
        async with await open_storage(between.url) as storage:
            await enqueue_one(storage)
            if how == "dump":
                copied(old, new)
            else:
                await replicated(old, new)
            address = new.url.replace(new.password, old.password)
            async with raw(new.url) as admin:
                await admin.execute(f"ALTER ROLE postgres PASSWORD '{old.password}'")
            between.lead_to(address)
            between.cut()
            async with raw(between.url) as mine, mine.transaction():
                await storage.jobs.enqueue([new_job()], connection=mine)
            assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 2


async def test_the_statement_of_the_manual_brings_the_sequences_along(
    old: PostgresServer, new: PostgresServer
) -> None:
    event = TimelineEvent(at=EPOCH, kind=EventKind.STARTED, queue=QUEUE)
    async with await open_storage(old.url) as storage:
        await enqueue_one(storage)
        await storage.jobs.append_events([event, event])
    await replicated(old, new)
    page = (Path(__file__).parents[3] / "docs" / "guarantees.md").read_text(encoding="utf-8")
    [statement] = re.findall(r"^```sql\n(SELECT setval.*?)^```", page, re.MULTILINE | re.DOTALL)
    async with raw(new.url) as admin:
        assert await admin.fetchval("SELECT nextval('forge_events_id_seq')") == 1
        numbers = await admin.fetchrow(statement)
    assert tuple(numbers) == (3, 1, 1)
    async with await open_storage(new.url) as storage:
        await storage.jobs.append_events([event])
        assert len(await storage.jobs.events(queue=QUEUE)) == 3


async def test_another_store_is_another_one_still(old: PostgresServer, new: PostgresServer) -> None:
    engine = create_async_engine(new.url.replace("postgresql:", "postgresql+asyncpg:"))
    async with (
        await open_storage(old.url) as storage,
        await open_storage(new.url),
        engine.begin() as strange,
    ):
        with pytest.raises(InvalidInput, match="not of this store's database"):
            await storage.jobs.enqueue([new_job()], connection=strange)
    await engine.dispose()
