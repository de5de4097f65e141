"""Ends with a next occurrence: the same job begins anew, once."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict
from forge_jobs.model.ids import JobId, new_host_id
from forge_jobs.model.jobs import After, Cause, ClaimedJob, Job, JobStatus, Unique
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueSettings, Retention
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    SECOND,
    again,
    claim,
    claim_one,
    counters,
    crashed,
    dead,
    done,
    enqueue_one,
    error,
    failed,
    finish,
    get_job,
    new_job,
    only,
    register,
    revive,
    run_one,
    snoozed,
)

pytestmark = pytest.mark.anyio
NEXT = '{"page": 2}'


async def begun(storage: Storage, lease: PodLease, **options: Any) -> ClaimedJob:
    """Enqueue a job, claim, and begin the next occurrence at once."""
    await enqueue_one(storage, **options)
    claimed = await claim_one(storage, lease)
    assert await finish(storage, claimed, again(claimed, NEXT))
    return claimed


async def test_the_job_waits_with_the_new_payload_and_its_whole_budget(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage, max_attempts=7, timeout=SECOND, trace='{"a":"b"}')
    await run_one(storage, lease, failed())
    await run_one(storage, lease, snoozed())
    claimed = await claim_one(storage, lease)
    assert (claimed.attempt, claimed.snoozes) == (2, 1)
    before = await get_job(storage, job_id)

    assert await finish(storage, claimed, again(claimed, NEXT, after=30 * SECOND))

    now = await storage.cron.now()
    job = await get_job(storage, job_id)
    assert job == structs.replace(
        before,
        status=JobStatus.PENDING,
        cause=Cause.SUCCEEDED,
        payload=NEXT,
        metadata={"forge_jobs.occurrence": "2"},
        attempt=0,
        snoozes=0,
        due_at=now + 30 * SECOND,
        heartbeat_at=job.heartbeat_at,
    )
    assert [each.message for each in job.errors] == ["boom"]
    assert await claim(storage, lease) == []
    clock.advance(30)
    lease = await register(storage)
    following = await claim_one(storage, lease)
    assert (following.payload, following.attempt) == (NEXT, 1)
    assert (following.max_attempts, following.timeout) == (7, SECOND)
    assert (following.trace, following.snoozed_since) == ('{"a":"b"}', None)
    assert following.claim.token > claimed.claim.token


async def test_a_repeat_of_the_end_begins_nothing(storage: Storage, lease: PodLease) -> None:
    claimed = await begun(storage, lease)
    end = Finalization(claimed.claim, again(claimed, NEXT))
    assert await storage.jobs.finalize([end, end]) == [True, True]
    following = await claim_one(storage, lease)
    assert await storage.jobs.finalize([end]) == [True]
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.token) == (JobStatus.IN_PROGRESS, following.claim.token)
    assert (await counters(storage))["succeeded"] == 1


async def test_two_equal_ends_of_one_call_begin_one_occurrence(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    end = Finalization(claimed.claim, again(claimed, NEXT))
    assert await storage.jobs.finalize([end, end]) == [True, True]
    assert len(await claim(storage, lease, limit=5)) == 1
    assert (await counters(storage))["succeeded"] == 1


async def test_a_zombies_next_occurrence_is_refused(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage, payload='{"page": 1}')
    zombie = await claim_one(storage, lease)
    clock.advance(LEASE.total_seconds())
    assert await revive(storage, zombie, crashed())
    late = Finalization(zombie.claim, again(zombie, NEXT))
    assert await storage.jobs.finalize([late]) == [False]
    lease = await register(storage)
    owner = await claim_one(storage, lease)
    assert await storage.jobs.finalize([late]) == [False]
    wrong = structs.replace(owner.claim, host_id=new_host_id())
    assert await storage.jobs.finalize([Finalization(wrong, again(owner, NEXT))]) == [False]
    assert (await get_job(storage, job_id)).payload == '{"page": 1}'
    assert await finish(storage, owner, again(owner, NEXT))
    assert await storage.jobs.finalize([late]) == [False]
    assert (await get_job(storage, job_id)).payload == NEXT


async def test_crashes_do_not_add_up_over_occurrences(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    job_id = await enqueue_one(storage)
    for _ in range(3):
        crashing = await claim_one(storage, lease)
        clock.advance(LEASE.total_seconds())
        assert await revive(storage, crashing, crashed(delay=None))
        lease = await register(storage)
        claimed = await claim_one(storage, lease)
        assert (claimed.attempt, claimed.crashes) == (2, 1)
        assert await finish(storage, claimed, again(claimed, NEXT))
        assert (await get_job(storage, job_id)).crashes == 0
        # Claimed ahead of a free worker, as no job with a crash on record is.
        [ahead] = await claim(storage, lease, ahead=True)
        await storage.jobs.release([ahead.claim])


async def test_a_job_that_was_asked_to_cancel_begins_nothing(
    storage: Storage, lease: PodLease
) -> None:
    job_id = await enqueue_one(storage, payload='{"page": 1}')
    claimed = await claim_one(storage, lease)
    await storage.jobs.cancel(only(job_id))
    assert await finish(storage, claimed, again(claimed, NEXT))
    job = await get_job(storage, job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
    assert job.payload == '{"page": 1}'


async def test_a_waiting_occurrence_is_cancelled_as_any_job(
    storage: Storage, lease: PodLease
) -> None:
    claimed = await begun(storage, lease)
    await storage.jobs.cancel(only(claimed.claim.job_id))
    assert (await get_job(storage, claimed.claim.job_id)).status is JobStatus.CANCELLED
    await storage.jobs.requeue(only(claimed.claim.job_id))
    assert (await claim_one(storage, lease)).payload == NEXT


async def test_the_key_is_held_through_all_occurrences(storage: Storage, lease: PodLease) -> None:
    claimed = await begun(storage, lease, unique=Unique("k"))
    for _ in range(3):
        [outcome] = await storage.jobs.enqueue([new_job(unique=Unique("k"))])
        assert (outcome.job_id, outcome.deduplicated) == (claimed.claim.job_id, True)
        following = await claim_one(storage, lease)
        assert await finish(storage, following, again(following, NEXT))
    following = await claim_one(storage, lease)
    assert await finish(storage, following, done())
    [outcome] = await storage.jobs.enqueue([new_job(unique=Unique("k"))])
    assert not outcome.deduplicated


async def test_children_wait_for_the_last_occurrence(storage: Storage, lease: PodLease) -> None:
    parent = new_job()
    child = new_job(after=(After(parent.id),))
    await storage.jobs.enqueue([parent, child])
    claimed = await claim_one(storage, lease)
    assert await finish(storage, claimed, again(claimed, NEXT))
    assert await storage.jobs.handovers(10) == []
    assert (await get_job(storage, child.id)).status is JobStatus.BLOCKED
    await run_one(storage, lease, done())
    [news] = await storage.jobs.handovers(10)
    assert (news.child_id, news.parent_status) == (child.id, JobStatus.DONE)


async def test_the_checkpoint_goes_with_the_occurrence(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage)
    other = await enqueue_one(storage)
    first, second = await claim(storage, lease, limit=2)
    for each in (first, second):
        assert await storage.jobs.save_checkpoint(each.claim, "1") is True
    assert await finish(storage, first, again(first, NEXT))
    assert await storage.jobs.checkpoint(job_id) is None
    assert await storage.jobs.checkpoint(other) == "1"


async def test_the_result_of_an_earlier_time_goes(storage: Storage, lease: PodLease) -> None:
    job_id = await enqueue_one(storage)
    await run_one(storage, lease, dead())
    await storage.jobs.requeue(only(job_id))
    claimed = await claim_one(storage, lease)
    assert await finish(storage, claimed, again(claimed, NEXT))
    assert (await get_job(storage, job_id)).result is None
    await run_one(storage, lease, done('"last"'))
    assert (await get_job(storage, job_id)).result == '"last"'


async def test_an_error_beside_the_success_is_kept(storage: Storage, lease: PodLease) -> None:
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    assert await finish(storage, claimed, again(claimed, NEXT, error=error("overrun")))
    job = await get_job(storage, claimed.claim.job_id)
    assert [each.message for each in job.errors] == ["overrun"]


class TestRepeatedRequests:
    async def test_of_a_request_without_an_id_of_its_own(
        self, storage: Storage, lease: PodLease
    ) -> None:
        request = new_job(payload='{"page": 1}')
        await storage.jobs.enqueue([request])
        claimed = await claim_one(storage, lease)
        assert await finish(storage, claimed, again(claimed, NEXT))
        [outcome] = await storage.jobs.enqueue([request])
        assert (outcome.job_id, outcome.deduplicated) == (request.id, False)
        assert (await get_job(storage, request.id)).payload == NEXT

    async def test_of_a_request_with_one(self, storage: Storage, lease: PodLease) -> None:
        request = new_job(payload='{"page": 1}', fingerprint="f")
        await storage.jobs.enqueue([request])
        claimed = await claim_one(storage, lease)
        assert await finish(storage, claimed, again(claimed, NEXT))
        [outcome] = await storage.jobs.enqueue([request])
        assert (outcome.job_id, outcome.deduplicated) == (request.id, False)
        with pytest.raises(Conflict):
            await storage.jobs.enqueue([structs.replace(request, fingerprint="g")])


async def test_an_end_and_the_claim_of_the_next_occurrence_are_one_call(
    storage: Storage, lease: PodLease
) -> None:
    await enqueue_one(storage, payload='{"page": 1}')
    claimed = await claim_one(storage, lease)
    for page in range(2, 6):
        text = f'{{"page": {page}}}'
        demand = Demand(worker_ids=("w",), limit=1, kinds=frozenset({KIND}))
        end = Finalization(claimed.claim, again(claimed, text))
        answer = await storage.jobs.exchange(QUEUE, [end], demand, lease)
        assert answer.settled == (True,)
        [claimed] = answer.claimed
        assert (claimed.payload, claimed.attempt) == (text, 1)


async def test_one_call_has_ends_of_all_sorts(storage: Storage, lease: PodLease) -> None:
    ids = [await enqueue_one(storage) for _ in range(6)]
    claimed = {each.claim.job_id: each for each in await claim(storage, lease, limit=6)}
    how: dict[JobId, Transition] = {
        ids[0]: done('"r"'),
        ids[1]: again(claimed[ids[1]], NEXT),
        ids[2]: failed(SECOND),
        ids[3]: again(claimed[ids[3]], '{"page": 3}', after=SECOND),
        ids[4]: done(),
        ids[5]: dead(),
    }
    ends = [Finalization(claimed[each].claim, how[each]) for each in ids]
    assert list(await storage.jobs.finalize(ends)) == [True] * 6
    jobs = await storage.jobs.get(ids)
    found: list[Job] = [jobs[each] for each in ids]
    assert [each.status.value for each in found] == [
        *("done", "pending", "failed", "pending", "done", "dead")
    ]
    assert [found[1].payload, found[3].payload] == [NEXT, '{"page": 3}']
    assert [each.attempt for each in found] == [1, 0, 1, 0, 1, 1]


async def test_the_expiry_bounds_the_chain(
    storage: Storage, lease: PodLease, clock: ManualClock
) -> None:
    now = await storage.cron.now()
    claimed = await begun(storage, lease, expires_at=now + timedelta(seconds=10))
    clock.advance(10)
    assert await storage.jobs.expire(10) == 1
    job = await get_job(storage, claimed.claim.job_id)
    assert (job.status, job.cause) == (JobStatus.CANCELLED, Cause.EXPIRED)


async def test_where_nothing_is_kept_a_chain_goes_on(storage: Storage, lease: PodLease) -> None:
    nothing = Retention(done=timedelta(0), dead=timedelta(0), cancelled=timedelta(0))
    await storage.config.ensure_queue(QUEUE, QueueSettings(retention=nothing))
    claimed = await begun(storage, lease)
    following = await claim_one(storage, lease)
    assert following.payload == NEXT
    assert await finish(storage, following, done())
    assert (await get_job(storage, claimed.claim.job_id)).payload == ""
