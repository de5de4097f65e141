"""Queues and rate limits that are deleted."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Conflict, NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import After, JobStatus, Unique
from forge_jobs.model.processes import AllocationChange, Slots
from forge_jobs.model.queues import QueueChange, QueueSettings, RateLimit
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    DAY,
    LEASE,
    QUEUE,
    claim,
    claim_one,
    cleaned_up,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    only,
    register,
)

pytestmark = pytest.mark.anyio

HOST = HostId("host")
SCOPE = "smtp"
LIMIT = RateLimit(10, timedelta(minutes=1))


async def names(storage: Storage) -> list[str]:
    return [state.name for state in await storage.config.queues()]


# -- queues ------------------------------------------------------------------------------------


async def test_a_deleted_queue_is_gone_with_its_settings(storage: Storage) -> None:
    await storage.config.set_queue("a", QueueChange(max_workers=3))
    await storage.config.set_queue("b", QueueChange(max_workers=4))
    await storage.config.set_paused("a", True)
    await storage.config.delete_queue("a")
    assert await names(storage) == ["b"]
    assert "a" not in await storage.jobs.counts()
    with pytest.raises(NotFound, match=r"there is no queue 'a'"):
        await storage.config.delete_queue("a")
    with pytest.raises(NotFound):
        await storage.config.clear_cooldown("a")
    with pytest.raises(NotFound):
        await storage.config.set_paused("a", True)
    await enqueue_one(storage, queue="a")
    [again, _] = await storage.config.queues()
    assert (again.name, again.settings, again.overridden) == ("a", QueueSettings(), frozenset())
    assert not again.paused
    assert (await storage.jobs.counts())["a"].due == 1


async def test_one_that_never_was_is_not_deleted(storage: Storage) -> None:
    with pytest.raises(NotFound, match=r"there is no queue 'x'"):
        await storage.config.delete_queue("x")


@pytest.mark.parametrize(
    "status",
    [
        JobStatus.BLOCKED,
        JobStatus.PENDING,
        JobStatus.IN_PROGRESS,
        JobStatus.FAILED,
        JobStatus.DONE,
        JobStatus.DEAD,
        JobStatus.CANCELLED,
    ],
)
async def test_a_queue_with_a_job_stays_as_it_is(
    storage: Storage, clock: ManualClock, status: JobStatus
) -> None:
    parent = await enqueue_one(storage, queue="other")
    if status is JobStatus.BLOCKED:
        job_id = await enqueue_one(storage, after=(After(parent),))
    else:
        job_id = await enqueue_one(storage)
    if status is JobStatus.CANCELLED:
        await storage.jobs.cancel(only(job_id))
    elif status not in (JobStatus.BLOCKED, JobStatus.PENDING):
        lease = await register(storage)
        claimed = await claim_one(storage, lease)
        ends = {
            JobStatus.DONE: done(),
            JobStatus.DEAD: failed(status=JobStatus.DEAD),
            JobStatus.FAILED: failed(delay=DAY),
        }
        if status in ends:
            assert await finish(storage, claimed, ends[status])
    clock.advance(LEASE)
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=7))
    assert (await get_job(storage, job_id)).status is status
    with pytest.raises(Conflict, match=r"the queue 'default' has 1 job; delete these first: "):
        await storage.config.delete_queue(QUEUE)
    assert (await get_job(storage, job_id)).status is status
    [state] = [each for each in await storage.config.queues() if each.name == QUEUE]
    assert state.settings.max_workers == 7


async def test_the_refusal_says_how_many_jobs_there_are(storage: Storage) -> None:
    for _ in range(3):
        await enqueue_one(storage)
    with pytest.raises(Conflict, match=r"has 3 jobs"):
        await storage.config.delete_queue(QUEUE)
    await storage.jobs.delete(JobFilter(queues=(QUEUE,)))
    await storage.config.delete_queue(QUEUE)
    assert await names(storage) == []


async def test_a_queue_that_a_live_pod_declares_stays(storage: Storage, clock: ManualClock) -> None:
    leases = [await register(storage), await register(storage)]
    with pytest.raises(Conflict, match=r"is in use: 2 live pods declare it"):
        await storage.config.delete_queue(QUEUE)
    await storage.procs.unregister(leases[0])
    with pytest.raises(Conflict, match=r"a live pod declares it; take it out of FORGE_QUEUES"):
        await storage.config.delete_queue(QUEUE)
    clock.advance(LEASE)
    await storage.config.delete_queue(QUEUE)
    assert await names(storage) == []
    assert await storage.procs.allocations() == []


async def test_a_pod_makes_a_deleted_queue_again_and_works_in_it(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage)
    await storage.procs.unregister(lease)
    await storage.config.delete_queue(QUEUE)
    lease = await register(storage)
    assert await names(storage) == [QUEUE]
    job_id = await enqueue_one(storage, unique=Unique("k"))
    assert [each.claim.job_id for each in await claim(storage, lease)] == [job_id]
    beat = await storage.procs.allocations()
    assert [allocation.queue for allocation in beat] == [QUEUE]


async def test_what_was_counted_and_told_of_a_deleted_queue_stays_for_its_time(
    storage: Storage, clock: ManualClock
) -> None:
    start = clock.now() - DAY
    job_id = await enqueue_one(storage)
    await storage.jobs.delete(only(job_id))
    await storage.config.delete_queue(QUEUE)
    assert len(await storage.jobs.metrics(QUEUE, start, start + 2 * DAY)) == 1
    clock.advance(40 * DAY)
    await cleaned_up(storage)
    await cleaned_up(storage)
    assert await storage.jobs.metrics(QUEUE, start, start + 2 * DAY) == []
    assert await names(storage) == []
    await enqueue_one(storage)
    assert await names(storage) == [QUEUE]


async def test_a_program_that_knew_the_queue_makes_it_again(
    storage: Storage, clock: ManualClock
) -> None:
    async with await storage.reopen() as elsewhere:
        await storage.jobs.delete(only(await enqueue_one(elsewhere)))
        await storage.config.delete_queue(QUEUE)
        job_id = await enqueue_one(elsewhere)
    await storage.jobs.sweep(1_000)
    assert await names(storage) == [QUEUE]
    lease = await register(storage)
    assert [each.claim.job_id for each in await claim(storage, lease)] == [job_id]


async def test_a_sweep_has_nothing_to_say_of_queues_that_are_listed(storage: Storage) -> None:
    await enqueue_one(storage)
    await register(storage, queues=("a", "b"))
    assert (await storage.jobs.sweep(1_000)).queues == ()


async def test_a_fleet_version_does_not_come_back_after_a_deletion(storage: Storage) -> None:
    """Otherwise a coordinator that knows the version would not look."""
    await storage.config.set_queue("a", QueueChange(max_workers=3))
    await register(storage)
    before = (await storage.cron.lead(HOST, LEASE)).fleet_version
    await storage.config.delete_queue("a")
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=2))
    assert (await storage.cron.lead(HOST, LEASE)).fleet_version != before


async def test_a_plan_for_a_queue_that_was_deleted_since_is_refused(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, host_id=HOST)
    [read] = await storage.procs.allocations()
    await storage.procs.unregister(lease)
    await storage.config.delete_queue(QUEUE)
    clock.advance(LEASE)
    await register(storage, host_id=HOST)
    plan = AllocationChange(queue=QUEUE, version=read.version, slots={HOST: Slots(1, 1)})
    assert await storage.procs.allocate([plan]) == [False]


# -- rate limits -------------------------------------------------------------------------------


async def test_a_deleted_rate_limit_gives_no_tokens(storage: Storage) -> None:
    await storage.config.set_rate_limit(SCOPE, LIMIT)
    await storage.config.set_rate_limit("other", LIMIT)
    await storage.config.delete_rate_limit(SCOPE)
    assert [state.scope for state in await storage.config.rate_limits()] == ["other"]
    with pytest.raises(NotFound):
        await storage.config.take_tokens(SCOPE, 1)
    with pytest.raises(NotFound):
        await storage.config.take_turns(SCOPE, [1], DAY)
    with pytest.raises(NotFound, match=r"there is no rate limit 'smtp'"):
        await storage.config.delete_rate_limit(SCOPE)


async def test_code_that_declares_a_deleted_rate_limit_brings_it_back_full(
    storage: Storage,
) -> None:
    await storage.config.set_rate_limit(SCOPE, LIMIT)
    await storage.config.drain_tokens(SCOPE)
    await storage.config.delete_rate_limit(SCOPE)
    await storage.config.ensure_rate_limit(SCOPE, RateLimit(5, timedelta(minutes=1)))
    [state] = await storage.config.rate_limits()
    assert (state.limit.capacity, state.available, state.overridden) == (5, 5, False)
