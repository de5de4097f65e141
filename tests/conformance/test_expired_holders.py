"""Holders of unique keys that wait and have expired: the request that meets one ends the job."""

from typing import Any

import anyio
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import After, Cause, EnqueueOutcome, JobStatus, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.unique.keys import UniqueMode
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    SECOND,
    claim_one,
    counters,
    dead,
    enqueue_one,
    failed,
    finish,
    get_job,
    new_job,
    run_one,
)
from tests.support.keyed import ask, hand_over, keyed

pytestmark = pytest.mark.anyio

MODES: tuple[UniqueMode, ...] = ("keep", "error", "replace", "cooldown", "debounce", "keep-last")
every_mode = pytest.mark.parametrize("mode", MODES)


def expiring(clock: ManualClock, mode: UniqueMode = "keep", **fields: Any) -> NewJob:
    return keyed(mode, expires_at=clock.now() + SECOND, **fields)


async def assert_expired(storage: Storage, job_id: JobId) -> None:
    job = await get_job(storage, job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.EXPIRED)


async def assert_holds(storage: Storage, job_id: JobId) -> None:
    assert (await ask(storage, keyed("keep"))).job_id == job_id


@every_mode
async def test_a_job_that_has_expired_gives_the_key_to_the_request(
    storage: Storage, clock: ManualClock, mode: UniqueMode
) -> None:
    held = (await ask(storage, expiring(clock))).job_id
    clock.advance(SECOND)
    outcome = await ask(storage, keyed(mode, 2))
    assert outcome == EnqueueOutcome(outcome.job_id)
    assert outcome.job_id != held
    await assert_expired(storage, held)
    await assert_holds(storage, outcome.job_id)
    assert (await counters(storage))["expired"] == 1
    assert await storage.jobs.expire(10) == 0


@every_mode
async def test_up_to_that_time_the_job_holds_the_key(
    storage: Storage, clock: ManualClock, mode: UniqueMode
) -> None:
    held = (await ask(storage, expiring(clock))).job_id
    clock.advance(SECOND / 1000 * 999)
    if mode == "error":
        with pytest.raises(Conflict):
            await ask(storage, keyed(mode, 2))
    else:
        assert (await ask(storage, keyed(mode, 2))).job_id == held
    assert (await get_job(storage, held)).status is JobStatus.PENDING


@every_mode
async def test_a_job_that_waits_for_a_retry_or_a_parent_expires_too(
    storage: Storage, lease: PodLease, clock: ManualClock, mode: UniqueMode
) -> None:
    retried = (await ask(storage, expiring(clock))).job_id
    await run_one(storage, lease, failed(DAY))
    parent = await enqueue_one(storage, delay=DAY)
    blocked = (await ask(storage, expiring(clock, key="b", after=(After(parent),)))).job_id
    clock.advance(SECOND)
    outcomes = await storage.jobs.enqueue([keyed(mode, 2), keyed(mode, 2, "b")])
    assert not any(one.deduplicated or one.replaced for one in outcomes)
    await assert_expired(storage, retried)
    await assert_expired(storage, blocked)


@every_mode
async def test_a_running_job_holds_the_key_whatever_the_time(
    storage: Storage, lease: PodLease, clock: ManualClock, mode: UniqueMode
) -> None:
    held = (await ask(storage, expiring(clock))).job_id
    await claim_one(storage, lease)
    clock.advance(SECOND)
    if mode == "error":
        with pytest.raises(Conflict):
            await ask(storage, keyed(mode, 2))
    else:
        outcome = await ask(storage, keyed(mode, 2))
        assert outcome.deduplicated or outcome.follow_up
    assert (await get_job(storage, held)).status is JobStatus.IN_PROGRESS


@pytest.mark.parametrize("mode", ["replace", "debounce", "keep-last"])
async def test_of_one_call_the_last_content_counts_also_where_another_job_has_expired(
    storage: Storage, clock: ManualClock, mode: UniqueMode
) -> None:
    await ask(storage, expiring(clock, key="other"))
    clock.advance(SECOND)
    first, last = keyed("keep", 1), keyed(mode, 2)
    outcomes = await storage.jobs.enqueue([first, last])
    assert outcomes == [EnqueueOutcome(first.id), EnqueueOutcome(first.id, replaced=True)]
    assert (await get_job(storage, first.id)).payload == last.payload


