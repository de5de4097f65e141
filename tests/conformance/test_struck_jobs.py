"""Jobs that a strike holds: they cost claims nothing, and get their place back."""

import asyncio
from datetime import timedelta

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.model.edits import content_of
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, ClaimedJob, Hold, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.strikes import Effect, Strike, StrikeRule, mark_of, name_of
from forge_jobs.model.transitions import Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    claim_one,
    done,
    enqueue_one,
    finish,
    get_job,
    register,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)
MAIL = mark_of(Strike(name="no mail", rule=StrikeRule(kind="mail"), by="ada", at=None))
PAY = mark_of(Strike(name="no pay", rule=StrikeRule(kind="pay"), by="ada", at=None))


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, lease_for=HOUR)


def struck(mark: str = MAIL) -> Transition:
    return Transition(
        status=JobStatus.PENDING,
        cause=Cause.STRUCK,
        delay=None,
        hand_back=True,
        rate_limit=mark,
        hold=Hold.STRUCK,
    )


async def hold(storage: Storage, lease: PodLease, mark: str = MAIL, **fields: object) -> JobId:
    """Store a job that is held at once."""
    job_id = await enqueue_one(storage, **fields)
    assert await finish(storage, await claim_one(storage, lease), struck(mark))
    return job_id


def ids_of(claims: list[ClaimedJob]) -> list[JobId]:
    return [one.claim.job_id for one in claims]


def test_a_mark_names_its_strike_and_changes_with_the_meaning() -> None:
    strike = Strike(name="a b\n", rule=StrikeRule(kind="k"), by="ada", at=None)
    assert name_of(mark_of(strike)) == "a b\n"
    assert name_of("of an earlier release") == "of an earlier release"
    same = structs.replace(strike, by="bob", rule=StrikeRule(kind="k", reason="why"))
    assert mark_of(same) == mark_of(strike)
    for other in (
        StrikeRule(kind="l"),
        StrikeRule(kind="k", where="a == 1"),
        StrikeRule(kind="k", effect=Effect.CANCEL),
        StrikeRule(where="k == 1"),
    ):
        assert mark_of(structs.replace(strike, rule=other)) != mark_of(strike)


