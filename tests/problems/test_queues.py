"""Problems of queues, read from a store: the right code, since the right instant."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind
from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.queues import CooldownPolicy, QueueChange
from forge_jobs.model.transitions import Cooldown, Transition
from forge_jobs.policy.judgement.problems.problem import Code
from forge_jobs.storage.protocols import Storage
from tests.problems.conftest import HOUR, MINUTE, SECOND, Fleet
from tests.support.factories import QUEUE, claim_one, enqueue_one, finish

pytestmark = pytest.mark.anyio


async def test_a_queue_whose_pods_have_stopped(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start()
    other = await fleet.start("elsewhere")
    await enqueue_one(storage)
    first = await fleet.start()
    clock.advance(MINUTE)
    await fleet.stop(first)
    clock.advance(MINUTE)
    stopped = clock.now()
    await fleet.stop(lease)
    clock.advance(29 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.UNSERVED_QUEUE, stopped)
    assert (found.queue, found.jobs) == (QUEUE, 1)
    assert "pods of version 7a11" in found.why
    assert found.command == f"forge-jobs worker MODULE:ATTR --queues {QUEUE}"
    await fleet.stop(other, "elsewhere")
    await fleet.the_problem(Code.UNSERVED_QUEUE, stopped)


async def test_a_queue_whose_pod_was_killed(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    beat = clock.now()
    lease = await fleet.start(lease_for=15 * SECOND)
    await fleet.start("elsewhere")
    await enqueue_one(storage)
    clock.advance(15 * SECOND)
    assert await fleet.codes() == [Code.POD_SILENT]
    clock.advance(15 * SECOND)
    await fleet.the_problem(Code.UNSERVED_QUEUE, beat)
    # The record of the pod goes, and what is left is the word of the pod that removed the record.
    assert await storage.procs.drop_dead_pods(15 * SECOND, 10) == [lease.host_id]
    dropped = clock.now()
    await fleet.tell(EventKind.POD_LOST, lease.host_id)
    clock.advance(MINUTE)
    await fleet.the_problem(Code.UNSERVED_QUEUE, dropped)


async def test_a_queue_that_nobody_has_served_waits_since_its_oldest_job_is_due(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start("elsewhere")
    enqueued = clock.now()
    await enqueue_one(storage)
    clock.advance(HOUR)
    await fleet.the_problem(Code.UNSERVED_QUEUE, enqueued)


async def test_a_paused_queue_without_a_pod_is_known_to_have_none(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start("elsewhere")
    await enqueue_one(storage)
    clock.advance(MINUTE)
    assert await fleet.codes() == [Code.UNSERVED_QUEUE]
    await storage.config.set_paused(QUEUE, True)
    assert await fleet.codes() == []
    clock.advance(MINUTE)
    assert await fleet.codes() == [Code.PAUSED_WITH_WORK]


async def test_pods_that_drain_do_not_serve(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start()
    await enqueue_one(storage)
    clock.advance(MINUTE)
    await fleet.tell(EventKind.POD_DRAINING, "grace 30s", lease.host_id)
    await storage.procs.set_draining(lease)
    asked = clock.now()
    clock.advance(30 * SECOND)
    await fleet.the_problem(Code.UNSERVED_QUEUE, asked)


async def test_a_queue_without_slots(storage: Storage, fleet: Fleet, clock: ManualClock) -> None:
    await fleet.start(slots=0)
    clock.advance(MINUTE)
    due = clock.now()
    await enqueue_one(storage)
    clock.advance(14 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    await fleet.the_problem(Code.SLOTS_NOT_GRANTED, due)


async def test_a_queue_that_was_paused_while_work_was_due(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start()
    await enqueue_one(storage)
    clock.advance(HOUR)
    paused = clock.now()
    await storage.config.set_paused(QUEUE, True)
    clock.advance(59 * SECOND)
    assert await fleet.codes() == []
    clock.advance(SECOND)
    found = await fleet.the_problem(Code.PAUSED_WITH_WORK, paused)
    assert found.command == f"forge-jobs queues resume {QUEUE}"
    await storage.config.set_paused(QUEUE, False)
    assert await fleet.codes() == []


async def test_a_paused_queue_without_work_is_no_problem(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await fleet.start()
    await storage.config.set_paused(QUEUE, True)
    await enqueue_one(storage, delay=2 * HOUR)
    clock.advance(HOUR)
    assert await fleet.codes() == []


@pytest.mark.parametrize(
    ("mode", "level", "length"),
    [("flat", 3, 10 * MINUTE), ("exponential", 3, 40 * MINUTE), ("exponential", 9, HOUR)],
)
async def test_a_queue_that_cools_down(
    storage: Storage, fleet: Fleet, clock: ManualClock, mode: str, level: int, length: timedelta
) -> None:
    policy = CooldownPolicy(mode=mode, base=10 * MINUTE, cap=HOUR)  # type: ignore[arg-type]
    lease = await fleet.start()
    await storage.config.set_queue(QUEUE, QueueChange(cooldown=policy))
    for _ in range(2):
        await enqueue_one(storage)
    clock.advance(MINUTE)
    throttled = Transition(
        status=JobStatus.PENDING,
        cause=Cause.THROTTLED,
        hand_back=True,
        cooldown=Cooldown(length, level),
    )
    assert await finish(storage, await claim_one(storage, lease), throttled)
    begun = clock.now()
    clock.advance(MINUTE)
    await fleet.the_problem(Code.COOLING_WITH_WORK, begun)
    clock.advance(length)
    assert await fleet.codes() == []


async def throttled(storage: Storage, fleet: Fleet, length: timedelta) -> None:
    claimed = await claim_one(storage, await fleet.start())
    back = Transition(
        status=JobStatus.PENDING,
        cause=Cause.THROTTLED,
        hand_back=True,
        cooldown=Cooldown(length, 1),
    )
    assert await finish(storage, claimed, back)


async def rolled_up(storage: Storage, clock: ManualClock, after: timedelta) -> None:
    clock.advance(after)
    while await storage.jobs.roll_up(100):
        pass


async def test_a_cool_down_that_the_other_side_has_made_longer(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    policy = CooldownPolicy(base=MINUTE, cap=3 * HOUR)
    await storage.config.set_queue(QUEUE, QueueChange(cooldown=policy))
    for _ in range(2):
        await enqueue_one(storage)
    minute = clock.now().replace(second=0, microsecond=0)
    await throttled(storage, fleet, 3 * HOUR)
    assert clock.now() - minute < MINUTE
    assert await fleet.codes() == []
    await rolled_up(storage, clock, 3 * MINUTE)
    # The minute of the run is counted, and its end is the begin.
    await fleet.the_problem(Code.COOLING_WITH_WORK, minute + MINUTE)
    await rolled_up(storage, clock, 2 * HOUR)
    await fleet.start()
    await fleet.the_problem(Code.COOLING_WITH_WORK, minute + MINUTE)


async def test_a_cool_down_of_before_does_not_date_the_next(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    await storage.config.set_queue(QUEUE, QueueChange(cooldown=CooldownPolicy(base=MINUTE)))
    for _ in range(2):
        await enqueue_one(storage)
    await throttled(storage, fleet, HOUR)
    await rolled_up(storage, clock, 3 * MINUTE)
    await storage.config.clear_cooldown(QUEUE)
    claimed = await claim_one(storage, await fleet.start())
    await rolled_up(storage, clock, 3 * MINUTE)
    back = Transition(
        status=JobStatus.PENDING, cause=Cause.THROTTLED, hand_back=True, cooldown=Cooldown(HOUR, 1)
    )
    assert await finish(storage, claimed, back)
    # Jobs were claimed since the minute that is counted, so this pause is another one.
    assert Code.COOLING_WITH_WORK not in await fleet.codes()
