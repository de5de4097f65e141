"""Jobs that a strike means when they are enqueued: held or cancelled in the step that stores."""

from datetime import timedelta

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, Hold, JobStatus, Line, NewJob, Unique
from forge_jobs.model.looks import MOST_MARKS, JobsAsked
from forge_jobs.model.processes import PodLease
from forge_jobs.model.strikes import Effect, Strike, StrikeRule, Struck, mark_of, struck_by
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    MICROSECOND,
    QUEUE,
    SECOND,
    claim,
    claim_one,
    counters,
    done,
    finish,
    get_job,
    new_job,
    register,
)

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


def fate(effect: Effect = Effect.HOLD, reason: str = "") -> Struck:
    rule = StrikeRule(kind="mail", effect=effect, reason=reason)
    return struck_by(Strike(name="no mail", rule=rule, by="ada", at=None))


HELD, CANCELLED = fate(), fate(Effect.CANCEL, "fraud")


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, lease_for=HOUR)


async def store(storage: Storage, *jobs: NewJob) -> list[JobId]:
    return [one.job_id for one in await storage.jobs.enqueue(jobs)]


async def ready(storage: Storage, lease: PodLease) -> list[JobId]:
    return [one.claim.job_id for one in await claim(storage, lease, limit=50)]


async def settle(storage: Storage) -> None:
    """Apply all handovers, until there are none."""
    while found := await storage.jobs.handovers(10):
        await storage.jobs.deliver([delivery(each) for each in found])


def test_a_fate_carries_the_mark_and_what_a_cancelled_job_says() -> None:
    rule = StrikeRule(kind="mail", effect=Effect.CANCEL)
    strike = Strike(name="s", rule=rule, by="ada", at=None)
    assert struck_by(strike) == Struck(mark_of(strike), "the strike 's' of ada cancels it")
    assert CANCELLED.message == "the strike 'no mail' of ada cancels it: fraud"
    assert HELD.message == ""


@pytest.mark.parametrize("beside", [0, 1, 5])
async def test_a_struck_job_is_held_at_once_and_others_of_the_call_run(
    storage: Storage, lease: PodLease, clock: ManualClock, beside: int
) -> None:
    await store(storage, new_job(delay=HOUR))  # the queue is known from here on
    held, *others = await store(storage, new_job(struck=HELD), *(new_job() for _ in range(beside)))
    job = await get_job(storage, held)
    assert (job.status, job.hold, job.cause) == (JobStatus.PENDING, Hold.STRUCK, Cause.STRUCK)
    assert (job.struck_by, job.attempt, job.errors) == ("no mail", 0, ())
    clock.advance(10 * SECOND)
    assert sorted(await ready(storage, lease)) == sorted(others)
    counts = (await storage.jobs.counts([QUEUE]))[QUEUE]
    assert (counts.due, counts.held, counts.by_status["pending"]) == (0, 0, 2)


