"""Jobs that a caller's open transaction has locked are set aside, and everything else goes on."""

import random
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import anyio
import pytest

from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import Locked, StorageError
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId, new_worker_id
from forge_jobs.model.jobs import After, Claim, ClaimedJob, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueSettings
from forge_jobs.model.transitions import Demand, Exchange, Finalization, Transition
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.runtime.passes.cron import fire_due_once
from forge_jobs.storage.protocols import Storage
from tests.support.asked import asked
from tests.support.callers import drivers_own
from tests.support.factories import (
    KIND,
    QUEUE,
    claim,
    claim_one,
    crashed,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    new_job,
    only,
    register,
    snoozed,
)
from tests.support.firings import a_spec

pytestmark = pytest.mark.anyio

LONG = timedelta(hours=1)


@pytest.fixture
async def storage(storage: Storage) -> Storage:
    """A store that knows the default queue."""
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    return storage


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    return await register(storage, lease_for=LONG)


@pytest.fixture
async def caller(url: str, storage: Storage) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield a transaction that stays open, and the call that ends the transaction."""
    async with drivers_own(url) as opened:
        yield opened


async def lock(caller: tuple[Any, Any], *ids: JobId) -> None:
    """Lock jobs as a program of the user's might."""
    await caller[0].execute("SELECT 1 FROM forge_jobs WHERE id = ANY ($1) FOR UPDATE", list(ids))


async def exchange(
    storage: Storage, lease: PodLease, ends: list[Finalization], limit: int = 0
) -> Exchange:
    demand = Demand(
        worker_ids=tuple(new_worker_id() for _ in range(limit)),
        limit=limit,
        kinds=frozenset({KIND}),
    )
    with anyio.fail_after(20):
        return await storage.jobs.exchange(QUEUE, ends, demand, lease)


async def two_running(storage: Storage, lease: PodLease) -> tuple[ClaimedJob, ClaimedJob]:
    for _ in range(2):
        await enqueue_one(storage)
    one, other = await claim(storage, lease, limit=2)
    return one, other


@pytest.mark.parametrize("end", [done(), failed(), dead(), snoozed()], ids=lambda end: end.cause)
async def test_an_end_whose_job_a_caller_has_made_a_parent_is_set_aside(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any], end: Transition
) -> None:
    one, other = await two_running(storage, lease)
    further = await enqueue_one(storage)
    child = new_job(after=(After(one.claim.job_id, "continue"),))
    await storage.jobs.enqueue([child], connection=caller[0])
    ends = [Finalization(each.claim, end) for each in (one, other)]

    answer = await exchange(storage, lease, ends, limit=1)

    assert answer.settled == (None, True)
    assert [each.claim.job_id for each in answer.claimed] in ([further], [other.claim.job_id])
    job = await get_job(storage, one.claim.job_id)
    assert (job.status, job.token, job.errors) == (JobStatus.IN_PROGRESS, one.claim.token, ())
    # Sent apart, the locked end gets the same answer again, and the other end counts as a repeat.
    with anyio.fail_after(20):
        assert list(await storage.jobs.finalize(ends)) == [None, True]
    await caller[1](True)
    assert list(await storage.jobs.finalize(ends)) == [True, True]
    if end.status in {JobStatus.DONE, JobStatus.DEAD}:
        assert await hand_over_once(storage.jobs) == 1
        assert (await get_job(storage, child.id)).status is JobStatus.PENDING


