"""``explain`` says when a job starts that waits at a key, for its turn or for a job in front."""

from datetime import timedelta

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import ManualClock
from forge_jobs.model.filters import Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Hold, Line, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import MOST_KEY_JOBS
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.policy.explanations import Explanation, Reason
from forge_jobs.storage.protocols import Storage
from forge_jobs.web import dashboard
from tests.problems.conftest import HOUR, MINUTE, SECOND, Fleet
from tests.support.drills import API, Drill
from tests.support.factories import (
    QUEUE,
    claim,
    dead,
    enqueue_one,
    failed,
    finish,
    get_job,
    held,
    new_job,
    only,
    rate_limited,
)
from tests.support.lines import in_line, tell
from tests.web.conftest import client_of

pytestmark = pytest.mark.anyio

NAME = "hosts"


async def store(storage: Storage, key: str, **fields: object) -> JobId:
    return await enqueue_one(storage, limit_name=NAME, limit_key=key, **fields)


async def run(storage: Storage, lease: PodLease, limit: int) -> list[JobId]:
    """Claim jobs and tell that they run."""
    claimed = await claim(storage, lease, limit=limit)
    await storage.jobs.heartbeat(lease, [held(each, "w") for each in claimed], 24 * HOUR)
    return [each.claim.job_id for each in claimed]


async def told_of(storage: Storage, job_id: JobId) -> Explanation:
    return await JobClient(storage).explain(job_id)


async def test_a_job_of_a_burst_is_told_what_keeps_claims_away_or_that_its_key_has_room(
    storage: Storage, fleet: Fleet
) -> None:
    await storage.config.ensure_limits(QUEUE, {NAME: 2})
    burst = [new_job(limit_name=NAME, limit_key="a") for _ in range(150)]
    await storage.jobs.enqueue(burst)
    last = max(one.id for one in burst)
    assert (await get_job(storage, last)).hold is Hold.LIMIT
    assert (await told_of(storage, last)).reason is Reason.NO_POD
    lease = await fleet.start(slots=10)
    told = await told_of(storage, last)
    assert told.reason is Reason.LIMITED
    assert "2 jobs of key 'a' may run at once in the queue, and 0 do; " in told.text
    assert told.text.endswith("starts in its turn, with a claim to come")
    await storage.config.set_paused(QUEUE, True)
    assert (await told_of(storage, last)).reason is Reason.PAUSED
    await storage.config.set_paused(QUEUE, False)
    assert len(await run(storage, lease, 10)) == 2
    assert "and as many do" in (await told_of(storage, last)).text


async def test_a_job_at_a_full_key_is_told_its_place_and_when_a_permit_comes_free(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=10)
    await storage.config.ensure_limits(QUEUE, {NAME: 2})
    await Drill(storage, fleet, clock).flow(delays=[0.1], runs=[10.0] * 100)
    first = await store(storage, "a", timeout=10 * MINUTE)
    assert await run(storage, lease, 1) == [first]
    begun = clock.now()
    clock.advance(SECOND)
    await store(storage, "a", timeout=5 * MINUTE)
    waiting = [await store(storage, "a") for _ in range(4)]
    assert len(await run(storage, lease, 10)) == 1
    clock.advance(SECOND)

    told = await told_of(storage, waiting[3])

    assert (told.reason, told.ahead) == (Reason.LIMITED, 3)
    assert told.opens_at is not None
    assert abs(told.opens_at - (begun + 10 * SECOND)) < SECOND
    # The second one began a second later, with half the time.
    assert told.opens_by == begun + SECOND + 5 * MINUTE
    assert told.starts_after is not None
    assert told.starts_before is not None
    assert 5 <= (told.starts_after - clock.now()).total_seconds() <= 20
    assert 15 <= (told.starts_before - clock.now()).total_seconds() <= 40
    assert told.rests_on.startswith("3 before it at the key, 2 at once, the last day: ")
    assert len(told.held_by) == 2
    assert told.held_by[0].startswith(f"job {first} (")
    assert "; 3 of the key before it" in told.text
    assert "(an estimate)" in told.text
    assert "the timeout of a holder" in told.text
    clock.advance(20 * SECOND)
    late = await told_of(storage, waiting[0])
    assert late.ahead == 0
    assert "at any moment" in late.text
    app = dashboard(storage, authorize=lambda _: Actor(name="ada", access=ALL))
    async with client_of(app) as caller:
        document = (await caller.get(f"{API}/jobs/{waiting[3]}/explain")).json()
        assert document["ahead"] == 3
        assert document["opens_by"]
        page = (await caller.get(f"/jobs/{waiting[3]}")).text
        assert "A permit may be free" in page
        assert "One is free by" in page


