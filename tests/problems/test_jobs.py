"""Problems of runs and held jobs, read from a store."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.transitions import Transition
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.storage.protocols import Storage
from tests.problems.conftest import HOUR, MINUTE, SECOND, Fleet
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    claim,
    claim_one,
    crashed,
    dead,
    done,
    enqueue_one,
    finish,
    held,
    revive,
)

pytestmark = pytest.mark.anyio


async def test_jobs_of_a_kind_that_no_pod_knows(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=5)
    await enqueue_one(storage)
    clock.advance(MINUTE)
    due = clock.now()
    for _ in range(2):
        await enqueue_one(storage, kind="new.kind")
        clock.advance(SECOND)
    assert len(await claim(storage, lease, limit=5)) == 1
    clock.advance(57 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.UNKNOWN_KIND, due)
    assert (found.about, found.jobs, found.queue) == ("new.kind", 2, QUEUE)
    await fleet.start("other", kinds=("new.kind",))
    assert await fleet.codes() == []


async def test_children_behind_a_parent_that_died(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start()
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, after=(After(parent, on_failure="hold"),))
    await enqueue_one(storage, after=(After(await enqueue_one(storage)),))
    claimed = await claim_one(storage, lease)
    clock.advance(HOUR)
    assert await finish(storage, claimed, dead())
    died = clock.now()
    clock.advance(30 * SECOND)
    await hand_over_once(storage.jobs)
    clock.advance(29 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.CHILDREN_HELD, died)
    assert (found.jobs, found.command) == (1, f"forge-jobs jobs requeue {parent}")
    await storage.jobs.requeue(JobFilter(ids=(parent,)))
    assert await fleet.codes() == []
    assert (await storage.jobs.get([child]))[child].status is JobStatus.BLOCKED


async def test_a_handler_that_goes_on_after_a_cancel(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=2)
    for _ in range(2):
        await enqueue_one(storage)
    claims = [
        held(each, f"worker-{each.claim.job_id}") for each in await claim(storage, lease, limit=2)
    ]
    await storage.jobs.heartbeat(lease, claims, 24 * HOUR)
    stubborn = claims[0].claim.job_id
    clock.advance(HOUR)
    await storage.jobs.cancel(JobFilter(ids=(stubborn,)))
    asked = clock.now()
    clock.advance(29 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.CANCEL_IGNORED, asked)
    assert (found.about, found.jobs) == (stubborn, 1)
    clock.advance(SECOND)
    await storage.jobs.cancel(JobFilter(ids=(stubborn,)))
    await fleet.the_problem(Code.CANCEL_IGNORED, asked)
    ended = Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED)
    assert await finish(storage, claims[0].claim, ended)
    assert await fleet.codes() == []


async def test_processes_die_with_jobs_of_one_kind(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=5)
    await enqueue_one(storage)
    clock.advance(HOUR)
    first = clock.now() + LEASE
    for number in range(4):
        assert Code.CRASH_LOOP not in await fleet.codes(), number
        claimed = await claim_one(storage, lease)
        clock.advance(LEASE)
        assert await revive(storage, claimed, crashed())
        if number == 1:
            # Much later there is a second row of crashes, and the first ones do not count.
            clock.advance(HOUR)
            first = clock.now() + LEASE
            assert Code.CRASH_LOOP not in await fleet.codes()
    claimed = await claim_one(storage, lease)
    clock.advance(LEASE)
    assert await revive(storage, claimed, crashed(status=JobStatus.DEAD))
    found = await fleet.the_problem(Code.CRASH_LOOP, first)
    assert (found.about, found.jobs) == (KIND, 3)
    clock.advance(10 * MINUTE)
    assert await fleet.codes() == []


async def test_failures_of_one_sort_come_in_a_burst(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    async def fail(count: int, group: str = "oops", dead: int = 0) -> None:
        at = clock.now()
        sample = FailureSample(
            queue=QUEUE,
            group=group,
            kind=KIND,
            type="OSError",
            message="no route to …",
            minute=at.replace(second=0, microsecond=0),
            first_at=at,
            last_at=at,
            retried=count - dead,
            dead=dead,
        )
        assert await storage.jobs.add_failures([sample]) == []

    await fleet.start()
    await enqueue_one(storage)
    await fail(1, "fresh")
    for _ in range(20):
        # Some fail all day long.
        await fail(1)
        clock.advance(HOUR)
    clock.advance(17 * SECOND)
    first = clock.now()
    await fail(5, "fresh")
    clock.advance(MINUTE)
    await fail(4, "fresh", dead=1)
    assert await fleet.codes() == []
    await fail(1, "fresh", dead=1)
    found = await fleet.the_problem(Code.ERROR_BURST, first.replace(second=0))
    assert (found.about, found.queue, found.jobs) == (KIND, QUEUE, 10)
    assert found.evidence == "10 failures of tests.noop in 5 min, 2 dead: OSError."
    clock.advance(6 * MINUTE)
    assert await fleet.codes() == []


@pytest.mark.long
async def test_healthy_minutes_under_load(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=1)
    for _ in range(20):
        for _ in range(3):
            await enqueue_one(storage)
        for _ in range(2):
            claimed = await claim_one(storage, lease)
            await storage.jobs.heartbeat(lease, [held(claimed, "worker")], 24 * HOUR)
            clock.advance(15 * SECOND)
            assert await fleet.codes() == []
            assert await finish(storage, claimed, done())
