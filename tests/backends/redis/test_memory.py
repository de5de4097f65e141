"""A server without memory: what must go on does, and what would need more is refused whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Unavailable
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.processes import AllocationChange, Slots
from forge_jobs.model.queues import QueueSettings, RateLimit
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.model.transitions import Delivery
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.servers import RedisServer
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    SECOND,
    claim_one,
    counters,
    done,
    enqueue_one,
    finish,
    get_job,
    held,
    new_job,
    only,
    register,
    revive,
    run_one,
)

pytestmark = pytest.mark.anyio


@contextmanager
def used_up(server: RedisServer) -> Iterator[None]:
    """No memory left, from the first command on."""
    server.command("CONFIG", "SET", "maxmemory", "1")
    try:
        yield
    finally:
        server.command("CONFIG", "SET", "maxmemory", "0")


async def test_jobs_go_on_to_their_end(
    server: RedisServer, storage: Storage, clock: ManualClock
) -> None:
    """Running jobs, waiting jobs, jobs whose pod has died, and jobs that wait for others go on."""
    lease = await register(storage)
    parent = await enqueue_one(storage)
    child = await enqueue_one(storage, after=(After(parent),))
    running = await claim_one(storage, lease)
    with used_up(server):
        beat = await storage.jobs.heartbeat(lease, [held(running, "w")], LEASE)
        assert beat.lease_held
        clock.advance(LEASE.total_seconds())
        lease = await register(storage)
        [stale] = await storage.jobs.stale_claims(LEASE, 10)
        assert await revive(storage, stale.claim)
        assert await run_one(storage, lease, done("{}")) == parent
        [news] = await storage.jobs.handovers(10)
        assert await storage.jobs.deliver([Delivery(news, "settle")]) == 1
        assert await run_one(storage, lease, done("{}")) == child
        assert await counters(storage)


async def test_room_can_be_made(server: RedisServer, storage: Storage, clock: ManualClock) -> None:
    """By retention and by hand: what is there can be looked at, and can go."""
    lease = await register(storage)
    await storage.config.ensure_queue(QUEUE, QueueSettings())
    old = await enqueue_one(storage)
    await run_one(storage, lease, done("{}"))
    waiting = [await enqueue_one(storage, tags=(tag,)) for tag in ("a", "b")]
    soon = await enqueue_one(storage, expires_at=await storage.cron.now() + SECOND)
    with used_up(server):
        assert len((await storage.jobs.list(JobFilter())).jobs) == 4
        assert (await storage.jobs.counts())[QUEUE].due == 3
        assert (await get_job(storage, old)).status == JobStatus.DONE
        assert (await storage.jobs.cancel(only(waiting[0]))).changed == (waiting[0],)
        assert (await storage.jobs.delete(JobFilter(tag="b"))).changed == (waiting[1],)
        clock.advance(2)
        assert await storage.jobs.expire(10) == 1
        assert await storage.jobs.events() == []
        clock.advance(timedelta(days=400).total_seconds())
        assert await storage.jobs.roll_up(100) > 0
        assert (await storage.jobs.cleanup(1_000)).removed >= 3
        assert await storage.jobs.get([old, *waiting, soon]) == {}


async def test_a_pod_can_start(server: RedisServer, storage: Storage, url: str) -> None:
    """So a fleet that is restarted then still works the jobs off that fill the memory."""
    job = await enqueue_one(storage)
    with used_up(server):
        async with await open_storage(url) as another:
            await another.config.ensure_queue("new", QueueSettings(max_workers=3))
            await another.config.ensure_rate_limit("api", RateLimit(10, SECOND))
            spec = ScheduleSpec(name="s", queue=QUEUE, kind=KIND, payload="{}", expression="@daily")
            await another.cron.ensure_schedule(spec, None)
            lease = await register(another, queues=(QUEUE, "new"))
            assert (await another.cron.lead(lease.host_id, LEASE)).host_id == lease.host_id
            [first, _] = await another.procs.allocations()
            change = AllocationChange(
                queue=QUEUE, version=first.version, slots={lease.host_id: Slots(1, 1)}
            )
            assert await another.procs.allocate([change]) == [True]
            assert await run_one(another, lease, done("{}")) == job


async def test_what_a_claim_has_brought_is_not_lost_over_jobs_that_nobody_knows(
    server: RedisServer, storage: Storage
) -> None:
    lease = await register(storage)
    await enqueue_one(storage, kind="unknown")
    job = await enqueue_one(storage)
    with used_up(server):
        claimed = await claim_one(storage, lease)
        assert claimed.claim.job_id == job
        assert await finish(storage, claimed, done("{}"))
        with pytest.raises(Unavailable, match="memory"):
            await storage.jobs.enqueue([new_job(), new_job(queue="other")])
    assert (await storage.jobs.counts())[QUEUE].held == 0
    assert "other" not in await storage.jobs.counts()
