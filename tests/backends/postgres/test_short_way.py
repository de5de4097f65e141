"""Calls that are one statement when all goes well, and go on as a script otherwise."""

from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Unavailable
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, JobStatus, NewJob
from forge_jobs.model.queues import RateAsk, RateLimit
from forge_jobs.model.transitions import Demand, Finalization
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.config.store import SqlConfigStore
from forge_jobs.storage.sql.postgres.short import bulk, enqueues
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    claim,
    claim_one,
    counters,
    crashed,
    done,
    enqueue_one,
    get_job,
    new_job,
    register,
    revive,
)
from tests.support.postgres import raw, with_options

pytestmark = pytest.mark.anyio

LIMIT_S = 1

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def storage(url: str, clock: ManualClock) -> AsyncGenerator[Storage]:
    """A store that waits for locks no longer than a second."""
    limited = with_options(url, timeout=LIMIT_S)
    async with await open_storage(limited, clock=clock) as opened:
        yield opened


def demand(limit: int, *worker_ids: str) -> Demand:
    return Demand(worker_ids=worker_ids, limit=limit, kinds=frozenset({KIND}))


async def status_of(storage: Storage, job_id: JobId) -> JobStatus:
    return (await get_job(storage, job_id)).status


async def test_nothing_is_claimed_while_an_end_of_the_call_fails(
    storage: Storage, url: str
) -> None:
    lease = await register(storage)
    parent, other = await enqueue_one(storage), await enqueue_one(storage)
    claimed = await claim(storage, lease, limit=2)
    await enqueue_one(storage, after=(After(parent),))
    waiting = await enqueue_one(storage)
    ends = [Finalization(each.claim, done()) for each in claimed]
    async with raw(url) as connection, connection.transaction():
        # The end has to be delivered to children, and this is in the way.
        await connection.execute("SELECT 1 FROM forge_edges FOR UPDATE")
        with pytest.raises(Unavailable):
            await storage.jobs.exchange(QUEUE, ends, demand(1, "w"), lease)
        assert await status_of(storage, waiting) is JobStatus.PENDING
        assert await status_of(storage, parent) is JobStatus.IN_PROGRESS
    answer = await storage.jobs.exchange(QUEUE, ends, demand(1, "w"), lease)
    assert answer.settled == (True, True)
    assert [each.claim.job_id for each in answer.claimed] == [waiting]
    assert await status_of(storage, other) is JobStatus.DONE


async def test_an_end_whose_job_is_locked_is_put_off_and_the_call_claims(
    storage: Storage, url: str
) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    waiting = await enqueue_one(storage)
    ends = [Finalization(claimed.claim, done())]
    async with raw(url) as connection, connection.transaction():
        await connection.execute(
            "SELECT 1 FROM forge_jobs WHERE id = $1 FOR UPDATE", claimed.claim.job_id
        )
        answer = await storage.jobs.exchange(QUEUE, ends, demand(1, "w"), lease)
        assert answer.settled == (None,)
        assert [each.claim.job_id for each in answer.claimed] == [waiting]
    assert (await storage.jobs.exchange(QUEUE, ends, demand(0), lease)).settled == (True,)


async def test_it_goes_on_behind_jobs_that_it_may_not_take(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    risky = await enqueue_one(storage)
    first = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, first, crashed())
    lease = await register(storage)
    stranger = await enqueue_one(storage, kind="unknown")
    mine = [await enqueue_one(storage) for _ in range(3)]
    answer = await storage.jobs.exchange(QUEUE, [], demand(2), lease)
    assert [each.claim.job_id for each in answer.claimed] == mine[:2]
    assert (await get_job(storage, stranger)).hold is not None
    assert await status_of(storage, risky) is JobStatus.PENDING


async def test_it_goes_on_behind_a_job_that_is_for_workers_alone(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    risky = await enqueue_one(storage)
    first = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, first, crashed())
    lease = await register(storage)
    mine = [await enqueue_one(storage) for _ in range(3)]
    answer = await storage.jobs.exchange(QUEUE, [], demand(2), lease)
    assert [each.claim.job_id for each in answer.claimed] == mine[:2]
    assert await status_of(storage, risky) is JobStatus.PENDING


async def test_a_queue_that_gives_nothing_says_nevertheless_when_its_next_job_is_due(
    storage: Storage,
) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    await storage.jobs.enqueue([new_job(delay=timedelta(minutes=1))])
    await storage.config.set_paused(QUEUE, True)
    answer = await storage.jobs.exchange(QUEUE, [], demand(2, "w"), lease)
    assert (answer.claimed, answer.next_due_in) == ((), timedelta(minutes=1))


