"""Rows that a claim touches where jobs of kinds that only other pods know stand in front."""

from typing import Any

import pytest

from forge_jobs.storage.elsewhere import KnownElsewhere
from forge_jobs.storage.protocols import Storage
from tests.support.factories import QUEUE, claim
from tests.support.mixed_queues import (
    FEW,
    MANY,
    MINE,
    VERY_MANY,
    demand,
    put_behind,
    two_pods,
)
from tests.support.postgres import raw, touched

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage(storage: Storage) -> Storage:
    """A store in whose process no time passes, so that no memory expires."""
    jobs: Any = storage.jobs
    jobs._elsewhere = KnownElsewhere(elapsed=lambda: 0.0)
    return storage


@pytest.mark.parametrize("many", [MANY, pytest.param(VERY_MANY, marks=pytest.mark.long)])
async def test_it_reads_as_little_with_many_of_them_as_with_few(
    storage: Storage, url: str, many: int
) -> None:
    lease = await two_pods(storage)
    read = []
    # The first claim that meets the other kind asks twice.
    await put_behind(storage, FEW)
    await claim(storage, lease, limit=10, kinds=MINE)
    for others in (10 * FEW, many):
        await put_behind(storage, others)
        async with raw(url) as connection:
            await connection.execute("ANALYZE forge_jobs")
        async with touched(storage) as found:
            assert len(await claim(storage, lease, limit=10, kinds=MINE)) == 10
        [cost] = found
        assert not cost.scanned
        read.append(cost)
    assert read[1].fetched <= read[0].fetched + 5
    # An index may be a level deeper.
    assert read[1].blocks <= read[0].blocks + 40


async def test_after_the_first_claim_it_is_one_statement_that_locks_none_of_them(
    storage: Storage, url: str
) -> None:
    lease = await two_pods(storage)
    await put_behind(storage, FEW)
    await storage.jobs.exchange(QUEUE, [], demand(10), lease)
    ids = await put_behind(storage, FEW)
    async with raw(url) as connection:
        before = await _locked_once(connection)
        async with touched(storage) as found:
            claimed = (await storage.jobs.exchange(QUEUE, [], demand(10), lease)).claimed
        assert await _locked_once(connection) == before
    assert [each.claim.job_id for each in claimed] == ids
    assert len(found) == 1, "statements"


async def _locked_once(connection: Any) -> int:
    """Jobs of the other kind that some transaction has locked."""
    count: int = await connection.fetchval(
        "SELECT count(*) FROM forge_jobs WHERE kind = 'other' AND xmax <> 0"
    )
    return count


async def test_jobs_that_a_claim_has_locked_are_passed_over_kind_by_kind(
    storage: Storage, url: str
) -> None:
    lease = await two_pods(storage)
    await put_behind(storage, FEW)
    await storage.jobs.exchange(QUEUE, [], demand(10), lease)
    ids = await put_behind(storage, FEW)
    async with (
        raw(url) as connection,
        connection.transaction(),
    ):
        await connection.execute("SELECT FROM forge_jobs WHERE id = ANY ($1) FOR UPDATE", ids[:7])
        exchange = await storage.jobs.exchange(QUEUE, [], demand(2), lease)
    assert [each.claim.job_id for each in exchange.claimed] == ids[7:9]