async def test_without_runs_and_timeouts_no_time_is_told(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=10)
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    await store(storage, "a")
    waits = await store(storage, "a")
    await run(storage, lease, 10)
    told = await told_of(storage, waits)
    assert (told.ahead, told.opens_at, told.opens_by, told.starts_after) == (0, None, None, None)
    assert told.text.endswith("starts in its turn when one of them ends")


async def test_a_lowered_limit_opens_once_as_many_have_ended_as_run_beyond(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=10)
    await storage.config.ensure_limits(QUEUE, {NAME: 3})
    for minutes in (1, 2, 3):
        await store(storage, "a", timeout=minutes * MINUTE)
    waits = await store(storage, "a")
    assert len(await run(storage, lease, 10)) == 3
    await storage.config.set_limit(QUEUE, NAME, 2)
    await run(storage, lease, 10)
    told = await told_of(storage, waits)
    assert (await get_job(storage, waits)).hold is Hold.LIMIT
    assert told.opens_by == clock.now() + 2 * MINUTE
    assert "2 jobs of key 'a' may run at once in the queue, and 3 do (" in told.text
    assert "; starts in its turn when 2 of them have ended, by " in told.text


async def test_more_holders_than_are_counted_fill_a_key(storage: Storage, fleet: Fleet) -> None:
    most = MOST_KEY_JOBS + 10
    lease = await fleet.start(slots=most)
    await storage.config.ensure_limits(QUEUE, {NAME: most})
    jobs = [new_job(limit_name=NAME, limit_key="a") for _ in range(most + 1)]
    await storage.jobs.enqueue(jobs)
    claimed = {
        each.claim.job_id for _ in range(3) for each in await claim(storage, lease, limit=700)
    }
    assert len(claimed) == most
    [waits] = {each.id for each in jobs} - claimed
    told = await told_of(storage, waits)
    assert (
        f"{most} jobs of key 'a' may run at once in the queue, and 1000 or more do (" in told.text
    )
    assert "; starts in its turn when one of them ends" in told.text


async def test_a_place_is_counted_up_to_a_bound(storage: Storage, fleet: Fleet) -> None:
    lease = await fleet.start(slots=10)
    await storage.config.ensure_limits(QUEUE, {NAME: 1})
    jobs = [new_job(limit_name=NAME, limit_key="a") for _ in range(MOST_KEY_JOBS + 3)]
    await storage.jobs.enqueue(jobs[:1000])
    await storage.jobs.enqueue(jobs[1000:])
    for _ in range(5):
        await run(storage, lease, 10)
    told = await told_of(storage, jobs[-1].id)
    assert told.ahead == MOST_KEY_JOBS
    assert "; more than 1,000 of the key before it" in told.text


async def test_a_key_with_a_share_is_told_its_place_in_the_turns(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=10)
    await storage.config.ensure_limits(QUEUE, {NAME: 9}, {NAME: 1})
    ids = {key: [await store(storage, key) for _ in range(4)] for key in "abc"}
    # Two keys have a second job in progress then.
    assert len(await run(storage, lease, 5)) == 5
    running = {
        key: [job_id for job_id in each if (await get_job(storage, job_id)).claimed_at]
        for key, each in ids.items()
    }
    [behind] = [key for key, each in running.items() if len(each) == 1]
    [one, _] = [key for key, each in running.items() if len(each) == 2]
    told = await told_of(storage, ids[one][3])
    assert "1 key with fewer jobs in progress comes first, and of 1 other with as many" in told.text
    assert told.ahead == 1
    told = await told_of(storage, ids[behind][3])
    assert "0 keys with fewer jobs in progress come first, and of 0 others" in told.text


