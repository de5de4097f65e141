"""Looks answer in one call what single reads answer."""

from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, JobStatus
from forge_jobs.model.looks import (
    CRASHED_WITHIN,
    MOST_BLOCKED,
    MOST_CANCELLED,
    MOST_FULL_KEYS,
    MOST_RUNS,
    FullKey,
    JobsAsked,
    JobsLook,
    LimitLoad,
)
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import RateLimit
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    KIND,
    LEASE,
    QUEUE,
    claim,
    claim_one,
    dead,
    enqueue_one,
    finish,
    held,
    rate_limited,
    revive,
)
from tests.support.firings import a_spec

pytestmark = pytest.mark.anyio

EVERYTHING = JobsAsked(
    blocked=(QUEUE, "nowhere"), crashed=(QUEUE,), held=(QUEUE,), starved=(QUEUE,), runs=True
)


async def test_a_look_at_nothing(storage: Storage) -> None:
    assert await storage.jobs.look(JobsAsked()) == JobsLook()
    assert await storage.jobs.look(EVERYTHING) == JobsLook()
    look = await storage.cron.look()
    assert (look.queues, look.limits, look.pods, look.events) == ((), (), (), ())
    assert (look.leader, look.schedules, look.now) == (None, (), await storage.cron.now())


async def test_all_but_jobs_are_those_of_single_reads(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.set_rate_limit("gh", RateLimit(5, 60))
    await storage.config.set_paused(QUEUE, True)
    await storage.cron.put_schedule(a_spec(name="nightly"), clock.now())
    await storage.cron.put_schedule(a_spec(name="gone"), clock.now())
    await storage.cron.delete_schedule("gone")
    await storage.cron.lead(lease.host_id, DAY)
    await storage.jobs.append_events(
        [
            TimelineEvent(at=clock.now(), kind=EventKind.POD_STARTED, host_id=lease.host_id),
            TimelineEvent(at=clock.now(), kind=EventKind.STARTED, queue=QUEUE),
        ]
    )
    look = await storage.cron.look()
    assert [*look.queues] == await storage.config.queues()
    assert [*look.limits] == await storage.config.rate_limits()
    assert [*look.schedules] == await storage.cron.schedules()
    assert [*look.pods] == await storage.procs.pods()
    assert [each.kind for each in look.events] == [EventKind.POD_STARTED]
    assert [*look.events] == await storage.jobs.events(queue="")
    assert look.leader == await storage.cron.leader()


async def test_jobs_of_each_sort(storage: Storage, lease: PodLease) -> None:
    await storage.config.set_rate_limit("gh", RateLimit(5, 60))
    parent = await enqueue_one(storage)
    blocked = [
        await enqueue_one(storage, after=(After(parent, on_failure="hold"),)) for _ in range(2)
    ]
    assert await finish(storage, await claim_one(storage, lease), dead())
    told = [Delivery(each, "hold") for each in await storage.jobs.handovers(10)]
    assert await storage.jobs.deliver(told) == 2
    starved = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    assert await finish(storage, claimed, rate_limited(timedelta(hours=1)))
    waiting = await enqueue_one(storage, delay=timedelta(hours=1))
    lost = await enqueue_one(storage)
    assert await revive(storage, await claim_one(storage, lease), stale_after=timedelta(0))

    look = await storage.jobs.look(EVERYTHING)

    wanted = await storage.jobs.get([*blocked, starved, lost, parent])
    assert look.blocked == tuple(wanted[each] for each in reversed(blocked))
    assert look.starved == (wanted[starved],)
    assert {each.id for each in look.held} == {starved, waiting, lost}
    assert look.crashed == (wanted[lost],)
    assert look.parents == {parent: wanted[parent]}
    assert [each.held_by for each in look.blocked] == [(parent,)] * 2
    only = await storage.jobs.look(JobsAsked(held=(QUEUE,)))
    assert only == JobsLook(held=look.held)


async def test_crashes_are_looked_for_where_one_was_of_late(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    asked = JobsAsked(crashed=(QUEUE, "nowhere"))
    first = await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    assert (await storage.jobs.look(asked)).crashed == ()
    clock.advance(LEASE)
    assert await revive(storage, claimed)
    [found] = (await storage.jobs.look(asked)).crashed
    assert found == (await storage.jobs.get([first]))[first]
    clock.advance(CRASHED_WITHIN)
    assert [job.id for job in (await storage.jobs.look(asked)).crashed] == [first]
    clock.advance(timedelta(minutes=1))
    assert (await storage.jobs.look(asked)).crashed == ()


async def test_the_longest_runs_and_those_that_were_asked_to_stop(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    count = MOST_RUNS + 5
    for _ in range(count):
        await enqueue_one(storage)
    begun = []
    for each in await claim(storage, lease, limit=count):
        begun.append(held(each, f"worker-{each.claim.job_id}"))
        await storage.jobs.heartbeat(lease, begun, DAY)
        clock.advance(timedelta(seconds=1))
    ids = [each.claim.job_id for each in begun]
    asked = ids[-MOST_CANCELLED - 2 :]
    await storage.jobs.cancel(JobFilter(ids=tuple(asked)))

    look = await storage.jobs.look(JobsAsked(runs=True))

    assert [each.job_id for each in look.runs] == ids[:MOST_RUNS]
    assert [each.job_id for each in look.cancelled] == asked[:MOST_CANCELLED]
    assert look.events.keys() == {*asked[:MOST_CANCELLED]}
    for events in look.events.values():
        assert EventKind.CANCEL_REQUESTED in {each.kind for each in events}


async def test_a_sort_is_bounded(storage: Storage) -> None:
    parent = await enqueue_one(storage)
    for _ in range(MOST_BLOCKED + 1):
        await enqueue_one(storage, after=(After(parent),))
    look = await storage.jobs.look(JobsAsked(blocked=(QUEUE,)))
    assert len(look.blocked) == MOST_BLOCKED
    assert {job.status for job in look.blocked} == {JobStatus.BLOCKED}
    assert {job.cause for job in look.blocked} == {Cause.ENQUEUED}


NAME = "hosts"


async def within(storage: Storage, key: str, name: str = NAME, **fields: Any) -> JobId:
    return await enqueue_one(storage, limit_name=name, limit_key=key, **fields)


async def test_the_queues_with_limits_by_key_are_named(storage: Storage) -> None:
    await enqueue_one(storage)
    assert (await storage.cron.look()).limited == ()
    await storage.config.ensure_limits("b", {NAME: 1})
    await storage.config.ensure_limits("a", {NAME: 1})
    look = await storage.cron.look()
    assert look.limited == ("a", "b")
    assert [*look.queues] == await storage.config.queues()
    await storage.config.delete_limit("a", NAME)
    assert (await storage.cron.look()).limited == ("b",)


async def test_the_load_of_limits_by_key(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 2, "unused": 5})
    begun = clock.now()
    for key in ("a", "a", "b"):
        await within(storage, key)
    assert len(await claim(storage, lease, limit=10)) == 3
    clock.advance(timedelta(seconds=1))
    await within(storage, "b", kind="tests.other")
    await within(storage, "c")
    waits = begun + timedelta(seconds=1)
    for key in ("a", "a", "b", "a"):
        await within(storage, key)
    await within(storage, "a", name="of no limit")
    assert len(await claim(storage, lease, limit=10, kinds=(KIND, "tests.other"))) == 3

    look = await storage.jobs.look(JobsAsked(limited=(QUEUE, "nowhere")))

    first = FullKey(key="a", running=2, waiting=3, due_at=waits, claimed_at=begun, kinds=(KIND,))
    second = FullKey(
        key="b",
        running=2,
        waiting=1,
        due_at=waits,
        claimed_at=waits,
        kinds=(KIND, "tests.other"),
    )
    load = LimitLoad(
        queue=QUEUE,
        name=NAME,
        at_most=2,
        running=5,
        waiting=4,
        oldest_due_at=waits,
        full=2,
        full_keys=(first, second),
    )
    assert look == JobsLook(limits=(load, LimitLoad(queue=QUEUE, name="unused", at_most=5)))


async def test_full_keys_of_a_look_are_bounded(storage: Storage, lease: PodLease) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 1}, {NAME: 3})
    for key in range(MOST_FULL_KEYS + 2):
        for _ in range(2):
            await within(storage, f"{key:02}")
    await claim(storage, lease, limit=100)
    [load] = (await storage.jobs.look(JobsAsked(limited=(QUEUE,)))).limits
    assert (load.share, load.running, load.full) == (3, MOST_FULL_KEYS + 2, MOST_FULL_KEYS + 2)
    assert [each.key for each in load.full_keys] == [f"{key:02}" for key in range(MOST_FULL_KEYS)]