async def test_a_job_that_was_struck_at_the_enqueue_gets_its_place_back(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    ids: list[JobId] = []
    for number in range(4):
        clock.advance(MICROSECOND)
        ids += await store(storage, new_job(struck=None if number % 2 else HELD))
    ids += await store(storage, new_job(struck=HELD, priority=-5))
    ids += await store(storage, new_job(struck=HELD, delay=SECOND, priority=-9))
    clock.advance(MICROSECOND)
    assert await storage.jobs.release_struck([HELD.mark], 10) == 0
    assert await storage.jobs.release_struck([], 10) == 4
    assert await ready(storage, lease) == [ids[4], *ids[:4]]
    clock.advance(SECOND)
    claims = await claim(storage, lease)
    assert [one.claim.job_id for one in claims] == [ids[5]]
    assert await finish(storage, claims[0], done())


@pytest.mark.parametrize("many", [1, 3])
async def test_a_cancelling_strike_ends_the_job_with_a_record(
    storage: Storage, lease: PodLease, clock: ManualClock, many: int
) -> None:
    ids = await store(storage, *(new_job(struck=CANCELLED) for _ in range(many)))
    for job_id in ids:
        job = await get_job(storage, job_id)
        assert (job.status, job.hold, job.cause) == (JobStatus.CANCELLED, None, Cause.STRUCK)
        assert (job.struck_by, job.attempt, job.finished_at) == ("no mail", 0, clock.now())
        [error] = job.errors
        assert (error.attempt, error.cause, error.type) == (0, Cause.STRUCK, "Struck")
        assert (error.message, error.at) == (CANCELLED.message, clock.now())
    assert await ready(storage, lease) == []
    assert await storage.jobs.release_struck([], 10) == 0


async def test_struck_jobs_count_as_enqueued_and_as_struck(storage: Storage) -> None:
    jobs = [new_job(struck=HELD), new_job(struck=CANCELLED), new_job(), new_job(struck=HELD)]
    await store(storage, *jobs)
    counts = (await storage.jobs.counts([QUEUE]))[QUEUE]
    assert (counts.by_status["pending"], counts.by_status["cancelled"]) == (3, 1)
    counted = await counters(storage)
    assert (counted["enqueued"], counted["struck"]) == (4, 3)


async def test_a_job_that_waits_for_others_is_held_by_the_pod_alone(
    storage: Storage, lease: PodLease
) -> None:
    parent = new_job()
    child = new_job(struck=HELD, after=(After(parent.id),))
    await store(storage, parent, child)
    job = await get_job(storage, child.id)
    assert (job.status, job.hold, job.cause) == (JobStatus.BLOCKED, None, Cause.ENQUEUED)
    assert await finish(storage, await claim_one(storage, lease), done())
    await settle(storage)
    assert await ready(storage, lease) == [child.id]


@pytest.mark.parametrize("queue", [QUEUE, "other"])
async def test_a_job_that_waits_for_others_is_cancelled_at_once(
    storage: Storage, lease: PodLease, clock: ManualClock, queue: str
) -> None:
    parent, unique = new_job(), Unique("k")
    child = new_job(struck=CANCELLED, after=(After(parent.id),), queue=queue, unique=unique)
    grandchild = new_job(after=(After(child.id, "continue"),), queue=queue)
    await store(storage, parent, child, grandchild)
    [again] = await storage.jobs.enqueue([new_job(queue=queue, unique=unique, delay=HOUR)])
    assert not again.deduplicated
    job = await get_job(storage, child.id)
    assert (job.status, job.hold, job.cause) == (JobStatus.CANCELLED, None, Cause.STRUCK)
    assert (job.struck_by, job.finished_at) == ("no mail", clock.now())
    assert [error.message for error in job.errors] == [CANCELLED.message]
    assert (await counters(storage, queue))["struck"] == 1
    counts = (await storage.jobs.counts([queue]))[queue]
    assert counts.by_status["cancelled"] == 1
    await settle(storage)
    assert (await get_job(storage, grandchild.id)).status is JobStatus.PENDING
    assert await finish(storage, await claim_one(storage, lease), done())
    await settle(storage)
    assert (await get_job(storage, child.id)).status is JobStatus.CANCELLED
    assert await storage.jobs.release_struck([], 10) == 0


async def test_one_of_a_sequence_is_cancelled_at_once_and_the_next_waits_for_the_one_before(
    storage: Storage, lease: PodLease
) -> None:
    line = Line("k")
    first, second, third = await store(
        storage,
        new_job(sequence=line),
        new_job(struck=CANCELLED, sequence=line),
        new_job(sequence=line),
    )
    await settle(storage)
    statuses = [(await get_job(storage, each)).status for each in (first, second, third)]
    assert statuses == [JobStatus.PENDING, JobStatus.CANCELLED, JobStatus.BLOCKED]
    assert await finish(storage, await claim_one(storage, lease), done())
    await settle(storage)
    assert await ready(storage, lease) == [third]


async def test_children_of_a_job_that_is_cancelled_at_once_end_with_the_parent(
    storage: Storage,
) -> None:
    parent = new_job(struck=CANCELLED)
    child = new_job(after=(After(parent.id),))
    await store(storage, parent, child)
    [later] = await store(storage, new_job(after=(After(parent.id),)))
    await settle(storage)
    for job_id in (child.id, later):
        job = await get_job(storage, job_id)
        assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.PARENT_FAILED)


async def test_the_first_of_a_sequence_is_held_and_the_next_one_waits(
    storage: Storage, lease: PodLease
) -> None:
    first, second = await store(
        storage, new_job(struck=HELD, sequence=Line("k")), new_job(struck=HELD, sequence=Line("k"))
    )
    assert (await get_job(storage, first)).hold is Hold.STRUCK
    assert (await get_job(storage, second)).status is JobStatus.BLOCKED
    assert await storage.jobs.release_struck([], 10) == 1
    assert await ready(storage, lease) == [first]


