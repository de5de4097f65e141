"""Retention beside tables of the user's that refer to jobs."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.factories import cleaned_up, new_job
from tests.support.postgres import raw

pytestmark = pytest.mark.anyio

JOBS = 300
DAYS = timedelta(days=40)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def storage(url: str, clock: ManualClock) -> AsyncIterator[Storage]:
    async with await open_storage(url, clock=clock) as opened:
        yield opened


async def some_held(storage: Storage, url: str, references: str) -> set[JobId]:
    """Return the ended jobs to which a table of the user's refers."""
    requests = [new_job() for _ in range(JOBS)]
    await storage.jobs.enqueue(requests)
    await storage.jobs.cancel(JobFilter(), limit=1_000)
    held = {requests[n].id for n in (7, 100, 101, JOBS - 1)}
    async with raw(url) as connection:
        column = f"job_id text CONSTRAINT of_a_job REFERENCES forge_jobs {references}"
        await connection.execute(f"CREATE TABLE orders ({column})")
        await connection.executemany("INSERT INTO orders VALUES ($1)", [(each,) for each in held])
    return held


async def left(storage: Storage) -> set[JobId]:
    return {job.id for job in (await storage.jobs.list(JobFilter(), limit=1_000)).jobs}


async def test_a_job_that_a_foreign_key_holds_is_named_and_the_others_go(
    storage: Storage, clock: ManualClock, url: str
) -> None:
    held = await some_held(storage, url, "")
    clock.advance(DAYS)
    named: dict[JobId, str] = {}
    rest: object | None = None
    while True:
        cleaned = await storage.jobs.cleanup(1_000, rest)
        named |= cleaned.held
        if (rest := cleaned.rest) is None:
            break
    assert named == dict.fromkeys(held, "constraint of_a_job of table orders")
    assert await left(storage) == held
    # Once found, they cost no further try.
    again = await storage.jobs.cleanup(1_000)
    assert (again.held, again.rest) == (named, None)
    async with raw(url) as connection:
        assert await connection.fetchval("SELECT count(*) FROM orders") == len(held)


async def test_a_trigger_that_refuses_a_row_holds_only_that(
    storage: Storage, clock: ManualClock, url: str
) -> None:
    kept = min(await some_held(storage, url, "ON DELETE CASCADE"))
    async with raw(url) as connection:
        await connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'an order is open'; END $$;"
            "CREATE TRIGGER no_delete BEFORE DELETE ON forge_jobs FOR EACH ROW"
            f" WHEN (old.id = '{kept}') EXECUTE FUNCTION refuse()"
        )
    clock.advance(DAYS)
    await cleaned_up(storage)
    assert await left(storage) == {kept}
