"""Modes of unique keys: what a request changes, drops or leaves for later."""

from collections.abc import Awaitable, Callable

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import (
    After,
    ClaimedJob,
    EnqueueOutcome,
    Hold,
    Job,
    JobStatus,
    NewJob,
    Unique,
)
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Transition
from forge_jobs.model.unique.keys import UniqueMode
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    LEASE,
    QUEUE,
    claim,
    claim_for,
    claim_one,
    cleaned_up,
    counters,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    only,
    register,
    revive,
    run_one,
    snoozed,
)
from tests.support.keyed import (
    MINUTE,
    MODES,
    SECOND,
    ask,
    hand_over,
    keyed,
    pending,
    running_with_follow_up,
)

pytestmark = pytest.mark.anyio

Situation = Callable[[Storage, PodLease, NewJob], Awaitable[JobId]]


async def retrying(storage: Storage, lease: PodLease, request: NewJob) -> JobId:
    await ask(storage, request)
    return await run_one(storage, lease, failed(DAY))


async def snoozing(storage: Storage, lease: PodLease, request: NewJob) -> JobId:
    await ask(storage, request)
    return await run_one(storage, lease, snoozed(DAY))


async def on_hold(storage: Storage, lease: PodLease, request: NewJob) -> JobId:
    job_id = await enqueue_one(storage, unique=request.unique, kind="nobody.knows")
    assert await claim_for(storage, QUEUE, ["w"], 1, frozenset({"tests.noop"}), lease) == []
    assert (await get_job(storage, job_id)).hold is Hold.UNKNOWN_KIND
    return job_id


async def blocked(storage: Storage, lease: PodLease, request: NewJob) -> JobId:
    parent = await enqueue_one(storage, delay=DAY)
    return await enqueue_one(storage, unique=request.unique, after=(After(parent),))


@pytest.mark.parametrize("situation", [pending, retrying, snoozing, on_hold, blocked])
@pytest.mark.parametrize("mode", ["replace", "keep-last"])
async def test_a_waiting_job_gets_the_content_of_the_request(
    storage: Storage, lease: PodLease, clock: ManualClock, situation: Situation, mode: UniqueMode
) -> None:
    job_id = await situation(storage, lease, keyed(mode))
    before = await get_job(storage, job_id)
    clock.advance(SECOND)
    request = keyed(
        mode,
        2,
        priority=-3,
        delay=MINUTE,
        max_attempts=9,
        timeout=SECOND,
        tags=("a", "b"),
        metadata='{"m": "1"}',
        trace='{"t": "1"}',
        expires_at=clock.now() + DAY,
        keep_result=False,
        result_ttl=SECOND,
    )
    assert await ask(storage, request) == EnqueueOutcome(job_id, replaced=True)
    after = await get_job(storage, job_id)
    changed = {
        name for name in Job.__struct_fields__ if getattr(before, name) != getattr(after, name)
    }
    assert changed - {"hold", "kind"} == {
        "payload", "priority", "due_at", "max_attempts", "timeout", "tags", "metadata", "trace",
        "expires_at", "keep_result",
    }  # fmt: skip
    assert (after.payload, after.due_at) == (request.payload, clock.now() + MINUTE)
    assert (after.kind, after.hold) == ("tests.noop", None)
    assert await storage.jobs.get([request.id]) == {}
    [listed] = (await storage.jobs.list(JobFilter(tag="b"))).jobs
    assert listed.id == job_id
    assert (await counters(storage))["deduplicated"] == 1


@pytest.mark.parametrize("mode", ["replace", "keep-last"])
async def test_what_the_request_does_not_ask_for_goes(
    storage: Storage, lease: PodLease, clock: ManualClock, mode: UniqueMode
) -> None:
    rich = keyed(
        mode,
        delay=MINUTE,
        tags=("a",),
        metadata='{"m": "1"}',
        expires_at=clock.now() + DAY,
        result_ttl=SECOND,
        timeout=SECOND,
        keep_result=False,
    )
    job_id = await pending(storage, lease, rich)
    await ask(storage, keyed(mode, 2))
    job = await get_job(storage, job_id)
    assert (job.due_at, job.expires_at, job.timeout) == (clock.now(), None, None)
    assert (job.tags, job.metadata, job.keep_result) == ((), {}, True)
    assert (await storage.jobs.list(JobFilter(tag="a"))).jobs == ()
    await run_one(storage, lease, done("1"))
    clock.advance(DAY)
    assert await storage.jobs.expire(10) == 0
    await cleaned_up(storage)
    assert (await get_job(storage, job_id)).result == "1"


@pytest.mark.parametrize("mode", ["replace", "keep-last"])
async def test_a_replaced_job_runs_with_the_new_content(
    storage: Storage, lease: PodLease, clock: ManualClock, mode: UniqueMode
) -> None:
    await retrying(storage, lease, keyed(mode))
    await ask(storage, keyed(mode, 2, priority=7, timeout=SECOND, max_attempts=3))
    claimed = await claim_one(storage, lease)
    assert (claimed.payload, claimed.attempt, claimed.priority) == ('{"n":2}', 2, 7)
    assert (claimed.timeout, claimed.max_attempts) == (SECOND, 3)
    assert await claim(storage, lease, limit=5) == []