async def test_ends_that_mean_nothing_any_more_are_refused_although_their_job_is_locked(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    one, other = await two_running(storage, lease)
    await finish(storage, one, done())
    await finish(storage, other, dead())
    await lock(caller, one.claim.job_id, other.claim.job_id)
    stranger = Claim(QUEUE, one.claim.job_id, 99, one.claim.host_id)
    ends = [Finalization(each, failed()) for each in (one.claim, other.claim, stranger)]
    assert (await exchange(storage, lease, ends)).settled == (True, True, False)
    ends = [Finalization(each, done()) for each in (one.claim, other.claim)]
    assert (await exchange(storage, lease, ends)).settled == (True, True)


async def test_a_claim_that_is_given_back_is_set_aside(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    one, other = await two_running(storage, lease)
    await lock(caller, one.claim.job_id)
    with anyio.fail_after(20):
        assert list(await storage.jobs.release([one.claim, other.claim])) == [None, True]
    await caller[1](False)
    assert list(await storage.jobs.release([one.claim, other.claim])) == [True, True]


async def test_a_start_that_cannot_be_recorded_yet_is_told_soon(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    one, other = await two_running(storage, lease)
    await lock(caller, one.claim.job_id)
    with anyio.fail_after(20), pytest.raises(Locked):
        await storage.jobs.record_start([one.claim])
    assert await storage.jobs.record_start([other.claim]) == [True]
    await caller[1](False)
    assert await storage.jobs.record_start([one.claim]) == [True]


@pytest.mark.parametrize("end", [done(), dead(), failed()], ids=lambda each: each.cause)
async def test_a_row_with_a_foreign_key_to_a_job_is_in_no_ends_way(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any], end: Transition
) -> None:
    one, other = await two_running(storage, lease)
    connection, commit = caller
    await connection.execute("CREATE TABLE orders (job text REFERENCES forge_jobs (id))")
    await commit(True)
    async with connection.transaction():
        await connection.execute("INSERT INTO orders VALUES ($1)", one.claim.job_id)
        ends = [Finalization(each.claim, end) for each in (one, other)]
        assert (await exchange(storage, lease, ends)).settled == (True, True)
        outcome = await storage.jobs.cancel(JobFilter(queues=(QUEUE,)))
        assert Refusal.LOCKED not in outcome.refused.values()
        outcome = await storage.jobs.requeue(JobFilter(queues=(QUEUE,)))
        assert Refusal.LOCKED not in outcome.refused.values()
        outcome = await storage.jobs.delete(only(one.claim.job_id, other.claim.job_id))
        assert outcome.changed == (other.claim.job_id,)
        assert outcome.refused == {one.claim.job_id: Refusal.LOCKED}
        await connection.execute("DELETE FROM orders")


async def test_news_for_a_locked_child_wait_and_all_others_are_told(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forge_jobs.runtime.passes.cleanup.HANDOVER_BATCH", 3)
    parent = await enqueue_one(storage)
    children = [await enqueue_one(storage, after=(After(parent),)) for _ in range(10)]
    await lock(caller, *children[:5])
    await finish(storage, await claim_one(storage, lease), done())

    with anyio.fail_after(20):
        assert await hand_over_once(storage.jobs) == 5

    found = await storage.jobs.get(children)
    assert [found[each].status for each in children] == [JobStatus.BLOCKED] * 5 + [
        JobStatus.PENDING
    ] * 5
    await caller[1](False)
    assert await hand_over_once(storage.jobs) == 5


async def test_a_pod_registers_beside_a_locked_job_of_its_kind(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    held, free = [await enqueue_one(storage, kind="new.kind") for _ in range(2)]
    assert await claim(storage, lease) == []
    assert (await get_job(storage, held)).hold is not None
    await lock(caller, held)

    with anyio.fail_after(20):
        theirs = await register(storage, kinds=["new.kind"], lease_for=LONG)
        assert await storage.procs.free_held_jobs(10) == 0

    first = await claim_one(storage, theirs, kinds=["new.kind"])
    assert first.claim.job_id == free
    await caller[1](False)
    assert await storage.procs.free_held_jobs(10) == 1
    assert (await claim_one(storage, theirs, kinds=["new.kind"])).claim.job_id == held


async def test_jobs_of_kinds_that_no_live_pod_knows_stay_on_hold(
    storage: Storage, lease: PodLease
) -> None:
    await register(storage, kinds=["gone"], lease_for=timedelta(0))
    kinds = ["gone", "known", "unknown"]
    ids = [await enqueue_one(storage, kind=kind) for kind in kinds]
    assert await claim(storage, lease) == []
    assert all([(await get_job(storage, each)).hold for each in ids])
    assert await storage.procs.free_held_jobs(10) == 0
    await register(storage, kinds=["known"])
    assert await storage.procs.free_held_jobs(10) == 0
    assert [bool((await get_job(storage, each)).hold) for each in ids] == [True, False, True]


@pytest.mark.parametrize(
    "verb", ["cancel", "requeue", "restore", "delete", "run_now", "release_held"]
)
async def test_a_bulk_verb_reports_locked_jobs_and_does_the_others(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any], verb: str
) -> None:
    ids = sorted([await _fit_for(verb, storage, lease) for _ in range(4)])
    await lock(caller, ids[1])

    with anyio.fail_after(20):
        outcome = await getattr(storage.jobs, verb)(only(*ids), limit=3)

    assert outcome.changed == (ids[0], ids[2])
    assert outcome.refused == {ids[1]: Refusal.LOCKED}
    assert outcome.cursor == ids[2]
    await caller[1](False)
    outcome = await getattr(storage.jobs, verb)(only(*ids[1:2]))
    assert (outcome.changed, outcome.refused) == ((ids[1],), {})


async def _fit_for(verb: str, storage: Storage, lease: PodLease) -> JobId:
    """A job that the verb changes."""
    if verb == "release_held":
        parent = await enqueue_one(storage)
        child = await enqueue_one(storage, after=(After(parent, "hold"),))
        await finish(storage, await claim_one(storage, lease), dead())
        await hand_over_once(storage.jobs)
        return child
    job_id = await enqueue_one(storage)
    if verb == "requeue":
        await finish(storage, await claim_one(storage, lease), dead())
    if verb == "restore":
        await storage.jobs.cancel(only(job_id))
    return job_id


async def test_a_bulk_cancel_asks_the_running_jobs_that_nobody_ends_just_now(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    one, other = await two_running(storage, lease)
    await storage.jobs.finalize([Finalization(one.claim, done())], connection=caller[0])
    with anyio.fail_after(20):
        outcome = await storage.jobs.cancel(JobFilter(queues=(QUEUE,)))
    assert outcome.requested == (other.claim.job_id,)
    assert outcome.refused == {one.claim.job_id: Refusal.LOCKED}
    await caller[1](True)


async def test_a_requeue_leaves_out_the_job_whose_key_a_caller_is_taking(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    ids = [await enqueue_one(storage, unique=Unique(f"k{number}")) for number in range(5)]
    for claimed in await claim(storage, lease, limit=5):
        await finish(storage, claimed, dead())
    await storage.jobs.enqueue([new_job(unique=Unique("k3"))], connection=caller[0])
    with anyio.fail_after(20):
        outcome = await storage.jobs.requeue(JobFilter(queues=(QUEUE,)))
    assert set(outcome.changed) == {*ids[:3], ids[4]}
    assert outcome.refused == {ids[3]: Refusal.LOCKED}
    await caller[1](True)
    outcome = await storage.jobs.requeue(only(ids[3]))
    assert outcome.refused == {ids[3]: Refusal.KEY_TAKEN}


async def test_what_hangs_on_an_edge_of_a_job_that_is_ending_is_reported(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    parent = await enqueue_one(storage)
    child, other = [await enqueue_one(storage, after=(After(parent),)), await enqueue_one(storage)]
    await storage.jobs.cancel(only(child, other))
    running = await claim_one(storage, lease)
    await storage.jobs.finalize([Finalization(running.claim, done())], connection=caller[0])
    for verb in (storage.jobs.requeue, storage.jobs.delete):
        with anyio.fail_after(20):
            outcome = await verb(only(child, other))
        assert outcome.changed == (other,)
        assert outcome.refused == {child: Refusal.LOCKED}
    await caller[1](True)
    assert (await storage.jobs.requeue(only(child))).changed == (child,)


async def test_a_moment_of_waiting_is_no_reason_to_set_aside(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    """Calls of ours hold rows for milliseconds: an end, a hand-over or a cancel outlasts them."""
    one, other = await two_running(storage, lease)
    await lock(caller, one.claim.job_id)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    answers: list[object] = []

    async def end() -> None:
        ends = [Finalization(one.claim, dead()), Finalization(other.claim, dead())]
        answers.extend(await storage.jobs.finalize(ends))

    async with anyio.create_task_group() as group:
        group.start_soon(end)
        with anyio.fail_after(20):
            while not await caller[0].fetchval(waiting):
                await anyio.lowlevel.checkpoint()
        await caller[1](False)
    assert answers == [True, True]


async def test_a_revival_and_a_beat_pass_a_locked_job(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    one, other = await two_running(storage, lease)
    await lock(caller, one.claim.job_id)
    from forge_jobs.model.transitions import Revival

    revivals = [Revival(each.claim, crashed()) for each in (one, other)]
    with anyio.fail_after(20):
        assert await storage.jobs.revive(revivals, timedelta(0)) == [False, True]


async def test_a_moment_in_which_a_foreign_key_holds_a_job_costs_a_delete_one_call(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    ids = [await enqueue_one(storage) for _ in range(2)]
    await caller[0].execute("SELECT 1 FROM forge_jobs WHERE id = $1 FOR KEY SHARE", ids[0])
    with asked() as seen:
        outcome = await storage.jobs.delete(only(*ids))
    assert (outcome.changed, outcome.refused) == ((ids[1],), {ids[0]: Refusal.LOCKED})
    deletes = [text for text in seen.elements() if text.startswith("DELETE FROM forge_jobs ")]
    assert len(deletes) == 1, seen


async def test_schedules_fire_beside_one_whose_key_a_caller_is_taking(
    storage: Storage, lease: PodLease, caller: tuple[Any, Any]
) -> None:
    now = await storage.cron.now()
    for number in range(4):
        spec = a_spec(name=f"s{number}", overlap="skip", catch_up="latest")
        await storage.cron.ensure_schedule(spec, now)
    held = new_job(unique=Unique("cron:s2"))
    await storage.jobs.enqueue([held], connection=caller[0])
    with anyio.fail_after(60), pytest.raises(StorageError, match="'s2' \\(an open transaction"):
        await fire_due_once(storage.cron, RuntimeSettings(), random.Random(1))
    counted = {each.spec.name: each.fired for each in await storage.cron.schedules()}
    assert counted == {"s0": 1, "s1": 1, "s2": 0, "s3": 1}
