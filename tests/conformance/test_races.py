"""Many callers at once, over several bundles of one store: one wins, counts are exact."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import anyio
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.jobs import After, Claim, ClaimedJob, EnqueueOutcome, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery, Finalization
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    LEASE,
    QUEUE,
    claim,
    claim_one,
    counters,
    dead,
    done,
    enqueue_one,
    enqueue_patiently,
    failed,
    finish,
    get_job,
    held,
    new_job,
    only,
    register,
    revive,
    run_one,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def bundles(storage: Storage) -> AsyncIterator[list[Storage]]:
    """Three independent ways into the same store."""
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(await storage.reopen()) for _ in range(2)]
        yield [storage, *others]


async def at_once(*calls: Callable[[], Awaitable[object]]) -> list[object]:
    """Run all calls at the same time, and return their results in order."""
    results: list[object] = [None] * len(calls)

    async def run(index: int) -> None:
        results[index] = await calls[index]()

    async with anyio.create_task_group() as group:
        for index in range(len(calls)):
            group.start_soon(run, index)
    return results


async def test_sixteen_producers_on_one_key_make_one_job(bundles: list[Storage]) -> None:
    calls = 24
    outcomes: list[EnqueueOutcome] = []

    async def produce(storage: Storage) -> None:
        for _ in range(calls):
            outcomes.extend(await enqueue_patiently(storage, [new_job(unique=Unique("k"))]))

    await at_once(*(lambda s=bundles[n % 3]: produce(s) for n in range(16)))
    assert len({outcome.job_id for outcome in outcomes}) == 1
    assert Counter(outcome.deduplicated for outcome in outcomes) == {
        False: 1,
        True: 16 * calls - 1,
    }
    assert len((await bundles[0].jobs.list(JobFilter())).jobs) == 1
    assert await counters(bundles[0]) == {"enqueued": 1, "deduplicated": 16 * calls - 1}


async def test_overlapping_batches_of_keys_make_one_job_per_key(bundles: list[Storage]) -> None:
    keys = [f"k{number}" for number in range(10)]

    async def produce(storage: Storage, start: int) -> None:
        order = keys[start:] + keys[:start]
        await enqueue_patiently(storage, [new_job(unique=Unique(key)) for key in order])

    await at_once(*(lambda n=n: produce(bundles[n % 3], n) for n in range(9)))
    page = await bundles[0].jobs.list(JobFilter(), limit=1_000)
    assert len(page.jobs) == len(keys)
    assert await counters(bundles[0]) == {"enqueued": 10, "deduplicated": 80}


async def test_one_id_from_many_callers_is_stored_once(bundles: list[Storage]) -> None:
    request = new_job(fingerprint="f")
    outcomes = await at_once(
        *(lambda s=bundles[n % 3]: enqueue_patiently(s, [request]) for n in range(12))
    )
    assert outcomes == [[EnqueueOutcome(request.id)]] * 12
    assert await counters(bundles[0]) == {"enqueued": 1}


async def test_each_job_goes_to_one_of_many_claimers(bundles: list[Storage]) -> None:
    requests = [new_job() for _ in range(120)]
    await bundles[0].jobs.enqueue(requests)
    taken: list[ClaimedJob] = []

    async def consume(storage: Storage, limit: int) -> None:
        lease = await register(storage)
        while batch := await claim(storage, lease, limit=limit):
            taken.extend(batch)

    await at_once(*(lambda n=n: consume(bundles[n % 3], 1 + n % 4) for n in range(12)))
    assert sorted(c.claim.job_id for c in taken) == [request.id for request in requests]
    assert {c.attempt for c in taken} == {1}
    assert await counters(bundles[0]) == {"enqueued": 120, "claimed": 120}


async def test_one_of_many_equal_ends_is_applied_and_all_are_true(
    bundles: list[Storage],
) -> None:
    lease = await register(bundles[0])
    await enqueue_one(bundles[0])
    claimed = await claim_one(bundles[0], lease)
    ends = await at_once(*(lambda s=bundles[n % 3]: finish(s, claimed, done()) for n in range(9)))
    assert ends == [True] * 9
    assert await counters(bundles[0]) == {"enqueued": 1, "claimed": 1, "succeeded": 1}


async def stale_jobs(
    storage: Storage, clock: ManualClock, count: int, lease: PodLease | None = None
) -> list[Claim]:
    lease = lease or await register(storage)
    await storage.jobs.enqueue([new_job() for _ in range(count)])
    claims = [c.claim for c in await claim(storage, lease, limit=count)]
    clock.advance(LEASE)
    return claims


async def test_one_of_many_reapers_revives_a_claim(
    bundles: list[Storage], clock: ManualClock
) -> None:
    claims = await stale_jobs(bundles[0], clock, 10)
    answers = await at_once(
        *(lambda c=c, s=s: revive(s, c) for c in claims for s in (*bundles, *bundles))
    )
    assert Counter(answers) == {True: 10, False: 50}
    assert (await counters(bundles[0]))["crashed"] == 10


async def test_reaper_against_finalize_one_wins(bundles: list[Storage], clock: ManualClock) -> None:
    claims = await stale_jobs(bundles[0], clock, 20)
    answers = await at_once(
        *(lambda c=c: revive(bundles[0], c) for c in claims),
        *(lambda c=c: finish(bundles[1], c, done()) for c in claims),
    )
    revived, ended = answers[:20], answers[20:]
    assert [a != b for a, b in zip(revived, ended, strict=True)] == [True] * 20
    found = await bundles[0].jobs.get([c.job_id for c in claims])
    for each, was_revived in zip(claims, revived, strict=True):
        expected = JobStatus.PENDING if was_revived else JobStatus.DONE
        assert found[each.job_id].status is expected
    counted = await counters(bundles[0])
    assert counted.get("crashed", 0) == revived.count(True)
    assert counted.get("succeeded", 0) == ended.count(True)


async def test_reaper_against_heartbeat_one_wins(
    bundles: list[Storage], clock: ManualClock
) -> None:
    lease = await register(bundles[0])
    claims = await stale_jobs(bundles[0], clock, 20, lease)

    async def beat(each: Claim) -> str:
        state = await bundles[1].jobs.heartbeat(lease, [held(each)], LEASE)
        return state.claims[each].value

    answers = await at_once(
        *(lambda c=c: revive(bundles[0], c) for c in claims),
        *(lambda c=c: beat(c) for c in claims),
    )
    pairs = set(zip(answers[:20], answers[20:], strict=True))
    assert pairs <= {(True, "lost"), (False, "held")}


@pytest.mark.parametrize("verb", ["delete", "cancel"])
async def test_an_operator_against_claims_leaves_one_owner_or_none(
    bundles: list[Storage], verb: str
) -> None:
    requests = [new_job() for _ in range(30)]
    await bundles[0].jobs.enqueue(requests)
    lease = await register(bundles[1])
    taken: list[ClaimedJob] = []
    outcomes = []

    async def consume() -> None:
        while batch := await claim(bundles[1], lease, limit=2):
            taken.extend(batch)

    async def operate(index: int) -> None:
        storage = bundles[0] if index % 2 else bundles[2]
        outcomes.append(await getattr(storage.jobs, verb)(only(requests[-1 - index].id)))

    await at_once(consume, *(lambda n=n: operate(n) for n in range(30)))
    owned = {c.claim.job_id for c in taken}
    changed = {job_id for outcome in outcomes for job_id in outcome.changed}
    assert owned.isdisjoint(changed)
    assert owned | changed == {request.id for request in requests}
    found = await bundles[0].jobs.get(list(owned))
    assert {job.status for job in found.values()} <= {JobStatus.IN_PROGRESS}
    if verb == "cancel":
        assert {j.id for j in found.values() if j.cancel_requested} == owned & {
            job_id for outcome in outcomes for job_id in outcome.requested
        }


async def test_cancel_against_finalize_never_loses_the_cancel(bundles: list[Storage]) -> None:
    lease = await register(bundles[0])
    await bundles[0].jobs.enqueue([new_job() for _ in range(20)])
    claims = await claim(bundles[0], lease, limit=20)
    await at_once(
        *(lambda c=c: finish(bundles[0], c, failed()) for c in claims),
        *(lambda c=c: bundles[1].jobs.cancel(only(c.claim.job_id)) for c in claims),
    )
    found = await bundles[2].jobs.get([c.claim.job_id for c in claims])
    assert {job.status for job in found.values()} == {JobStatus.CANCELLED}
    counted = await counters(bundles[0])
    assert counted["cancelled"] == 20


async def test_of_many_requeues_of_one_key_one_is_applied(bundles: list[Storage]) -> None:
    lease = await register(bundles[0])
    ids = []
    for _ in range(9):
        ids.append(await enqueue_one(bundles[0], unique=Unique("k")))
        await run_one(bundles[0], lease, dead())
    outcomes = await at_once(
        *(lambda n=n: bundles[n % 3].jobs.requeue(only(ids[n])) for n in range(9)),
        *(lambda n=n: bundles[n % 3].jobs.enqueue([new_job(unique=Unique("k"))]) for n in range(3)),
    )
    page = await bundles[0].jobs.list(
        JobFilter(unique_key="k", statuses=(JobStatus.PENDING,)), limit=100
    )
    assert len(page.jobs) == 1
    refused = [dict(o.refused) for o in outcomes[:9]]  # type: ignore[attr-defined]
    applied = [o for o in outcomes[:9] if o.changed]  # type: ignore[attr-defined]
    reasons = {reason for each in refused for reason in each.values()}
    assert reasons <= {Refusal.KEY_TAKEN}
    assert len(applied) <= 1


async def test_mixed_ends_from_everywhere_are_counted_exactly(bundles: list[Storage]) -> None:
    lease = await register(bundles[0])
    await bundles[0].jobs.enqueue([new_job() for _ in range(60)])
    claims = await claim(bundles[0], lease, limit=60)
    endings = [done(), failed(LEASE), dead()]
    batches = [
        [Finalization(c.claim, endings[n % 3]) for n, c in enumerate(claims) if n % 6 == part]
        for part in range(6)
    ]
    await at_once(
        *(lambda b=b, s=s: s.jobs.finalize(b) for b in batches for s in bundles),
    )
    assert await counters(bundles[0]) == {
        "enqueued": 60,
        "claimed": 60,
        "succeeded": 20,
        "failed": 40,
    }


async def test_a_delivery_by_many_is_applied_once(bundles: list[Storage]) -> None:
    storage = bundles[0]
    lease = await register(storage)
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, after=(After(parent),))
    await run_one(storage, lease, done())
    deliveries = [Delivery(each, "settle") for each in await storage.jobs.handovers(10)]
    applied = await at_once(
        *(lambda s=bundles[n % 3]: s.jobs.deliver(deliveries) for n in range(9))
    )
    assert sorted(applied) == [0] * 8 + [1]  # type: ignore[type-var]
    assert (await get_job(storage, child)).status is JobStatus.PENDING
    assert (await counters(storage))["parents_settled"] == 1


async def test_a_parent_that_ends_while_its_child_comes_is_never_missed(
    bundles: list[Storage], lease: PodLease
) -> None:
    parents = [await enqueue_one(bundles[0]) for _ in range(15)]
    claims = {c.claim.job_id: c for c in await claim(bundles[0], lease, limit=15)}
    children = [new_job(after=(After(parent),)) for parent in parents]
    await at_once(
        *(lambda p=p: finish(bundles[0], claims[p], done()) for p in parents),
        *(lambda c=c: bundles[1].jobs.enqueue([c]) for c in children),
    )
    news = await bundles[2].jobs.handovers(100)
    assert sorted(each.child_id for each in news) == sorted(child.id for child in children)


async def test_counts_of_a_queue_add_up_after_a_storm(bundles: list[Storage]) -> None:
    async def live(storage: Storage, seed: int) -> None:
        lease = await register(storage)
        for step in range(12):
            await storage.jobs.enqueue([new_job(), new_job(unique=Unique(f"k{step % 3}"))])
            for number, claimed in enumerate(await claim(storage, lease, limit=2)):
                endings = [done(), failed(), dead()]
                await finish(storage, claimed, endings[(seed + step + number) % 3])

    await at_once(*(lambda n=n: live(bundles[n % 3], n) for n in range(6)))
    counted = await counters(bundles[0])
    by_status = (await bundles[0].jobs.counts())[QUEUE].by_status
    assert counted["enqueued"] + counted.get("deduplicated", 0) == 6 * 12 * 2
    assert sum(by_status.values()) == counted["enqueued"]
    ended = by_status.get("done", 0)
    assert ended == counted.get("succeeded", 0)
