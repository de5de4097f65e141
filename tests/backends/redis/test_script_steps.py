"""No script holds the server up for long: commands of each script, as the server reports them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Literal

import pytest
from redis.asyncio import Redis

from forge_jobs.clients.bulk import in_batches
from forge_jobs.clients.client import JobClient
from forge_jobs.clock import ManualClock
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.filters import BulkOutcome, JobFilter
from forge_jobs.model.jobs import After, ClaimedJob, JobStatus
from forge_jobs.model.processes import ClaimState, HeldClaim, PodLease
from forge_jobs.model.queues import QueueChange, Retention
from forge_jobs.model.sweeps import Swept
from forge_jobs.model.transitions import CLAIM_BYTES, Finalization
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.jobs.claim import CLAIMS_AT_ONCE
from tests.support.factories import (
    DAY,
    KIND,
    LEASE,
    QUEUE,
    claim,
    claim_for,
    cleaned_up,
    dead,
    done,
    enqueue_one,
    new_job,
    register,
    run_one,
)
from tests.support.monitored import commands_of_scripts

pytestmark = pytest.mark.anyio

JOBS = 1_200

MOST = 3_500
"""Commands of one script: 10 ms of a server that takes 3 us for each."""


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage)


@asynccontextmanager
async def each_step_short(client: Redis, most: int = MOST) -> AsyncIterator[list[int]]:
    """Refuse scripts of more than ``most`` commands after they have run. Yield their commands."""
    async with commands_of_scripts(client) as numbers:
        yield numbers
    assert max(numbers) <= most


async def stored(storage: Storage, clock: ManualClock, count: int = JOBS) -> None:
    for _ in range(0, count, 300):
        await storage.jobs.enqueue(
            [new_job(expires_at=clock.now() + DAY, tags=("t",)) for _ in range(300)]
        )


async def claimed(storage: Storage, lease: PodLease) -> list[ClaimedJob]:
    taken: list[ClaimedJob] = []
    while some := await claim_for(storage, QUEUE, [], 1_000, frozenset({KIND}), lease):
        taken += some
    return taken


@pytest.mark.parametrize("verb", ["cancel", "requeue", "restore", "run_now", "delete"])
async def test_what_operators_do_to_many_jobs(
    storage: Storage, client: Redis, clock: ManualClock, verb: str
) -> None:
    await stored(storage, clock)
    if verb in {"requeue", "restore"}:
        await in_batches(storage.jobs.cancel, JobFilter())

    async def by_thousand(which: JobFilter, *, cursor: str | None) -> BulkOutcome:
        operation: Callable[..., Awaitable[BulkOutcome]] = getattr(storage.jobs, verb)
        return await operation(which, cursor=cursor, limit=1_000)

    async with each_step_short(client):
        assert (await in_batches(by_thousand, JobFilter())).changed == JOBS


async def test_many_that_expire_at_once(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    await stored(storage, clock)
    clock.advance(DAY)
    async with each_step_short(client):
        assert await storage.jobs.expire(1_000) == 1_000
    assert await storage.jobs.expire(1_000) == JOBS - 1_000


async def test_many_claims_and_their_ends(
    storage: Storage, client: Redis, clock: ManualClock, lease: PodLease
) -> None:
    await stored(storage, clock)
    async with each_step_short(client, 900):
        some = await claim_for(storage, QUEUE, [], 1_000, frozenset({KIND}), lease)
    assert len(some) == 1_000
    assert [each.claim.job_id for each in some] == sorted(each.claim.job_id for each in some)
    async with each_step_short(client):
        assert await storage.jobs.release([each.claim for each in some]) == [True] * 1_000
    some = await claimed(storage, lease)
    ends = [Finalization(claim=each.claim, transition=done()) for each in some]
    async with each_step_short(client):
        assert await storage.jobs.finalize(ends) == [True] * JOBS


async def test_a_beat_for_many_claims(
    storage: Storage, client: Redis, clock: ManualClock, lease: PodLease
) -> None:
    await stored(storage, clock)
    taken = await claimed(storage, lease)
    held = [HeldClaim(each.claim, "w") for each in taken[:-3]]
    lost = taken[0].claim
    assert await storage.jobs.finalize([_ended(taken[0])]) == [True]
    async with each_step_short(client):
        beat = await storage.jobs.heartbeat(lease, held, LEASE)
    assert beat.lease_held
    assert beat.claims == {
        one.claim: ClaimState.LOST if one.claim == lost else ClaimState.HELD for one in held
    }
    assert {claim.job_id for claim in beat.unknown} == {each.claim.job_id for each in taken[-3:]}


async def test_many_claims_that_have_gone_silent(
    storage: Storage, client: Redis, clock: ManualClock, lease: PodLease
) -> None:
    await stored(storage, clock)
    other = await register(storage, queues=("other",))
    await storage.jobs.enqueue([new_job(queue="other") for _ in range(300)])
    await claim(storage, other, queue="other", limit=300)
    await claimed(storage, lease)
    clock.advance(2 * LEASE)
    async with each_step_short(client, 500):
        silent = list(await storage.jobs.stale_claims(LEASE, JOBS + 300))
    assert len({each.claim for each in silent}) == JOBS + 300
    assert sum(each.claim.queue == "other" for each in silent) == 300


async def test_a_large_job_behind_as_many_small_ones_as_a_step_takes_comes_with_the_next_claim(
    storage: Storage, lease: PodLease
) -> None:
    await storage.jobs.enqueue([new_job(priority=-1) for _ in range(CLAIMS_AT_ONCE)])
    large = '{"a":"' + "x" * CLAIM_BYTES + '"}'
    await storage.jobs.enqueue([new_job(payload=large)])
    first = await claim_for(storage, QUEUE, [], 1_000, frozenset({KIND}), lease)
    assert [each.payload for each in first] == ["{}"] * CLAIMS_AT_ONCE
    [last] = await claim_for(storage, QUEUE, [], 1_000, frozenset({KIND}), lease)
    assert last.payload == large


def _ended(one: ClaimedJob) -> Finalization:
    return Finalization(claim=one.claim, transition=done())


async def test_lists_that_find_little(storage: Storage, client: Redis, clock: ManualClock) -> None:
    for number in range(20):
        queue = f"q{number}"
        await storage.jobs.enqueue([new_job(queue=queue, tags=("t",)) for _ in range(250)])
    async with each_step_short(client):
        for which in (
            JobFilter(tag="t"),
            JobFilter(statuses=(JobStatus.PENDING,), tag="t", kinds=("none",)),
            JobFilter(enqueued_before=clock.now() - DAY),
        ):
            await storage.jobs.list(which, limit=1_000)


async def test_retention_of_many(
    storage: Storage, client: Redis, clock: ManualClock, lease: PodLease
) -> None:
    await stored(storage, clock)
    taken = await claimed(storage, lease)
    await storage.jobs.finalize([_ended(each) for each in taken])
    await storage.config.set_queue(QUEUE, QueueChange(retention=Retention(done=timedelta(0))))
    clock.advance(DAY)
    async with each_step_short(client):
        assert await cleaned_up(storage, 5_000) >= JOBS


async def test_what_a_client_enqueues_in_one_call(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    async with JobClient(storage) as jobs:
        many = [
            EnqueueRequest(KIND).options(expires_at=clock.now() + DAY, tags=("a", "b"))
            for _ in range(JOBS)
        ]
        # One command for each job, and few of many arguments.
        async with each_step_short(client, 300):
            assert len(await jobs.enqueue_many(many)) == JOBS


async def test_counts_of_many_queues_with_many_kinds(storage: Storage, client: Redis) -> None:
    queues, kinds = range(40), range(60)
    for number in queues:
        await storage.jobs.enqueue(
            [new_job(queue=f"q{number:02}", kind=f"kind.{each}") for each in kinds]
        )
    async with each_step_short(client) as steps:
        counted = await storage.jobs.counts()
        due = await storage.procs.due_kinds([f"q{number:02}" for number in queues])
    assert len(steps) > 3
    assert {(each.due, each.by_status[JobStatus.PENDING]) for each in counted.values()} == {
        (len(kinds), len(kinds))
    }
    assert len(counted) == len(due) == len(queues)
    assert all(len(each) == len(kinds) for each in due.values())


async def test_events_of_many_queues(storage: Storage, client: Redis, clock: ManualClock) -> None:
    names = [f"q{number:02}" for number in range(20)]
    for name in names:
        await storage.jobs.append_events(
            [
                TimelineEvent(at=clock.now(), kind=EventKind.STARTED, queue=name, detail=f"{each}")
                for each in range(300)
            ]
        )
    async with each_step_short(client) as steps:
        found = await storage.jobs.events(limit=1_000)
    # The commands of a script do not show how long it reads the reply of one of them.
    assert len(steps) >= 3
    assert len(found) == 1_000
    assert {each.queue for each in await storage.jobs.events(limit=6_000)} == set(names)


async def test_pods_are_read_some_in_a_step(storage: Storage, client: Redis) -> None:
    leases = [await register(storage, kinds=(f"kind.{n}",)) for n in range(90)]
    hosts = {each.host_id for each in leases}
    async with each_step_short(client, 60):
        assert {each.pod.host_id for each in await storage.procs.pods()} == hosts
        assert {each.host_id for each in await storage.procs.live_pods()} == hosts
        assert {f"kind.{n}" for n in range(90)} <= (await storage.procs.routes()).keys()


@pytest.mark.parametrize("on_failure", ["cancel", "hold", "continue"])
async def test_the_end_of_a_parent_of_many_children(
    storage: Storage,
    client: Redis,
    lease: PodLease,
    on_failure: Literal["cancel", "hold", "continue"],
) -> None:
    parents = [await enqueue_one(storage) for _ in range(2)]
    edges = (After(parents[0], on_failure), After(parents[1], "continue"))
    await storage.jobs.enqueue([new_job(after=edges[:1]) for _ in range(500)])
    await storage.jobs.enqueue([new_job(after=edges, queue="q") for _ in range(700)])
    async with each_step_short(client):
        for _ in parents:
            await run_one(storage, lease, dead())
        assert await hand_over_once(storage.jobs) >= JOBS


async def test_the_ends_of_many_parents_of_a_child_each(storage: Storage, client: Redis) -> None:
    parents = [new_job() for _ in range(JOBS)]
    for first in range(0, JOBS, 400):
        some = parents[first : first + 400]
        await storage.jobs.enqueue(some)
        await storage.jobs.enqueue([new_job(queue="q", after=(After(each.id),)) for each in some])
    async with each_step_short(client):
        await in_batches(storage.jobs.cancel, JobFilter(queues=(QUEUE,)))
        assert await hand_over_once(storage.jobs) == JOBS


@pytest.mark.long
async def test_ten_thousand_parents_of_one_job(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    parents = [new_job(queue=f"q{number % 3}") for number in range(10_000)]
    for first in range(0, len(parents), 500):
        await storage.jobs.enqueue(parents[first : first + 500])
    child = new_job(after=tuple(After(each.id, "hold") for each in parents))
    async with each_step_short(client):
        await storage.jobs.enqueue([child])
        assert await storage.jobs.sweep(2_000) == Swept()
        clock.advance(90)
        assert await storage.jobs.sweep(2_000) == Swept()
        await storage.jobs.cancel(JobFilter(ids=(child.id,)))
        assert (await storage.jobs.requeue(JobFilter(ids=(child.id,)))).changed == (child.id,)
        assert len((await storage.jobs.get([child.id]))[child.id].waits_for) == 10_000
        await in_batches(storage.jobs.cancel, JobFilter(queues=("q0", "q1", "q2")))
        assert await hand_over_once(storage.jobs) == 10_000
        assert (await storage.jobs.release_held(JobFilter(ids=(child.id,)))).changed == (child.id,)
        await storage.jobs.cancel(JobFilter(ids=(child.id,)))
        assert (await storage.jobs.delete(JobFilter(ids=(child.id,)))).changed == (child.id,)