async def test_a_held_job_is_met_by_no_claim_and_keeps_its_due_time(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await hold(storage, lease)
    before = await get_job(storage, job_id)
    assert (before.status, before.hold, before.attempt) == (JobStatus.PENDING, Hold.STRUCK, 0)
    assert (before.struck_by, before.rate_limit) == ("no mail", None)
    clock.advance(10 * SECOND)
    assert await claim(storage, lease) == []
    counts = (await storage.jobs.counts([QUEUE]))[QUEUE]
    assert (counts.due, counts.held, counts.by_status["pending"]) == (0, 0, 1)

    assert await storage.jobs.release_struck([MAIL], 10) == 0
    assert await storage.jobs.release_struck([PAY], 10) == 1
    after = await get_job(storage, job_id)
    assert (after.hold, after.due_at) == (None, before.due_at)
    assert await finish(storage, await claim_one(storage, lease), done())
    assert (await get_job(storage, job_id)).attempt == 1


async def test_released_jobs_have_their_places_back_among_the_others(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    ids: list[JobId] = []
    for _ in range(6):
        clock.advance(MICROSECOND)
        ids.append(await enqueue_one(storage))
    claims = await claim(storage, lease, limit=6)
    for number, one in enumerate(claims):
        if number % 2:
            assert await finish(storage, one, struck())
        else:
            assert await storage.jobs.release([one.claim]) == [True]
    first = await hold(storage, lease, priority=-5)
    assert ids_of(await claim(storage, lease, limit=1)) == ids[:1]
    clock.advance(SECOND)
    last = await enqueue_one(storage)
    assert await storage.jobs.release_struck([], 10) == 4
    assert ids_of(await claim(storage, lease, limit=10)) == [first, *ids[1:], last]


async def test_a_release_goes_on_in_batches_in_order_and_repeats_do_nothing(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    held = []
    for number in range(5):
        clock.advance(MICROSECOND)
        held.append(await hold(storage, lease, priority=-(number % 2)))
    of_pay = await hold(storage, lease, PAY)
    in_order = [*held[1::2], *held[::2]]
    for expected in (2, 2, 1, 0, 0):
        assert await storage.jobs.release_struck([PAY], 2) == expected
        claims = await claim(storage, lease, limit=10)
        assert ids_of(claims) == in_order[:expected]
        del in_order[:expected]
    assert (await get_job(storage, of_pay)).hold is Hold.STRUCK


async def test_callers_that_release_at_once_release_each_job_once(
    storage: Storage, lease: PodLease
) -> None:
    for _ in range(20):
        await hold(storage, lease)
    counts = await asyncio.gather(*(storage.jobs.release_struck([], 7) for _ in range(4)))
    counts.append(await storage.jobs.release_struck([], 20))
    assert sum(counts) == 20
    assert len(await claim(storage, lease, limit=50)) == 20


async def test_what_ends_while_held_is_held_no_more(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    cancelled = await hold(storage, lease)
    expired = await hold(storage, lease, expires_at=clock.now() + 10 * SECOND)
    deleted = await hold(storage, lease)
    await storage.jobs.cancel(JobFilter(ids=(cancelled,)))
    clock.advance(20 * SECOND)
    assert await storage.jobs.expire(10) == 1
    await storage.jobs.cancel(JobFilter(ids=(deleted,)))
    await storage.jobs.delete(JobFilter(ids=(deleted,)))
    assert await storage.jobs.release_struck([], 10) == 0
    jobs = await storage.jobs.get([cancelled, expired, deleted])
    assert {job.id: (job.status, job.hold) for job in jobs.values()} == {
        cancelled: (JobStatus.CANCELLED, None),
        expired: (JobStatus.CANCELLED, None),
    }


async def test_an_edit_frees_a_held_job_because_strikes_may_mean_it_no_more(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await hold(storage, lease)
    job = await get_job(storage, job_id)
    before = content_of(job)
    after = structs.replace(before, payload='{"n": 2}', priority=7)
    await storage.jobs.edit(job_id, token=job.token, before=before, after=after)
    assert ids_of(await claim(storage, lease)) == [job_id]
    assert await storage.jobs.release_struck([], 10) == 0


async def test_run_now_leaves_a_due_job_on_hold(storage: Storage, lease: PodLease) -> None:
    job_id = await hold(storage, lease)
    await storage.jobs.run_now(JobFilter(ids=(job_id,)))
    assert (await get_job(storage, job_id)).hold is Hold.STRUCK
    assert await claim(storage, lease) == []


async def test_a_release_wakes_the_waiters_of_the_queue(storage: Storage, lease: PodLease) -> None:
    await hold(storage, lease)
    mine = frozenset({QUEUE})
    while await storage.jobs.wait_for_work(mine, timedelta(milliseconds=300)):
        pass  # of the enqueue
    await storage.jobs.release_struck([], 10)
    assert (await storage.jobs.wait_for_work(mine, 20 * SECOND)).queues == mine


async def test_a_held_job_takes_no_permit_of_its_limit(storage: Storage, lease: PodLease) -> None:
    await storage.config.ensure_limits(QUEUE, {"tests.hosts": 1})
    limit = {"limit_name": "tests.hosts", "limit_key": "a"}
    first = await hold(storage, lease, **limit)
    second = await enqueue_one(storage, **limit)
    claims = await claim(storage, lease)
    assert ids_of(claims) == [second]
    assert await storage.jobs.release_struck([], 10) == 1
    assert await claim(storage, lease) == []
    assert await finish(storage, claims[0], done())
    assert ids_of(await claim(storage, lease)) == [first]
