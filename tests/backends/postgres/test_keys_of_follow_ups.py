"""Follow-ups whose holder has ended, as callers' transactions and ``forge_enqueue`` see them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from forge_jobs.errors import Conflict
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, EnqueueOutcome, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.unique.keys import UniqueMode
from forge_jobs.storage.protocols import Storage
from tests.support.asked import asked, beside_notices
from tests.support.callers import OPENERS, Opener, drivers_own
from tests.support.factories import (
    DAY,
    KIND,
    QUEUE,
    claim_one,
    counters,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    new_job,
    only,
    register,
)
from tests.support.keyed import ask, hand_over, keyed, running_with_follow_up
from tests.support.postgres import raw

pytestmark = [pytest.mark.anyio, pytest.mark.only_rows]

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, lease_for=DAY)


async def former_follow_up(storage: Storage, lease: PodLease, turns: int = 1) -> JobId:
    """The one active job of the key, in the place of a follow-up: in the one or the other."""
    running, follow_up = await running_with_follow_up(storage, lease)
    for number in range(turns - 1):
        assert await finish(storage, running, done())
        await hand_over(storage)
        running = await claim_one(storage, lease)
        follow_up = (await ask(storage, keyed("keep-last", number))).job_id
    assert await finish(storage, running, done())
    return follow_up


async def by_function(connection: Any, **options: object) -> str:
    names = ", ".join(f"{name} => ${place}" for place, name in enumerate(options, 1))
    job_id: str = await connection.fetchval(f"SELECT forge_enqueue({names})", *options.values())
    return job_id


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("is_due", [False, True], ids=["blocked", "pending"])
@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
async def test_a_callers_transaction_sees_it(
    storage: Storage, url: str, lease: PodLease, opener: Opener, turns: int, *, is_due: bool
) -> None:
    follow_up = await former_follow_up(storage, lease, turns)
    if is_due:
        await hand_over(storage)
    parent = await enqueue_one(storage)
    kept = EnqueueOutcome(follow_up, deduplicated=True)
    async with opener(url) as (connection, end):
        requests = [new_job(unique=Unique("k")), new_job(queue="new", unique=Unique("k"))]
        outcomes = await storage.jobs.enqueue(requests, connection=connection)
        assert outcomes == [kept, EnqueueOutcome(requests[1].id)]
        after = new_job(unique=Unique("k"), after=(After(parent),))
        assert await storage.jobs.enqueue([after], connection=connection) == [kept]
        refused = [new_job(queue="never"), new_job(unique=Unique("k", "error"))]
        with pytest.raises(Conflict, match=follow_up):
            await storage.jobs.enqueue(refused, connection=connection)
        await end(True)
    assert (await storage.jobs.counts()).keys() == {QUEUE, "new"}


@pytest.mark.parametrize("turns", [1, 2])
async def test_the_function_sees_it(
    storage: Storage, url: str, lease: PodLease, turns: int
) -> None:
    follow_up = await former_follow_up(storage, lease, turns)
    before = await counters(storage)
    async with raw(url) as connection:
        assert await by_function(connection, kind=KIND, unique_key="k") == follow_up
        other = await by_function(connection, kind=KIND, unique_key="k2")
        await storage.jobs.cancel(only(follow_up))
        new = await by_function(connection, kind=KIND, unique_key="k")
        assert len({follow_up, other, new}) == 3
    after = await counters(storage)
    assert after["deduplicated"] == before.get("deduplicated", 0) + 1


async def test_of_a_holder_and_a_follow_up_the_holder_is_named(
    storage: Storage, url: str, lease: PodLease
) -> None:
    running, follow_up = await running_with_follow_up(storage, lease)
    holder = running.claim.job_id
    async with raw(url) as connection:
        assert await by_function(connection, kind=KIND, unique_key="k") == holder
    async with drivers_own(url) as (connection, end):
        again = [new_job(unique=Unique("k"))]
        assert await storage.jobs.enqueue(again, connection=connection) == [
            EnqueueOutcome(holder, deduplicated=True)
        ]
        await end(True)
    # The former follow-up runs, and has a follow-up in the other place.
    assert await finish(storage, running, done())
    await hand_over(storage)
    await claim_one(storage, lease)
    await ask(storage, keyed("keep-last", 3))
    async with raw(url) as connection:
        assert await by_function(connection, kind=KIND, unique_key="k") == follow_up


async def test_the_look_is_part_of_the_one_statement(storage: Storage, url: str) -> None:
    async with drivers_own(url) as (connection, end):
        await storage.jobs.enqueue([new_job()], connection=connection)
        jobs = [new_job(unique=Unique(f"k{number}")) for number in range(50)]
        with asked() as seen:
            await storage.jobs.enqueue(jobs, connection=connection)
        assert beside_notices(seen) == 1
        await end(True)
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 51


@pytest.mark.parametrize("mode", ["keep", "error", "replace"])
@pytest.mark.parametrize("opener", OPENERS, ids=lambda opener: opener.__name__)
async def test_a_caller_gets_the_key_of_a_job_that_has_expired(
    storage: Storage, url: str, opener: Opener, mode: UniqueMode
) -> None:
    held = await enqueue_one(storage, unique=Unique("k"), expires_at=LONG_AGO)
    async with opener(url) as (connection, end):
        [outcome] = await storage.jobs.enqueue([keyed(mode)], connection=connection)
        assert outcome == EnqueueOutcome(outcome.job_id)
        assert (await get_job(storage, held)).status is JobStatus.PENDING
        await end(True)
    assert (await get_job(storage, held)).cause is Cause.EXPIRED
    assert (await ask(storage, keyed("keep"))).job_id == outcome.job_id


async def test_a_caller_whose_request_is_dropped_ends_the_job_that_has_expired(
    storage: Storage, url: str, lease: PodLease
) -> None:
    held = (await ask(storage, keyed("keep-last"))).job_id
    claimed = await claim_one(storage, lease)
    follow_up = (await ask(storage, keyed("keep-last", 2))).job_id
    assert await finish(storage, claimed, failed(DAY))
    async with raw(url) as connection:
        await connection.execute("UPDATE forge_jobs SET expires_at = 1 WHERE id = $1", held)
    async with OPENERS[0](url) as (connection, end):
        [outcome] = await storage.jobs.enqueue([keyed("keep")], connection=connection)
        await end(True)
    assert outcome == EnqueueOutcome(follow_up, deduplicated=True)
    assert (await get_job(storage, held)).cause is Cause.EXPIRED