async def test_a_held_job_keeps_its_unique_key_and_a_cancelled_one_frees_it(
    storage: Storage, lease: PodLease
) -> None:
    held = new_job(struck=HELD, unique=Unique("a"))
    [again] = await storage.jobs.enqueue([held])
    [other] = await storage.jobs.enqueue([new_job(unique=Unique("a"))])
    assert (again.deduplicated, other.deduplicated, other.job_id) == (False, True, held.id)
    await store(storage, new_job(struck=CANCELLED, unique=Unique("b")))
    [free] = await storage.jobs.enqueue([new_job(unique=Unique("b"))])
    assert not free.deduplicated
    assert await ready(storage, lease) == [free.job_id]


async def test_content_that_a_held_job_gets_is_left_to_the_pod(
    storage: Storage, lease: PodLease
) -> None:
    unique = Unique("a", "replace")
    [held] = await store(storage, new_job(struck=HELD, unique=unique))
    [outcome] = await storage.jobs.enqueue([new_job(struck=HELD, unique=unique)])
    assert (outcome.replaced, outcome.job_id) == (True, held)
    assert (await get_job(storage, held)).hold is None
    assert await storage.jobs.release_struck([], 10) == 0
    assert await ready(storage, lease) == [held]


async def test_a_repeat_leaves_the_job_as_it_is(storage: Storage, lease: PodLease) -> None:
    plain, held = new_job(fingerprint="a"), new_job(struck=HELD, fingerprint="b")
    await store(storage, plain, held)
    await store(storage, structs.replace(plain, struck=HELD), structs.replace(held, struck=None))
    assert (await get_job(storage, held.id)).hold is Hold.STRUCK
    assert await ready(storage, lease) == [plain.id]


async def test_an_expiry_ends_a_job_that_is_held_from_the_first(
    storage: Storage, clock: ManualClock
) -> None:
    job = new_job(struck=HELD, expires_at=clock.now() + SECOND)
    await store(storage, job)
    clock.advance(2 * SECOND)
    await storage.jobs.expire(10)
    assert (await get_job(storage, job.id)).cause is Cause.EXPIRED
    assert await storage.jobs.release_struck([], 10) == 0


async def test_a_look_says_how_many_jobs_each_strike_holds_and_since_when(
    storage: Storage, clock: ManualClock
) -> None:
    asked = JobsAsked(struck=(QUEUE, "other"))
    assert (await storage.jobs.look(asked)).struck == ()
    begun = clock.now()
    await store(storage, new_job(struck=HELD, queue="other"), new_job(), new_job(struck=CANCELLED))
    clock.advance(SECOND)
    await store(storage, new_job(struck=HELD), new_job(struck=HELD, priority=-5, delay=SECOND))
    await store(storage, new_job(struck=Struck("0" * 16 + " a")))
    found = (await storage.jobs.look(asked)).struck
    assert [(line.mark, line.queue, line.jobs, line.oldest_due_at) for line in found] == [
        ("0" * 16 + " a", QUEUE, 1, begun + SECOND),
        (HELD.mark, QUEUE, 2, begun + SECOND),
        (HELD.mark, "other", 1, begun),
    ]
    assert (await storage.jobs.look(JobsAsked())).struck == ()
    await storage.jobs.release_struck([], 10)
    assert (await storage.jobs.look(asked)).struck == ()


async def test_a_look_names_a_bounded_number_of_strikes(storage: Storage) -> None:
    marks = [f"{number:016x} s" for number in range(MOST_MARKS + 1)]
    await store(storage, *(new_job(struck=Struck(mark)) for mark in reversed(marks)))
    found = (await storage.jobs.look(JobsAsked(struck=(QUEUE,)))).struck
    assert [line.mark for line in found] == marks[:MOST_MARKS]


async def test_a_look_at_the_fleet_says_whether_there_are_strikes(
    storage: Storage, lease: PodLease
) -> None:
    await storage.cron.lead(lease.host_id, HOUR)
    assert not (await storage.cron.look()).may_strike
    await storage.config.put_strike("no mail", StrikeRule(kind="mail"), "ada")
    assert (await storage.cron.look()).may_strike
    await storage.config.lift_strike("no mail")
    assert not (await storage.cron.look()).may_strike