async def test_its_claims_are_in_order_and_their_workers_too(storage: Storage) -> None:
    lease = await register(storage)
    jobs = [new_job(priority=-n // 2) for n in range(6)]
    await storage.jobs.enqueue(jobs)
    wanted = [job.id for job in sorted(jobs, key=lambda job: (job.priority, job.id))]
    answer = await storage.jobs.exchange(QUEUE, [], demand(4, "w0", "w1"), lease)
    assert [each.claim.job_id for each in answer.claimed] == wanted[:4]
    stored = [await get_job(storage, each.claim.job_id) for each in answer.claimed]
    assert [job.worker_id for job in stored] == ["w0", "w1", "", ""]


WHEN = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
REQUESTS: tuple[dict[str, Any], ...] = (
    {},
    {"delay": timedelta(minutes=3)},
    {"delay": timedelta(0)},
    {"run_at": WHEN},
    {"run_at": datetime(2001, 1, 1, tzinfo=UTC), "expires_at": WHEN},
    {"payload": '{"text": "\\u0001 \'ä\'"}', "tags": ("a", 'b"'), "metadata": '{"k": "v"}'},
    {"priority": -5, "max_attempts": None, "timeout": timedelta(seconds=1), "trace": "{}"},
    {"keep_result": False, "result_ttl": timedelta(days=2), "fingerprint": "f", "schedule": "s"},
    {"max_attempts": 1, "keep_result": True, "kind": "other"},
)


@pytest.mark.parametrize(
    ("size", "few"), [(1, bulk.FEW), (len(REQUESTS), bulk.FEW), (len(REQUESTS), 0)]
)
async def test_it_stores_what_the_script_stores(
    storage: Storage, url: str, size: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "FEW", few)
    await enqueue_one(storage)

    async def stored(requests: Sequence[NewJob]) -> list[dict[str, Any]]:
        for start in range(0, len(requests), size):
            await storage.jobs.enqueue(requests[start : start + size])
        async with raw(url) as connection:
            found = await connection.fetch(
                "SELECT * FROM forge_jobs WHERE id = ANY ($1) ORDER BY id",
                [one.id for one in requests],
            )
        return [{**row, "id": ""} for row in found]

    alone = await stored([new_job(**each) for each in REQUESTS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enqueues, "fits", lambda _: False)
        by_script = await stored([new_job(**each) for each in REQUESTS])
    assert len(alone) == len(REQUESTS)
    assert alone == by_script
    assert await counters(storage) == {"enqueued": 1 + 2 * len(REQUESTS)}


@pytest.mark.parametrize("few", [bulk.FEW, 0])
async def test_a_batch_of_which_one_is_stored_is_stored_once(
    storage: Storage, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "FEW", few)
    known, fresh = new_job(), new_job(id=new_job_id())
    await enqueue_one(storage)
    await storage.jobs.enqueue([known])
    outcomes = await storage.jobs.enqueue([fresh, known])
    assert [each.job_id for each in outcomes] == [fresh.id, known.id]
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].by_status["pending"] == 3
    assert await counters(storage) == {"enqueued": 3}


async def test_a_large_bucket_that_rested_for_years_counts_within_64_bits(
    storage: Storage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await storage.config.ensure_rate_limit("gh", RateLimit(1_000_000, per=timedelta(hours=1)))
    clock.advance(timedelta(days=3_650))
    monkeypatch.delattr(SqlConfigStore, "take_tokens")

    assert (await storage.config.take_tokens("gh", 1_000_000)).granted

    clock.advance(timedelta(minutes=30))
    [bucket] = await storage.config.rate_limits()
    assert bucket.available == 500_000


async def test_jobs_that_begin_take_their_tokens_in_one_statement(
    storage: Storage, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await storage.config.ensure_rate_limit("gh", RateLimit(100, per=HOUR))
    with monkeypatch.context() as patch:
        patch.delattr(SqlConfigStore, "take_or_turn")
        granted = await storage.config.take_or_turn([RateAsk("gh")] * 90, HOUR)
        assert all(grant is not None and grant.granted for grant in granted)
    # Beyond that the script says who gets one and who has to wait.
    grants = await storage.config.take_or_turn([RateAsk("gh")] * 12, HOUR)
    assert [grant is not None and grant.granted for grant in grants] == [True] * 10 + [False] * 2
    assert await storage.config.take_or_turn([], HOUR) == []
    assert await storage.config.take_or_turn([RateAsk("other")], HOUR) == [None]
