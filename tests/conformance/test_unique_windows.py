"""Unique keys over time: debounce, cool-down, repeats, and requests of one call."""

from datetime import timedelta

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import (
    After,
    EnqueueOutcome,
    JobStatus,
    NewJob,
    Unique,
)
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Delivery
from forge_jobs.model.unique.keys import REPLACEMENT_KEPT, UniqueMode
from forge_jobs.storage.protocols import Storage
from tests.support.backends import POOLED
from tests.support.factories import (
    DAY,
    QUEUE,
    claim,
    claim_one,
    cleaned_up,
    counters,
    dead,
    done,
    enqueue_one,
    finish,
    get_job,
    new_job,
    only,
    register,
    run_one,
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


async def test_a_debounced_job_runs_after_quiet_with_the_latest_content(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    first = await pending(storage, lease, keyed("debounce"))
    for number in (2, 3):
        clock.advance(MINUTE - SECOND)
        outcome = await ask(storage, keyed("debounce", number))
        assert outcome == EnqueueOutcome(first, replaced=True)
        assert (await get_job(storage, first)).due_at == clock.now() + MINUTE
        assert await claim(storage, lease) == []
    clock.advance(MINUTE)
    lease = await register(storage)
    assert (await claim_one(storage, lease)).payload == '{"n":3}'


async def test_a_debounced_job_waits_no_longer_than_at_most(
    storage: Storage, clock: ManualClock
) -> None:
    unique = Unique("k", "debounce", MINUTE, 2 * MINUTE)
    began = clock.now()
    job_id = (await ask(storage, new_job(unique=unique, delay=MINUTE))).job_id
    due = []
    for _ in range(4):
        clock.advance(timedelta(seconds=50))
        await ask(storage, new_job(unique=unique, delay=MINUTE))
        due.append((await get_job(storage, job_id)).due_at - began)
    # The last request comes when the bound has passed: the job stays due.
    assert due == [timedelta(seconds=110), 2 * MINUTE, 2 * MINUTE, 2 * MINUTE]


async def test_a_debounced_follow_up_waits_for_the_end_and_for_quiet(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    claimed, follow_up = await running_with_follow_up(storage, lease, "debounce")
    assert await finish(storage, claimed, done())
    await hand_over(storage)
    job = await get_job(storage, follow_up)
    assert (job.status, job.due_at) == (JobStatus.PENDING, clock.now() + MINUTE)


@pytest.mark.parametrize("way", ["runs", "done", "dead", "cancelled", "deleted"])
async def test_a_key_cools_down_whatever_becomes_of_the_job(
    storage: Storage, lease: PodLease, clock: ManualClock, way: str
) -> None:
    first = await pending(storage, lease, keyed("cooldown"))
    if way == "runs":
        await claim_one(storage, lease)
    elif way in ("done", "dead"):
        await run_one(storage, lease, done() if way == "done" else dead())
    else:
        verb = storage.jobs.cancel if way == "cancelled" else storage.jobs.delete
        assert (await verb(only(first))).changed == (first,)
    clock.advance(MINUTE - SECOND)
    assert await ask(storage, keyed("cooldown", 2)) == EnqueueOutcome(first, deduplicated=True)
    clock.advance(SECOND)
    outcome = await ask(storage, keyed("cooldown", 3))
    assert outcome.deduplicated is (way == "runs")
    # Only a request that is taken opens a window.
    assert (await ask(storage, keyed("cooldown", 4))).job_id == outcome.job_id


async def test_a_window_is_of_its_mode_and_queue_alone(storage: Storage, lease: PodLease) -> None:
    await ask(storage, keyed("cooldown"))
    await run_one(storage, lease, done())
    assert not (await ask(storage, keyed("cooldown", queue="q2"))).deduplicated
    assert not (await ask(storage, keyed("cooldown", key="other"))).deduplicated
    assert not (await ask(storage, keyed("keep"))).deduplicated


async def test_a_window_lasts_by_the_clock_of_the_store_alone(
    storage: Storage, lease: PodLease
) -> None:
    """The clock stands still while the time of the server goes on."""
    unique = Unique("k", "cooldown", timedelta(milliseconds=1))
    first = (await ask(storage, new_job(unique=unique))).job_id
    await run_one(storage, lease, done())
    outcome = await ask(storage, new_job(unique=unique))
    assert outcome == EnqueueOutcome(first, deduplicated=True)


async def test_a_clock_that_was_set_back_leaves_no_key_cold(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    await ask(storage, keyed("cooldown"))
    await run_one(storage, lease, done())
    clock.advance(-DAY)
    assert not (await ask(storage, keyed("cooldown", 2))).deduplicated
    assert (await ask(storage, keyed("cooldown", 3))).deduplicated


@pytest.mark.parametrize("storage", ["sqlite", "postgres", POOLED], indirect=True)
async def test_cleanup_removes_what_is_known_of_keys_once_it_is_over(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    keys = [f"k{number}" for number in range(50)]
    await storage.jobs.enqueue([keyed("cooldown", key=key) for key in keys])
    await storage.jobs.enqueue([keyed("replace", key=key) for key in keys])
    assert await cleaned_up(storage, 20) == 0
    clock.advance(MINUTE)
    assert await cleaned_up(storage, 20) == 50
    clock.advance(REPLACEMENT_KEPT)
    assert await cleaned_up(storage, 20) == 50


@pytest.mark.parametrize("mode", MODES)
async def test_requests_of_one_call_meet_each_other(storage: Storage, mode: UniqueMode) -> None:
    batch = [keyed(mode, number) for number in (1, 2, 3)]
    if mode == "error":
        with pytest.raises(Conflict):
            await storage.jobs.enqueue(batch)
        assert await storage.jobs.get([each.id for each in batch]) == {}
        return
    outcomes = await storage.jobs.enqueue(batch)
    assert {each.job_id for each in outcomes} == {batch[0].id}
    latest = mode in ("replace", "debounce", "keep-last")
    assert [each.replaced for each in outcomes] == [False, latest, latest]
    stored = await get_job(storage, batch[0].id)
    assert stored.payload == ('{"n":3}' if latest else '{"n":1}')
    assert await counters(storage) == {"enqueued": 1, "deduplicated": 2}


async def test_follow_ups_of_one_call_are_one(storage: Storage, lease: PodLease) -> None:
    await ask(storage, keyed("keep"))
    await claim_one(storage, lease)
    first, *others = outcomes = await storage.jobs.enqueue(
        [keyed("keep-last", number) for number in (2, 3, 4)]
    )
    assert [each.follow_up for each in outcomes] == [True] * 3
    assert [(each.job_id, each.replaced) for each in others] == [(first.job_id, True)] * 2
    assert (await get_job(storage, first.job_id)).payload == '{"n":4}'


@pytest.mark.parametrize("mode", MODES)
async def test_a_repeat_changes_nothing(
    storage: Storage, lease: PodLease, mode: UniqueMode
) -> None:
    """The reply was lost. The request met nothing, then a waiting job, then a running one."""
    first, second, third = (keyed(mode, number) for number in (1, 2, 3))
    assert await ask(storage, first) == await ask(storage, first) == EnqueueOutcome(first.id)
    if mode == "error":
        return
    told = await ask(storage, second)
    later = await ask(storage, third)
    jobs = await storage.jobs.get([first.id])
    assert await ask(storage, second) == told
    assert await ask(storage, third) == later
    assert await ask(storage, first) == EnqueueOutcome(first.id)
    assert await storage.jobs.get([first.id]) == jobs


@pytest.mark.parametrize("mode", ["replace", "debounce", "keep-last"])
async def test_a_repeat_is_known_after_the_job_has_run(
    storage: Storage, lease: PodLease, clock: ManualClock, mode: UniqueMode
) -> None:
    second = keyed(mode, 2)
    job_id = await pending(storage, lease, keyed(mode))
    await ask(storage, second)
    clock.advance(MINUTE)
    await run_one(storage, await register(storage), done())
    assert await ask(storage, second) == EnqueueOutcome(job_id, replaced=True)
    clock.advance(REPLACEMENT_KEPT)
    assert await ask(storage, second) == EnqueueOutcome(second.id)


async def test_a_request_whose_repeat_is_a_new_one_is_known_again_after_that(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, lease_for=2 * REPLACEMENT_KEPT)
    second = keyed("replace", 2)
    for number in (1, 3):
        waiting = keyed("replace", number)
        await ask(storage, waiting)
        # Nothing has removed the note that was there before.
        assert await ask(storage, second) == EnqueueOutcome(waiting.id, replaced=True)
        await run_one(storage, lease, done())
        assert await ask(storage, second) == EnqueueOutcome(waiting.id, replaced=True)
        clock.advance(REPLACEMENT_KEPT)


async def test_a_repeat_of_a_follow_up_is_one(storage: Storage, lease: PodLease) -> None:
    await ask(storage, keyed("keep-last"))
    claimed = await claim_one(storage, lease)
    second, third = keyed("keep-last", 2), keyed("keep-last", 3)
    told = [await ask(storage, second), await ask(storage, third)]
    assert [await ask(storage, second), await ask(storage, third)] == told
    assert (await get_job(storage, second.id)).payload == '{"n":3}'
    assert await finish(storage, claimed, done())
    await hand_over(storage)
    assert await ask(storage, third) == EnqueueOutcome(second.id, replaced=True)
    assert await ask(storage, second) == EnqueueOutcome(second.id)


async def test_the_id_of_a_replaced_job_is_a_repeat_with_its_own_fingerprint(
    storage: Storage,
) -> None:
    first = keyed("replace", fingerprint="f")
    await ask(storage, first)
    await ask(storage, keyed("replace", 2, fingerprint="g"))
    assert await ask(storage, first) == EnqueueOutcome(first.id)
    other = NewJob(id=first.id, queue=QUEUE, kind="tests.noop", payload="{}", fingerprint="h")
    with pytest.raises(Conflict):
        await ask(storage, other)


async def test_a_replaced_request_stands_for_the_job_as_a_parent(
    storage: Storage, lease: PodLease
) -> None:
    holder = await pending(storage, lease, keyed("replace"))
    request = keyed("replace", 2)
    child = new_job(after=(After(request.id),))
    await storage.jobs.enqueue([request, child])
    assert (await get_job(storage, child.id)).waits_for == (holder,)


@pytest.mark.parametrize("mode", ["replace", "keep-last"])
async def test_a_call_of_several_queues_gives_content_to_a_child_of_the_same_call(
    storage: Storage, lease: PodLease, mode: UniqueMode
) -> None:
    parent = new_job(queue="other")
    child = keyed("replace", 1, after=(After(parent.id),))
    later, grandchild = keyed(mode, 2), new_job(queue="third")
    grandchild = structs.replace(grandchild, after=(After(later.id),))
    call = [parent, child, later, grandchild]
    told = [
        EnqueueOutcome(parent.id),
        EnqueueOutcome(child.id),
        EnqueueOutcome(child.id, replaced=True),
        EnqueueOutcome(grandchild.id),
    ]
    assert await storage.jobs.enqueue(call) == told
    job = await get_job(storage, child.id)
    assert (job.status, job.payload) == (JobStatus.BLOCKED, '{"n":2}')
    assert job.waits_for == (parent.id,)
    assert (await get_job(storage, grandchild.id)).waits_for == (child.id,)
    assert await storage.jobs.enqueue(call) == told
    lease = await register(storage, queues=("other", QUEUE, "third"))
    for queue in ("other", QUEUE, "third"):
        [claimed] = await claim(storage, lease, queue=queue)
        assert await finish(storage, claimed, done())
        news = await storage.jobs.handovers(10)
        await storage.jobs.deliver([Delivery(each, "settle") for each in news])


@pytest.mark.parametrize("mode", ["debounce", "keep-last"])
async def test_a_call_of_several_queues_stores_a_follow_up_and_its_child(
    storage: Storage, lease: PodLease, mode: UniqueMode
) -> None:
    await ask(storage, keyed("keep"))
    claimed = await claim_one(storage, lease)
    follow_up, latest = keyed(mode, 2), keyed(mode, 3)
    child = new_job(queue="other", after=(After(latest.id),))
    outcomes = await storage.jobs.enqueue([follow_up, latest, child])
    assert [each.follow_up for each in outcomes] == [True, True, False]
    job = await get_job(storage, follow_up.id)
    assert (job.payload, job.waits_for) == ('{"n":3}', (claimed.claim.job_id,))
    assert (await get_job(storage, child.id)).waits_for == (follow_up.id,)
    assert (await counters(storage))["deduplicated"] == 1


async def test_of_one_call_a_job_that_was_due_before_keeps_its_place(
    storage: Storage, clock: ManualClock
) -> None:
    early = clock.now() - MINUTE
    first = keyed("replace", run_at=early)
    await storage.jobs.enqueue([first, keyed("replace", 2), keyed("replace", 3)])
    assert (await get_job(storage, first.id)).due_at == early


async def test_of_one_call_a_job_that_is_due_now_does_not_move_ahead(
    storage: Storage, clock: ManualClock
) -> None:
    requests = [keyed(mode="replace", run_at=clock.now() - ago) for ago in (0 * SECOND, SECOND)]
    await storage.jobs.enqueue(requests)
    assert (await get_job(storage, requests[0].id)).due_at == clock.now()


async def test_the_id_of_a_job_that_was_replaced_in_the_call_is_a_repeat(storage: Storage) -> None:
    first = keyed("replace")
    again = structs.replace(first, payload='{"n":4}')
    outcomes = await storage.jobs.enqueue([first, keyed("replace", 2), again])
    assert [each.job_id for each in outcomes] == [first.id] * 3
    assert (await get_job(storage, first.id)).payload == '{"n":2}'


async def test_a_refused_call_changes_no_job(storage: Storage, lease: PodLease) -> None:
    holder = await pending(storage, lease, keyed("replace"))
    await enqueue_one(storage, unique=Unique("held"))
    before = await get_job(storage, holder)
    batch = [keyed("replace", 2), keyed("cooldown", key="c"), keyed("error", key="held")]
    with pytest.raises(Conflict):
        await storage.jobs.enqueue(batch)
    assert await get_job(storage, holder) == before
    assert not (await ask(storage, keyed("cooldown", key="c"))).deduplicated


@pytest.mark.parametrize("mode", ["replace", "cooldown", "debounce", "keep-last"])
async def test_a_thousand_keys_in_one_call(
    storage: Storage, lease: PodLease, mode: UniqueMode
) -> None:
    keys = [f"k{number}" for number in range(1_000)]
    first = await storage.jobs.enqueue([keyed(mode, 1, key) for key in keys])
    again = await storage.jobs.enqueue([keyed(mode, 2, key) for key in reversed(keys)])
    assert [each.job_id for each in again] == [each.job_id for each in reversed(first)]
    assert {each.replaced for each in again} == {mode != "cooldown"}
    page = await storage.jobs.list(JobFilter(), limit=1_000)
    assert len(page.jobs) == 1_000