async def test_a_job_of_a_sequence_is_told_what_the_one_in_front_does(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=10)
    head, second, third = await in_line(storage, 3)
    [claimed] = await claim(storage, lease, limit=10)
    await storage.jobs.heartbeat(lease, [held(claimed, "w")], 24 * HOUR)
    told = await told_of(storage, third)
    assert told.reason is Reason.BLOCKED_BY_PARENTS
    assert f"; in front of 1 blocked job and of it in its sequence is {head} " in told.text
    assert "attempt 1 runs on pod" in told.text or "attempt 1 of " in told.text
    told = await told_of(storage, second)
    assert f"; in front in its sequence is {head} " in told.text
    assert await finish(storage, claimed, failed(HOUR))
    assert f"is {head} " in (await told_of(storage, second)).text
    assert "waits for attempt 2" in (await told_of(storage, second)).text


async def test_a_job_behind_a_dead_one_is_told_why_that_one_died(
    storage: Storage, fleet: Fleet
) -> None:
    lease = await fleet.start(slots=10)
    head, second = await in_line(storage, 2)
    [claimed] = await claim(storage, lease, limit=10)
    assert await finish(storage, claimed, dead())
    await tell(storage)
    told = await told_of(storage, second)
    assert told.reason is Reason.BLOCKED_BY_FAILED_PARENT
    assert f"in front in its sequence is {head} " in told.text
    assert ": dead after attempt 1" in told.text


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_job_behind_a_dead_one_whose_unique_key_is_taken_is_to_be_released(
    storage: Storage, fleet: Fleet, is_own: bool
) -> None:
    lease = await fleet.start(slots=10)
    fields = {"sequence": Line("k"), "unique": Unique("u")}
    head = await enqueue_one(storage, **fields)
    [claimed] = await claim(storage, lease, limit=10)
    assert await finish(storage, claimed, dead())
    second = await enqueue_one(storage, **fields if is_own else {"sequence": Line("k")})
    holder = second if is_own else await enqueue_one(storage, **fields)
    await tell(storage)
    refused = (await storage.jobs.requeue(only(head))).refused
    assert refused == {head: Refusal.KEY_TAKEN}
    told = await told_of(storage, second)
    assert told.help == f"forge-jobs jobs release-held {second}"
    assert told.text.count(f"{head} cannot be requeued while {holder} has the unique key") == 1
    told = await told_of(storage, head)
    assert f"; {head} cannot be requeued while {holder} has the unique key" in told.text
    assert not told.help
    await storage.jobs.cancel(only(holder))
    assert (await told_of(storage, head)).help == f"forge-jobs jobs requeue {head}"
    if not is_own:
        assert (await told_of(storage, second)).help == f"forge-jobs jobs requeue {head}"


async def test_a_long_line_is_followed_for_a_few_steps(storage: Storage, fleet: Fleet) -> None:
    await fleet.start(slots=10)
    *_, last = await in_line(storage, 15)
    assert "behind others, " in (await told_of(storage, last)).text


async def test_parents_that_are_no_sequence_are_told_of_too(storage: Storage, fleet: Fleet) -> None:
    await fleet.start(slots=10)
    parent = await enqueue_one(storage, delay=timedelta(hours=1))
    child = await enqueue_one(storage, after=(After(parent),))
    told = await told_of(storage, child)
    assert f"; in front is {parent} " in told.text
    assert "not due before" in told.text


async def test_a_turn_of_a_rate_is_told_as_a_bound(
    storage: Storage, fleet: Fleet, clock: ManualClock
) -> None:
    lease = await fleet.start(slots=1)
    job_id = await enqueue_one(storage)
    [claimed] = await claim(storage, lease)
    assert await finish(storage, claimed, rate_limited(HOUR))
    told = await told_of(storage, job_id)
    assert told.forecast == clock.now() + HOUR
    assert "does not start before" in told.text
