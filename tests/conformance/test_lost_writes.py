"""A store that lost its last writes: a lagging replica was promoted, or a copy was restored."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from forge_jobs.clock import ManualClock, to_us
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, ClaimedJob, JobStatus
from forge_jobs.model.processes import ClaimState, PodLease
from forge_jobs.model.sweeps import Swept
from forge_jobs.model.transitions import Demand, Finalization, Revival
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    MICROSECOND,
    QUEUE,
    SECOND,
    claim_one,
    counters,
    crashed,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    held,
    new_job,
    register,
)
from tests.support.moments import Snapshot, this_moment

pytestmark = pytest.mark.anyio

Remember = Callable[[], Awaitable[Snapshot]]


@pytest.fixture
def remember(request: pytest.FixtureRequest, storage: Storage, tmp_path: Path) -> Remember:
    """Remember the contents of the store at the time of the call."""
    backend = request.node.callspec.params["storage"]
    return lambda: this_moment(backend, tmp_path)


def demand(limit: int, *worker_ids: str) -> Demand:
    return Demand(worker_ids=worker_ids, limit=limit, kinds=frozenset({KIND}))


async def claimed_twice(
    storage: Storage, clock: ManualClock, remember: Remember, *, later: timedelta
) -> tuple[ClaimedJob, ClaimedJob]:
    """The claim of a job that the store lost, and that of another pod ``later``."""
    first, second = await register(storage), await register(storage)
    await enqueue_one(storage)
    before = await remember()
    clock.advance(SECOND)
    lost = await claim_one(storage, first)
    await before.come_back()
    if later < timedelta(0):
        clock.step_wall(later)
    else:
        clock.advance(later)
    owned = await claim_one(storage, second)
    assert lost.claim.job_id == owned.claim.job_id
    return lost, owned


async def test_a_claim_that_was_lost_keeps_its_number_for_itself(
    storage: Storage, clock: ManualClock, remember: Remember
) -> None:
    lost, owned = await claimed_twice(storage, clock, remember, later=MICROSECOND)
    assert owned.claim.token > lost.claim.token
    assert owned.claim.token == to_us(clock.now())
    await owns_alone(storage, lost, owned)


async def test_two_claims_of_one_number_are_told_apart_by_their_pods(
    storage: Storage, clock: ManualClock, remember: Remember
) -> None:
    lost, owned = await claimed_twice(storage, clock, remember, later=timedelta(0))
    assert owned.claim.token == lost.claim.token
    await owns_alone(storage, lost, owned)


async def test_a_clock_that_went_back_gives_no_right_to_the_claim_that_was_lost(
    storage: Storage, clock: ManualClock, remember: Remember
) -> None:
    lost, owned = await claimed_twice(storage, clock, remember, later=-SECOND / 2)
    assert owned.claim.token < lost.claim.token
    await owns_alone(storage, lost, owned)


async def test_what_a_store_lost_as_a_whole_leaves_nothing_to_sweep(
    storage: Storage, lease: PodLease, clock: ManualClock, remember: Remember
) -> None:
    before = await remember()
    parent = await enqueue_one(storage)
    await enqueue_one(storage, after=(After(parent),))
    between = await remember()
    await finish(storage, await claim_one(storage, lease), done())
    for moment in (between, before):
        await moment.come_back()
        for _ in range(3):
            assert await storage.jobs.sweep(100) == Swept()
            clock.advance(60)


async def owns_alone(storage: Storage, lost: ClaimedJob, owned: ClaimedJob) -> None:
    """Expect that the owner's end is taken, and the other's is refused before and after."""
    job_id = owned.claim.job_id
    for end in (done("lost"), failed()):
        assert not await finish(storage, lost, end)
    assert await storage.jobs.release([lost.claim]) == [False]
    assert await storage.jobs.record_start([lost.claim, owned.claim]) == [False, True]
    job = await get_job(storage, job_id)
    assert (job.status, job.host_id) == (JobStatus.IN_PROGRESS, owned.claim.host_id)
    ends = [Finalization(lost.claim, done("lost")), Finalization(owned.claim, done("owned"))]
    assert await storage.jobs.finalize(ends) == [False, True]
    assert await storage.jobs.finalize(ends) == [False, True]
    for one, stands in ((lost, False), (owned, True)):
        assert await finish(storage, one, done("again")) is stands
        assert await storage.jobs.release([one.claim]) == [stands]
    assert (await get_job(storage, job_id)).result == "owned"
    assert (await counters(storage))["succeeded"] == 1


async def test_each_of_two_pods_ends_its_own_claims_of_one_number(
    storage: Storage, lease: PodLease, remember: Remember
) -> None:
    other = await register(storage)
    ids = [request.id for request in (new_job(), new_job(), new_job())]
    await storage.jobs.enqueue([new_job(id=job_id) for job_id in ids])
    before = await remember()
    mine = [await claim_one(storage, lease) for _ in ids]
    await before.come_back()
    theirs = [await claim_one(storage, other) for _ in ids]
    assert [each.claim.token for each in mine] == [each.claim.token for each in theirs]
    ends = [Finalization(each.claim, done("lost")) for each in mine]
    assert await storage.jobs.finalize(ends) == [False] * 3
    answer = await storage.jobs.exchange(QUEUE, ends, demand(1, "w"), lease)
    assert (answer.settled, answer.claimed) == ((False,) * 3, ())
    ends = [Finalization(each.claim, done("owned")) for each in theirs]
    assert (await storage.jobs.exchange(QUEUE, ends[:2], demand(0), other)).settled == (True, True)
    assert await storage.jobs.finalize(ends) == [True] * 3
    assert {(await get_job(storage, job_id)).result for job_id in ids} == {"owned"}


async def test_ends_of_two_pods_in_one_call_are_compared_each_with_its_own(
    storage: Storage, lease: PodLease
) -> None:
    other = await register(storage)
    await storage.jobs.enqueue([new_job(), new_job()])
    claims = [(await claim_one(storage, each)).claim for each in (lease, other)]
    crossed = [replace(claims[0], host_id=other.host_id), replace(claims[1], host_id=lease.host_id)]
    ends = [Finalization(each, done()) for each in crossed]
    assert await storage.jobs.finalize(ends) == [False, False]
    assert await storage.jobs.release(crossed) == [False, False]
    ends = [Finalization(each, done()) for each in (crossed[0], *claims)]
    assert await storage.jobs.finalize(ends) == [False, True, True]
    assert (await counters(storage))["succeeded"] == 2


async def test_a_beat_and_a_reaper_tell_two_claims_of_one_number_apart(
    storage: Storage, clock: ManualClock, remember: Remember
) -> None:
    lost, owned = await claimed_twice(storage, clock, remember, later=timedelta(0))
    lease = PodLease(lost.claim.host_id, "any")
    beat = await storage.jobs.heartbeat(lease, [held(lost, "w")], LEASE)
    assert (beat.claims, beat.unknown) == ({lost.claim: ClaimState.LOST}, ())
    clock.advance(LEASE)
    assert [each.claim for each in await storage.jobs.stale_claims(LEASE, 10)] == [owned.claim]
    both = [Revival(each.claim, crashed()) for each in (lost, owned)]
    assert await storage.jobs.revive(both, LEASE) == [False, True]


async def test_a_job_that_was_lost_and_stored_again_has_tokens_of_its_own(
    storage: Storage, lease: PodLease, clock: ManualClock, remember: Remember
) -> None:
    before = await remember()
    job_id: JobId = await enqueue_one(storage)
    clock.advance(MICROSECOND)
    lost = await claim_one(storage, lease)
    await before.come_back()
    clock.advance(MICROSECOND)
    await enqueue_one(storage, id=job_id, queue=QUEUE)
    owned = await claim_one(storage, lease)
    assert owned.claim.token > lost.claim.token
    assert not await finish(storage, lost, done())
    assert await finish(storage, owned, done())