async def test_children_hear_of_the_end(storage: Storage, clock: ManualClock) -> None:
    held = (await ask(storage, expiring(clock))).job_id
    child = await enqueue_one(storage, after=(After(held, "continue"),))
    clock.advance(SECOND)
    late = new_job(after=(After(held, "continue"),))
    await storage.jobs.enqueue([keyed("keep", 2), late])
    await hand_over(storage)
    assert (await get_job(storage, child)).status is JobStatus.PENDING
    assert (await get_job(storage, late.id)).status is JobStatus.PENDING


async def test_a_refused_call_ends_nothing(storage: Storage, clock: ManualClock) -> None:
    held = (await ask(storage, expiring(clock))).job_id
    await ask(storage, keyed("keep", key="other"))
    clock.advance(SECOND)
    with pytest.raises(Conflict):
        await storage.jobs.enqueue([keyed("keep", 2), keyed("error", key="other")])
    assert (await get_job(storage, held)).status is JobStatus.PENDING


@pytest.mark.parametrize("first", ["stored", "changed"])
async def test_what_the_same_call_wrote_holds_the_key_even_when_it_came_too_late(
    storage: Storage, clock: ManualClock, first: str
) -> None:
    if first == "changed":
        await ask(storage, keyed("replace"))
    late = keyed("replace", 2, expires_at=clock.now())
    holder, other = await storage.jobs.enqueue([late, keyed("keep", 3)])
    assert (other.job_id, other.deduplicated) == (holder.job_id, True)
    outcome = await ask(storage, keyed("keep", 4))
    assert not outcome.deduplicated
    await assert_expired(storage, holder.job_id)


async def test_a_repeat_of_the_request_ends_nothing(storage: Storage, clock: ManualClock) -> None:
    request = expiring(clock)
    await ask(storage, request)
    clock.advance(SECOND)
    assert (await ask(storage, request)).job_id == request.id
    assert (await get_job(storage, request.id)).status is JobStatus.PENDING


async def test_a_window_goes_on_after_the_job_that_opened_it(
    storage: Storage, clock: ManualClock
) -> None:
    held = (await ask(storage, expiring(clock, "cooldown"))).job_id
    clock.advance(SECOND)
    outcome = await ask(storage, keyed("cooldown", 2))
    assert (outcome.job_id, outcome.deduplicated) == (held, True)
    await assert_expired(storage, held)


@every_mode
async def test_the_follow_up_of_a_holder_that_has_expired_stays(
    storage: Storage, lease: PodLease, clock: ManualClock, mode: UniqueMode
) -> None:
    held = (await ask(storage, expiring(clock, "keep-last"))).job_id
    claimed = await claim_one(storage, lease)
    follow_up = (await ask(storage, keyed("keep-last", 2))).job_id
    assert await finish(storage, claimed, failed(DAY))
    clock.advance(SECOND)
    if mode == "error":
        with pytest.raises(Conflict, match=follow_up):
            await ask(storage, keyed(mode, 3))
        return
    outcome = await ask(storage, keyed(mode, 3))
    assert outcome.job_id == follow_up
    assert outcome.replaced is (mode not in ("keep", "cooldown"))
    await assert_expired(storage, held)
    await hand_over(storage)
    assert (await get_job(storage, follow_up)).status is JobStatus.PENDING


@pytest.mark.parametrize("mode", ["debounce", "keep-last"])
async def test_a_follow_up_that_has_expired_gives_way_to_another(
    storage: Storage, lease: PodLease, clock: ManualClock, mode: UniqueMode
) -> None:
    await ask(storage, keyed("keep-last"))
    claimed = await claim_one(storage, lease)
    expired = (await ask(storage, expiring(clock, "keep-last"))).job_id
    clock.advance(SECOND)
    outcome = await ask(storage, keyed(mode, 3))
    assert (outcome.follow_up, outcome.replaced) == (True, False)
    await assert_expired(storage, expired)
    assert await finish(storage, claimed, dead())
    await hand_over(storage)
    assert (await get_job(storage, outcome.job_id)).status is JobStatus.PENDING


@every_mode
async def test_of_many_at_once_one_takes_the_key(
    storage: Storage, clock: ManualClock, mode: UniqueMode
) -> None:
    held = (await ask(storage, expiring(clock))).job_id
    clock.advance(SECOND)
    taken: set[JobId] = set()
    refused: list[Conflict] = []

    async def one(number: int) -> None:
        try:
            taken.add((await ask(storage, keyed(mode, number))).job_id)
        except Conflict as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(one, number)
    assert (len(taken), len(refused)) == (1, 7 if mode == "error" else 0)
    assert held not in taken
    assert (await counters(storage))["expired"] == 1