async def test_a_due_job_keeps_its_place_when_replaced(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    first = await enqueue_one(storage, unique=Unique("k", "replace"))
    clock.advance(SECOND)
    await enqueue_one(storage)
    clock.advance(SECOND)
    await ask(storage, keyed("replace", 2))
    assert (await claim_one(storage, lease)).claim.job_id == first


@pytest.mark.parametrize("mode", ["keep", "replace", "cooldown"])
async def test_a_running_job_is_left_alone(
    storage: Storage, lease: PodLease, mode: UniqueMode
) -> None:
    job_id = await pending(storage, lease, keyed(mode))
    await claim_one(storage, lease)
    before = await get_job(storage, job_id)
    assert await ask(storage, keyed(mode, 2)) == EnqueueOutcome(job_id, deduplicated=True)
    assert await get_job(storage, job_id) == before


@pytest.mark.parametrize("mode", ["keep-last", "debounce"])
async def test_a_running_job_gets_one_follow_up_and_the_latest_wins(
    storage: Storage, lease: PodLease, mode: UniqueMode
) -> None:
    claimed, follow_up = await running_with_follow_up(storage, lease, mode)
    holder = claimed.claim.job_id
    for number in (3, 4):
        outcome = await ask(storage, keyed(mode, number))
        assert outcome == EnqueueOutcome(follow_up, replaced=True, follow_up=True)
    job = await get_job(storage, follow_up)
    assert (job.status, job.payload, job.follow_up) == (JobStatus.BLOCKED, '{"n":4}', True)
    assert (job.unique_key, job.waits_for) == ("k", (holder,))
    page = await storage.jobs.list(JobFilter(unique_key="k"))
    assert {each.id for each in page.jobs} == {holder, follow_up}
    assert (await counters(storage)) == {"enqueued": 2, "deduplicated": 2, "claimed": 1}


async def ends_done(storage: Storage, claimed: ClaimedJob, clock: ManualClock) -> None:
    assert await finish(storage, claimed, done())


async def ends_dead(storage: Storage, claimed: ClaimedJob, clock: ManualClock) -> None:
    assert await finish(storage, claimed, dead())


async def ends_cancelled(storage: Storage, claimed: ClaimedJob, clock: ManualClock) -> None:
    await storage.jobs.cancel(only(claimed.claim.job_id))
    assert await finish(storage, claimed, failed())


async def is_cancelled_retrying(storage: Storage, claimed: ClaimedJob, clock: ManualClock) -> None:
    assert await finish(storage, claimed, failed(DAY))
    assert (await storage.jobs.cancel(only(claimed.claim.job_id))).changed


async def is_deleted_retrying(storage: Storage, claimed: ClaimedJob, clock: ManualClock) -> None:
    assert await finish(storage, claimed, failed(DAY))
    assert (await storage.jobs.delete(only(claimed.claim.job_id))).changed


async def crashes_for_good(storage: Storage, claimed: ClaimedJob, clock: ManualClock) -> None:
    clock.advance(LEASE)
    assert await revive(storage, claimed, dead())


@pytest.mark.parametrize(
    "ending",
    [
        ends_done, ends_dead, ends_cancelled, is_cancelled_retrying, is_deleted_retrying,
        crashes_for_good,
    ],
)  # fmt: skip
async def test_the_follow_up_runs_after_any_end_of_the_holder(
    storage: Storage, lease: PodLease, clock: ManualClock, ending: Callable[..., Awaitable[None]]
) -> None:
    claimed, follow_up = await running_with_follow_up(storage, lease)
    assert await claim(storage, lease) == []
    await ending(storage, claimed, clock)
    await hand_over(storage)
    lease = await register(storage)
    run = await claim_one(storage, lease)
    assert (run.claim.job_id, run.payload) == (follow_up, '{"n":2}')
    # The follow-up holds the key now, and has a follow-up itself.
    third = await ask(storage, keyed("keep-last", 3))
    assert third.follow_up
    assert await finish(storage, run, done())
    await hand_over(storage)
    run = await claim_one(storage, lease)
    assert run.claim.job_id == third.job_id
    assert await finish(storage, run, done())
    assert not (await ask(storage, keyed("keep"))).deduplicated


async def test_a_retry_keeps_the_follow_up_waiting(storage: Storage, lease: PodLease) -> None:
    claimed, follow_up = await running_with_follow_up(storage, lease)
    assert await finish(storage, claimed, failed())
    await hand_over(storage)
    assert (await get_job(storage, follow_up)).status is JobStatus.BLOCKED
    outcome = await ask(storage, keyed("keep-last", 3))
    assert outcome == EnqueueOutcome(follow_up, replaced=True, follow_up=True)
    assert (await claim_one(storage, lease)).payload == '{"n":1}'


@pytest.mark.parametrize("mode", MODES)
async def test_before_the_end_is_handed_over_the_follow_up_has_the_key(
    storage: Storage, lease: PodLease, mode: UniqueMode
) -> None:
    claimed, follow_up = await running_with_follow_up(storage, lease)
    assert await finish(storage, claimed, done())
    if mode == "error":
        with pytest.raises(Conflict, match=follow_up):
            await ask(storage, keyed(mode, 3))
        return
    outcome = await ask(storage, keyed(mode, 3))
    assert outcome.job_id == follow_up
    assert outcome.deduplicated is (mode in ("keep", "cooldown"))
    assert outcome.replaced is (mode in ("replace", "debounce", "keep-last"))


@pytest.mark.parametrize("verb", ["cancel", "delete"])
async def test_a_follow_up_that_went_makes_room_for_another(
    storage: Storage, lease: PodLease, verb: str
) -> None:
    claimed, follow_up = await running_with_follow_up(storage, lease)
    assert (await getattr(storage.jobs, verb)(only(follow_up))).changed == (follow_up,)
    outcome = await ask(storage, keyed("keep-last", 3))
    assert outcome.follow_up
    assert outcome.job_id != follow_up
    assert await finish(storage, claimed, done())
    await hand_over(storage)
    assert (await claim_one(storage, lease)).payload == '{"n":3}'


async def test_each_follow_up_holds_the_key_while_it_runs(
    storage: Storage, lease: PodLease
) -> None:
    claimed, follow_up = await running_with_follow_up(storage, lease)
    for number in range(3, 7):
        assert await finish(storage, claimed, done())
        await hand_over(storage)
        claimed = await claim_one(storage, lease)
        assert claimed.claim.job_id == follow_up
        running, follow_up = follow_up, (await ask(storage, keyed("keep-last", number))).job_id
        assert await ask(storage, keyed("keep")) == EnqueueOutcome(running, deduplicated=True)
        assert (await storage.jobs.cancel(only(follow_up))).changed == (follow_up,)
        assert await ask(storage, keyed("keep")) == EnqueueOutcome(running, deduplicated=True)
        follow_up = (await ask(storage, keyed("keep-last", number))).job_id


async def test_a_holder_is_not_requeued_while_its_follow_up_is_active(
    storage: Storage, lease: PodLease
) -> None:
    claimed, follow_up = await running_with_follow_up(storage, lease)
    holder = claimed.claim.job_id
    assert await finish(storage, claimed, dead())
    assert (await storage.jobs.requeue(only(holder))).refused == {holder: Refusal.KEY_TAKEN}
    await hand_over(storage)
    assert await run_one(storage, lease, dead()) == follow_up
    outcome = await storage.jobs.requeue(only(holder, follow_up))
    assert len(outcome.changed) == 1
    assert set(outcome.refused.values()) == {Refusal.KEY_TAKEN}


@pytest.mark.parametrize("order", [1, -1])
async def test_of_a_holder_and_its_follow_up_the_one_that_is_requeued_runs(
    storage: Storage, lease: PodLease, order: int
) -> None:
    first, second = sorted(new_job_id() for _ in range(2))[::order]
    await ask(storage, structs.replace(keyed("keep-last"), id=first))
    claimed = await claim_one(storage, lease)
    await ask(storage, structs.replace(keyed("keep-last", 2), id=second))
    assert await finish(storage, claimed, dead())
    await hand_over(storage)
    assert await run_one(storage, lease, dead()) == second
    outcome = await storage.jobs.requeue(only(first, second))
    [requeued], [refused] = outcome.changed, outcome.refused
    assert {requeued, refused} == {first, second}
    assert outcome.refused[refused] is Refusal.KEY_TAKEN
    assert (await claim_one(storage, lease)).claim.job_id == requeued


@pytest.mark.parametrize("end", [done(), dead()], ids=str)
async def test_a_child_whose_key_is_taken_is_not_requeued(
    storage: Storage, lease: PodLease, end: Transition
) -> None:
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, unique=Unique("k"), after=(After(parent),))
    await storage.jobs.cancel(only(child))
    await run_one(storage, lease, end)
    await enqueue_one(storage, unique=Unique("k"), delay=DAY)
    assert (await storage.jobs.requeue(only(child))).refused == {child: Refusal.KEY_TAKEN}
    await storage.jobs.delete(only(parent))
    assert (await storage.jobs.requeue(only(child))).refused == {child: Refusal.KEY_TAKEN}


async def test_a_failed_holder_is_requeued_beside_its_follow_up(
    storage: Storage, lease: PodLease
) -> None:
    claimed, _ = await running_with_follow_up(storage, lease)
    assert await finish(storage, claimed, failed(DAY))
    holder = claimed.claim.job_id
    assert (await storage.jobs.requeue(only(holder))).changed == (holder,)
    assert (await claim_one(storage, lease)).claim.job_id == holder
