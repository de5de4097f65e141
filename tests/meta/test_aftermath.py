"""The look at a store after a test: what ends soon is no problem, what stays open is one."""

import asyncio
from pathlib import Path

import aiosqlite
import asyncpg
import pytest

from forge_jobs.storage.opening import open_storage
from tests.support import databases
from tests.support.aftermath import problems_of
from tests.support.backends import url_of
from tests.support.factories import new_job


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> str:
    """The name of a store with transactions."""
    return str(request.param)


pytestmark = pytest.mark.anyio


class Caller:
    """A connection with an open transaction that has written."""

    def __init__(self, connection: "aiosqlite.Connection | asyncpg.Connection[asyncpg.Record]"):
        self._connection = connection

    async def begin(self) -> None:
        """Write to the store and leave the transaction open."""
        await self._connection.execute("BEGIN")
        await self._connection.execute("DELETE FROM forge_jobs")

    async def end(self) -> None:
        """Roll back, and close the connection."""
        await self._connection.execute("ROLLBACK")
        await self._connection.close()


async def caller_of(backend: str, folder: Path) -> Caller:
    """Return a caller of the folder's store, which is made first."""
    url = await url_of(backend, folder)
    if backend == "postgres":
        return Caller(await asyncpg.connect(url))
    return Caller(await aiosqlite.connect(folder / "jobs.db", isolation_level=None))


async def test_a_transaction_that_stays_open_is_a_problem(backend: str, tmp_path: Path) -> None:
    caller = await caller_of(backend, tmp_path)
    await caller.begin()
    [problem] = await problems_of(backend, tmp_path, patience=0.05)
    assert "a transaction is open" in problem
    await caller.end()


async def test_a_transaction_that_ends_between_two_looks_is_none(
    backend: str, tmp_path: Path
) -> None:
    caller = await caller_of(backend, tmp_path)
    if backend == "postgres":
        await databases.look_into(tmp_path)
    await caller.begin()
    end = asyncio.ensure_future(caller.end())
    assert await problems_of(backend, tmp_path) == []
    await end


async def test_a_database_in_which_claims_pass_many_dead_rows_is_not_passed_on(
    tmp_path: Path,
) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    for folder, jobs in ((few, 5), (many, 3_000)):
        async with await open_storage(await databases.url_of(folder)) as storage:
            await storage.jobs.enqueue([new_job() for _ in range(jobs)])
    urls = {await databases.url_of(folder) for folder in (few, many)}
    await databases.pass_on(few)
    await databases.pass_on(many)

    databases.take(tmp_path / "next")
    assert await databases.url_of(tmp_path / "next") in urls
    assert await databases.url_of(tmp_path / "last") not in urls
    for name in ("next", "last"):
        await databases.forget(tmp_path / name)
