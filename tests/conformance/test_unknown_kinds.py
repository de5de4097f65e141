"""Jobs whose kind a claimer, or everybody, does not know."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Hold, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    MICROSECOND,
    QUEUE,
    claim,
    claim_one,
    done,
    enqueue_one,
    finish,
    get_job,
    new_job,
    only,
    register,
)

pytestmark = pytest.mark.anyio


async def put_on_hold(storage: Storage, lease: PodLease, kind: str = "new.kind") -> JobId:
    job_id = await enqueue_one(storage, kind=kind)
    assert await claim(storage, lease) == []
    assert (await get_job(storage, job_id)).hold is Hold.UNKNOWN_KIND
    return job_id


async def test_a_kind_nobody_knows_is_put_on_hold_and_shown_as_such(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await put_on_hold(storage, lease)
    job = await get_job(storage, job_id)
    assert (job.status, job.attempt) == (JobStatus.PENDING, 0)
    counts = (await storage.jobs.counts())[QUEUE]
    assert (counts.held, counts.due) == (1, 0)


async def test_a_kind_another_live_pod_knows_is_passed_over_but_not_held(
    storage: Storage, lease: PodLease
) -> None:
    other = await register(storage, kinds=["new.kind"])
    theirs = await enqueue_one(storage, kind="new.kind")
    mine = await enqueue_one(storage)
    assert [c.claim.job_id for c in await claim(storage, lease, limit=5)] == [mine]
    assert (await get_job(storage, theirs)).hold is None
    assert (await claim_one(storage, other, kinds=["new.kind"])).claim.job_id == theirs


@pytest.mark.parametrize("how", ["ran out", "unregistered"])
async def test_a_pod_without_a_live_lease_knows_nothing(
    storage: Storage, clock: ManualClock, how: str
) -> None:
    gone = await register(storage, kinds=["new.kind"], lease_for=LEASE)
    if how == "ran out":
        clock.advance(LEASE)
    else:
        await storage.procs.unregister(gone)
    await put_on_hold(storage, await register(storage))


async def test_a_lease_counts_until_its_last_microsecond(
    storage: Storage, clock: ManualClock
) -> None:
    await register(storage, kinds=["new.kind"], lease_for=LEASE)
    clock.advance(LEASE - MICROSECOND)
    lease = await register(storage)
    job_id = await enqueue_one(storage, kind="new.kind")
    assert await claim(storage, lease) == []
    assert (await get_job(storage, job_id)).hold is None


async def test_a_registering_pod_frees_the_jobs_of_its_kinds_and_no_others(
    storage: Storage, lease: PodLease
) -> None:
    freed = await put_on_hold(storage, lease, "new.kind")
    kept = await put_on_hold(storage, lease, "stranger.kind")
    newcomer = await register(storage, kinds=["new.kind"])
    assert (await get_job(storage, freed)).hold is None
    assert (await get_job(storage, kept)).hold is Hold.UNKNOWN_KIND
    assert (await claim_one(storage, newcomer, kinds=["new.kind"])).claim.job_id == freed


async def test_a_held_job_is_not_met_again_by_a_pod_that_could_run_it_unpublished(
    storage: Storage, lease: PodLease
) -> None:
    await put_on_hold(storage, lease)
    assert await claim(storage, lease, kinds=["new.kind"]) == []


async def test_a_claim_that_comes_up_short_has_put_them_all_aside(
    storage: Storage, lease: PodLease
) -> None:
    kinds = ["nobody.knows", "nor.this"]
    for priority in (-5, 5):
        await storage.jobs.enqueue([new_job(kind=kind, priority=priority) for kind in kinds])
    mine = await enqueue_one(storage)
    claimed = await claim(storage, lease, limit=2)
    assert [each.claim.job_id for each in claimed] == [mine]
    counts = (await storage.jobs.counts())[QUEUE]
    assert (counts.held, counts.due) == (4, 0)


async def test_held_jobs_do_not_stand_in_the_way(storage: Storage, lease: PodLease) -> None:
    strangers = [new_job(kind="nobody.knows", priority=-5) for _ in range(50)]
    await storage.jobs.enqueue(strangers)
    mine = [await enqueue_one(storage) for _ in range(3)]
    claimed: list[JobId] = []
    for _ in range(60):
        claimed += [c.claim.job_id for c in await claim(storage, lease)]
        if len(claimed) == len(mine):
            break
    assert claimed == mine
    assert (await storage.jobs.counts())[QUEUE].held == len(strangers)


async def test_any_number_of_held_jobs_is_freed(storage: Storage, lease: PodLease) -> None:
    await storage.jobs.enqueue([new_job(kind="unknown") for _ in range(2_001)])
    for _ in range(3):
        assert await claim(storage, lease) == []
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].held == 2_001
    await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(0))
    await register(storage, kinds=["unknown"])
    assert (await storage.jobs.counts([QUEUE]))[QUEUE].held == 0
    assert (await storage.jobs.wait_for_work(frozenset({QUEUE}), timedelta(0))).queues == {QUEUE}


async def test_a_held_job_can_be_cancelled_and_deleted(storage: Storage, lease: PodLease) -> None:
    first, second = await put_on_hold(storage, lease), await put_on_hold(storage, lease)
    assert (await storage.jobs.cancel(only(first))).changed == (first,)
    assert (await storage.jobs.delete(only(second))).changed == (second,)
    await register(storage, kinds=["new.kind"])
    assert await claim(storage, lease, kinds=["new.kind", "tests.noop"]) == []


async def test_a_held_job_keeps_its_place_in_the_order(storage: Storage, lease: PodLease) -> None:
    first = await put_on_hold(storage, lease)
    second = await enqueue_one(storage, kind="new.kind")
    newcomer = await register(storage, kinds=["new.kind"])
    order = [
        (await claim_one(storage, newcomer, kinds=["new.kind"])).claim.job_id for _ in range(2)
    ]
    assert order == [first, second]


async def test_a_held_job_expires_like_any_other(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage, kind="new.kind", expires_at=clock.now() + LEASE)
    await claim(storage, lease)
    clock.advance(LEASE)
    assert await storage.jobs.expire(10) == 1
    assert (await get_job(storage, job_id)).status is JobStatus.CANCELLED


async def test_a_kind_nobody_knows_is_put_on_hold_behind_jobs_that_others_know(
    storage: Storage, lease: PodLease
) -> None:
    await register(storage, kinds=["other"])
    await storage.jobs.enqueue([new_job(kind="other", priority=-1) for _ in range(20)])
    demand = Demand(worker_ids=("a", "b"), limit=2, kinds=frozenset({KIND}))
    assert not (await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed
    strange = [await enqueue_one(storage, kind="nobody.knows", priority=n) for n in (-1, 0)]
    mine = await enqueue_one(storage, priority=3)
    [claimed] = (await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed
    assert claimed.claim.job_id == mine
    for job_id in strange:
        assert (await get_job(storage, job_id)).hold is Hold.UNKNOWN_KIND
    counts = (await storage.jobs.counts())[QUEUE]
    assert (counts.held, counts.due) == (2, 20)


@pytest.mark.parametrize("kinds", [frozenset({KIND}), frozenset[str]()], ids=["a_kind", "none"])
@pytest.mark.parametrize("why", ["lease ran out", "paused"])
async def test_a_claim_that_may_take_nothing_puts_nothing_on_hold(
    storage: Storage, lease: PodLease, clock: ManualClock, why: str, kinds: frozenset[str]
) -> None:
    await register(storage, kinds=["other"], lease_for=3 * LEASE)
    await storage.jobs.enqueue([new_job(kind="other", priority=-1) for _ in range(20)])
    demand = Demand(worker_ids=("a", "b"), limit=2, kinds=kinds)
    # From here on a store may look by kind.
    assert not (await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed
    strange = [await enqueue_one(storage, kind="nobody.knows", priority=n) for n in (-1, 0)]
    if why == "lease ran out":
        clock.advance(LEASE)
    else:
        await storage.config.set_paused(QUEUE, True)
    assert not (await storage.jobs.exchange(QUEUE, [], demand, lease)).claimed
    for job_id in strange:
        assert (await get_job(storage, job_id)).hold is None


async def test_runs_of_kinds_behind_jobs_of_another_keep_their_order(storage: Storage) -> None:
    await register(storage, kinds=["other"])
    lease = await register(storage, kinds=["a", "b"])
    await storage.jobs.enqueue([new_job(kind="other") for _ in range(10)])
    requests = [new_job(kind=kind) for kind in "aba" for _ in range(15)]
    await storage.jobs.enqueue(requests)
    order: list[JobId] = []
    for _ in range(3):
        claimed = await claim(storage, lease, limit=20, kinds=["a", "b"])
        order += [each.claim.job_id for each in claimed]
        assert all([await finish(storage, each, done()) for each in claimed])
    assert order == [request.id for request in requests]
