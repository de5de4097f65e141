"""A transaction that a caller keeps open delays no verb that is about other jobs.

The caller has made a job a parent, ended one, named one by a foreign key and locked one. Whatever
waited for that transaction would wait until a limit of ours, a tenth of a second at least.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple

import anyio
import asyncpg
import pytest
from msgspec import structs

from forge_jobs.clock import EPOCH
from forge_jobs.errors import Locked
from forge_jobs.model.edits import content_of
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId, new_worker_id
from forge_jobs.model.jobs import After, ClaimedJob, JobStatus
from forge_jobs.model.looks import JobsAsked
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.model.processes import AllocationChange, PodGauges, PodLease, Slots
from forge_jobs.model.progress import NewLine, NewProgress, ProgressNote
from forge_jobs.model.queues import QueueChange, QueueSettings, RateAsk, RateLimit, Retention
from forge_jobs.model.schedules import Firing
from forge_jobs.model.series import Depth, FlowSample, SeriesAsk
from forge_jobs.model.strikes import StrikeRule
from forge_jobs.model.transitions import Delivery, Demand, Finalization, Revival
from forge_jobs.storage.protocols import ConfigStore, CronStore, JobStore, ProcStore, Storage
from forge_jobs.storage.protocols.pod_requests import AskedStore
from forge_jobs.storage.protocols.progress import ProgressStore
from tests.support.callers import drivers_own
from tests.support.factories import (
    KIND,
    LEASE,
    MICROSECOND,
    QUEUE,
    a_pod,
    claim,
    cleaned_up,
    crashed,
    dead,
    done,
    enqueue_one,
    enqueue_patiently,
    error,
    failed,
    held,
    new_job,
    only,
    register,
)
from tests.support.firings import a_spec
from tests.support.requests import ask_and_answer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

_HOUR = timedelta(hours=1)
_HISTOGRAM = Histogram({1: 1})
_SHORT = Retention(done=MICROSECOND, dead=MICROSECOND, cancelled=MICROSECOND)


class World(NamedTuple):
    """The objects of the verbs, none of them in the caller's hands.

    :ivar waiting: pending jobs, and ``finished`` dead ones
    :ivar blocked: a child of a job that has ended without success
    :ivar overdue: jobs past their retention, the second with an edge in the caller's hands
    :ivar theirs: in the caller's hands: a parent, an ended job, a referred one, a locked one
    """

    storage: Storage
    lease: PodLease
    running: list[ClaimedJob]
    waiting: list[JobId]
    finished: list[JobId]
    blocked: JobId
    theirs: list[JobId]
    overdue: tuple[JobId, JobId]

    @property
    def jobs(self) -> JobStore:
        return self.storage.jobs

    @property
    def config(self) -> ConfigStore:
        return self.storage.config

    @property
    def procs(self) -> ProcStore:
        return self.storage.procs

    @property
    def cron(self) -> CronStore:
        return self.storage.cron


Verb = Callable[[World], Awaitable[Any]]


async def _enqueue(world: World) -> None:
    await world.jobs.enqueue([new_job(), new_job(after=(After(world.waiting[0]),))])
    await world.jobs.enqueue([new_job() for _ in range(300)])


async def _exchange(world: World) -> None:
    demand = Demand(worker_ids=(new_worker_id(),), limit=1, kinds=frozenset({KIND}))
    ends = [
        Finalization(one.claim, end)
        for one, end in zip(world.running, (done(), failed(), dead(error=error())), strict=False)
    ]
    answer = await world.jobs.exchange(QUEUE, ends, demand, world.lease)
    assert (answer.settled, len(answer.claimed)) == ((True, True, True), 1)


async def _finalize(world: World) -> None:
    ends = [Finalization(one.claim, failed()) for one in world.running]
    assert all(await world.jobs.finalize(ends))


async def _revive(world: World) -> None:
    revivals = [Revival(one.claim, crashed()) for one in world.running]
    assert all(await world.jobs.revive(revivals, timedelta(0)))


async def _deliver(world: World) -> None:
    await world.jobs.finalize([Finalization(world.running[0].claim, done())])
    news = await world.jobs.handovers(100)
    mine = [each for each in news if each.child_id not in world.theirs]
    assert mine
    assert await world.jobs.deliver([Delivery(each, "settle") for each in mine]) == len(mine)


async def _allocate(world: World) -> None:
    [found] = [each for each in await world.procs.allocations() if each.queue == QUEUE]
    slots = {world.lease.host_id: Slots(1, 1)}
    change = AllocationChange(queue=QUEUE, version=found.version, slots=slots)
    assert await world.procs.allocate([change]) == [True]


async def _register(world: World) -> None:
    lease = await world.procs.register(a_pod(kinds=(KIND, "unknown")), LEASE)
    await world.procs.set_draining(lease)
    await world.procs.end_draining(lease)
    await world.procs.change_queues(lease, a_pod(host_id=lease.host_id, queues=("new",)), LEASE)
    await world.procs.publish_kinds({KIND: "{}"})
    await world.procs.published_kinds()
    await world.procs.unregister(lease)
    await world.procs.register(a_pod(queues=(QUEUE, "new")), timedelta(0))
    assert len(await world.procs.drop_dead_pods(timedelta(0), 100)) == 1


async def _schedules(world: World) -> None:
    await world.cron.ensure_schedule(a_spec(name="s"), EPOCH)
    await world.cron.put_schedule(a_spec(name="s", priority=1), EPOCH)
    await world.cron.pause_schedule("s", True, None)
    await world.cron.pause_schedule("s", False, EPOCH)
    [due] = (await world.cron.due_schedules(10)).schedules
    assert await world.cron.get_schedule("s") == due
    firing = Firing(name="s", version=due.version, jobs=(new_job(),), next_at=None)
    assert await world.cron.fire([firing]) == [True]
    await world.cron.trigger("s", new_job())
    await world.cron.schedules()
    await world.cron.delete_schedule("s")


async def _leader(world: World) -> None:
    standing = await world.cron.lead(world.lease.host_id, LEASE)
    await world.cron.leader()
    await world.cron.look()
    await world.cron.now()
    await world.cron.resign(world.lease.host_id, standing.term)


async def _limits(world: World) -> None:
    await world.config.ensure_rate_limit("r", RateLimit(10, 1))
    await world.config.set_rate_limit("r", RateLimit(20, 1))
    await world.config.take_tokens("r", 1)
    await world.config.drain_tokens("r")
    await world.config.take_turns("r", [1], _HOUR)
    await world.config.take_or_turn([RateAsk("r"), RateAsk("r", "key")], _HOUR)
    await world.config.ensure_limits(QUEUE, {"hosts": 2})
    await world.config.set_limit(QUEUE, "hosts", 1)
    assert [await world.config.limits(), await world.config.rate_limits()]
    assert await world.config.limit_keys(QUEUE, "hosts") == []
    await world.config.limit_holders(QUEUE, "hosts", "")
    await world.config.delete_limit(QUEUE, "hosts")
    await world.config.delete_rate_limit("r")
    await world.config.put_strike("s", StrikeRule(kind=KIND), "ada")
    await world.config.lift_strike((await world.config.strikes())[0].name)


async def _queues(world: World) -> None:
    for name in (QUEUE, "another"):
        await world.config.ensure_queue(name, QueueSettings(max_workers=3))
        await world.config.set_queue(name, QueueChange(max_workers=4))
        await world.config.set_paused(name, True)
        await world.config.set_paused(name, False)
        await world.config.clear_cooldown(name)
    await world.config.queues()
    await world.config.settings_of_code()
    await world.config.delete_queue("another")


async def _history(world: World) -> None:
    now = await world.cron.now()
    minute = now.replace(second=0, microsecond=0)
    await world.jobs.append_events([TimelineEvent(at=now, kind=EventKind.STARTED, queue=QUEUE)])
    await world.jobs.events(queue=QUEUE)
    sample = LatencySample(queue=QUEUE, minute=minute, processing=_HISTOGRAM, total=_HISTOGRAM)
    await world.jobs.add_latencies(world.lease.host_id, [sample])
    await world.jobs.metrics(QUEUE, minute, now)
    await world.jobs.summaries([QUEUE], minute, now)
    failed = FailureSample(
        queue=QUEUE,
        group="abc",
        kind="tests.kind",
        type="ValueError",
        message="…",
        minute=minute,
        first_at=now,
        last_at=now,
        retried=1,
    )
    flow = FlowSample(
        queue=QUEUE,
        kind="tests.kind",
        minute=minute,
        counts={"succeeded": 1},
        delay=_HISTOGRAM,
        processing=_HISTOGRAM,
        total=_HISTOGRAM,
    )
    assert await world.jobs.add_flows([flow]) == []
    await world.jobs.record_depths({QUEUE: Depth(due=1)})
    until = minute + _HOUR
    assert await world.jobs.series(minute, until, queue=QUEUE, kind="tests.kind")
    assert await world.jobs.many_series([SeriesAsk(since=minute, until=until, queue=QUEUE)])
    assert await world.jobs.add_failures([failed]) == []
    assert (await world.jobs.error_groups(minute, now)).groups
    assert await world.jobs.error_group(QUEUE, "abc", minute, now)
    await world.jobs.roll_up(1000)
    await world.procs.record_gauges(world.lease, minute, PodGauges())
    await world.procs.gauges(minute, now)


async def _told(world: World) -> None:
    line = NewLine(seq=1, at=EPOCH, level=20, text="a line")
    notes = [
        ProgressNote(claim=one.claim, attempt=1, progress=NewProgress(1), lines=(line,))
        for one in world.running
    ]
    assert all(await world.jobs.note_progress(notes))
    jobs = [one.claim.job_id for one in world.running]
    assert await world.jobs.save_checkpoint(world.running[-1].claim, "1")
    assert await world.jobs.checkpoint(jobs[-1]) == "1"
    assert {*await world.jobs.states([*jobs, *world.theirs])} == {*jobs, *world.theirs}
    assert (await world.jobs.job_log(jobs[0])).lines
    world.jobs.announce_changes(frozenset({QUEUE}))
    await world.jobs.wait_for_changes(frozenset({QUEUE}), timedelta(0), world.storage)


async def _release(world: World) -> None:
    assert all(await world.jobs.release([one.claim for one in world.running]))


async def _heartbeat(world: World) -> None:
    beat = await world.jobs.heartbeat(world.lease, [held(one) for one in world.running], LEASE)
    assert beat.lease_held


async def _cancel(world: World) -> None:
    assert not (await world.jobs.cancel(only(*world.waiting, world.blocked))).refused


async def _edit(world: World) -> None:
    jobs = await world.jobs.get([*world.waiting, world.blocked, *world.theirs])
    for job in jobs.values():
        content = content_of(job)
        after = structs.replace(content, priority=1)
        if job.status is JobStatus.IN_PROGRESS:
            continue
        try:
            await world.jobs.edit(job.id, token=job.token, before=content, after=after)
        except Locked:
            assert job.id in world.theirs


async def _delete(world: World) -> None:
    outcome = await world.jobs.delete(only(*world.finished, world.blocked, *world.waiting))
    assert not outcome.refused


async def _requeue(world: World) -> None:
    assert not (await world.jobs.requeue(only(*world.finished))).refused


async def _restore(world: World) -> None:
    await _cancel(world)
    assert not (await world.jobs.restore(only(*world.waiting, world.blocked))).refused


async def _cleanup(world: World) -> None:
    assert await cleaned_up(world.storage) == 1
    assert {*await world.jobs.get(world.overdue)} == {world.overdue[1]}


async def _reads(world: World) -> None:
    everything, every = JobFilter(queues=(QUEUE,)), ("default", "other", QUEUE)
    asked = JobsAsked(blocked=every, crashed=every, held=every, starved=every, runs=True)
    await world.jobs.look(asked)
    await world.jobs.list(everything)
    await world.jobs.list(everything, order="due")
    await world.jobs.list(everything, order="finished")
    await world.jobs.count(everything)
    await world.jobs.get([*world.waiting, *world.theirs])
    await world.jobs.parents([*world.waiting, *world.theirs])
    await world.jobs.kin([*world.waiting, *world.theirs])
    await world.jobs.counts()
    for job_id in (*world.waiting, *world.theirs):
        await world.jobs.place(QUEUE, job_id)
    await world.jobs.handovers(10)
    await world.jobs.stale_claims(timedelta(0), 100)
    await world.procs.pods()
    await world.procs.routes()
    await world.procs.workers()
    await world.procs.live_pods()
    await world.procs.due_kinds([QUEUE])
    with suppress(TimeoutError):
        await world.jobs.wait_for_work(frozenset({QUEUE}), timedelta(0))


VERBS: Mapping[str, Verb] = {
    "enqueue": _enqueue,
    "claim": lambda world: claim(world.storage, world.lease),
    "finalize": _finalize,
    "exchange": _exchange,
    "record_start": lambda world: world.jobs.record_start([one.claim for one in world.running]),
    "heartbeat": _heartbeat,
    "release": _release,
    "revive": _revive,
    "cancel": _cancel,
    "delete": _delete,
    "edit": _edit,
    "await_also": lambda world: world.jobs.await_also(world.blocked, [After(world.waiting[0])]),
    "requeue": _requeue,
    "restore": _restore,
    "release_held": lambda world: world.jobs.release_held(only(world.blocked)),
    "run_now": lambda world: world.jobs.run_now(only(*world.waiting)),
    "bring_back_jobs": lambda world: world.jobs.bring_back_jobs(100),
    "expire": lambda world: world.jobs.expire(100),
    "release struck": lambda world: world.jobs.release_struck([], 100),
    "deliver": _deliver,
    "cleanup": _cleanup,
    "sweep": lambda world: world.jobs.sweep(100),
    "reads": _reads,
    "history": _history,
    "progress": _told,
    "queues": _queues,
    "rate limits": _limits,
    "register": _register,
    "requests to pods": ask_and_answer,
    "free_held_jobs": lambda world: world.procs.free_held_jobs(100),
    "bring_back_leases": lambda world: world.procs.bring_back_leases(),
    "allocate": _allocate,
    "lower_grants": lambda world: world.procs.lower_grants(world.lease, {QUEUE: 0}),
    "leader": _leader,
    "schedules": _schedules,
}


@pytest.fixture
async def world(storage: Storage, url: str) -> AsyncGenerator[World]:
    """Jobs of each status, and as many that the caller will take in hand."""
    await storage.config.ensure_queue(QUEUE, QueueSettings(retention=_SHORT))
    lease = await register(storage, lease_for=_HOUR)
    for _ in range(4):
        await enqueue_one(storage)
    running = await claim(storage, lease, limit=4)
    theirs_ended = running.pop()
    await enqueue_one(storage, after=(After(theirs_ended.claim.job_id),))
    await enqueue_one(storage, after=(After(running[0].claim.job_id),))
    finished = [await enqueue_one(storage) for _ in range(3)]
    blocked = await enqueue_one(storage, after=(After(finished[0], "hold"),))
    ended = await claim(storage, lease, limit=3)
    await storage.jobs.finalize([Finalization(one.claim, dead()) for one in ended])
    # Old enough to go, but for the last job: the caller's end holds an edge of that job.
    old = await enqueue_one(storage)
    kept = await enqueue_one(storage, after=(After(theirs_ended.claim.job_id),))
    await storage.jobs.cancel(only(old, kept))
    waiting = [await enqueue_one(storage) for _ in range(3)]
    parent, referred, locked = [await enqueue_one(storage) for _ in range(3)]
    async with drivers_own(url) as (connection, end):
        await connection.execute("CREATE TABLE theirs (job TEXT REFERENCES forge_jobs (id))")
        await connection.execute(
            "UPDATE forge_jobs SET finished_at = finished_at - 120000000 WHERE status = 'cancelled'"
        )
        await end(True)
    async with drivers_own(url) as (connection, end):
        await storage.jobs.enqueue([new_job(after=(After(parent),))], connection=connection)
        assert await storage.jobs.finalize(
            [Finalization(theirs_ended.claim, done())], connection=connection
        ) == [True]
        await connection.execute("INSERT INTO theirs VALUES ($1)", referred)
        await connection.execute("SELECT 1 FROM forge_jobs WHERE id = $1 FOR UPDATE", locked)
        theirs = [parent, theirs_ended.claim.job_id, referred, locked]
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        async with who_waits_for(url, pid) as waiters:
            overdue = (old, kept)
            yield World(storage, lease, running, waiting, finished, blocked, theirs, overdue)
        assert waiters == set()
        await end(False)


@asynccontextmanager
async def who_waits_for(url: str, pid: int) -> AsyncGenerator[set[str]]:
    """The statements that have waited for a transaction of that process."""
    asker = await asyncpg.connect(url)
    waiters: set[str] = set()

    async def look() -> None:
        rows = await asker.fetch(
            "SELECT query FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))", pid
        )
        waiters.update(row["query"] for row in rows)

    async def go_on_looking() -> None:
        while True:
            await look()
            await anyio.sleep(0.002)

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(go_on_looking)
            yield waiters
            group.cancel_scope.cancel()
    finally:
        await asker.close()


@pytest.mark.parametrize("verb", sorted(VERBS))
async def test_no_verb_waits_for_what_is_in_others_hands(world: World, verb: str) -> None:
    await VERBS[verb](world)


def test_every_verb_is_among_them() -> None:
    named = set(VERBS)
    called = {name for verb in VERBS.values() for name in verb.__code__.co_names}
    for protocol in (JobStore, ProgressStore, ConfigStore, ProcStore, AskedStore, CronStore):
        verbs = {name for name in vars(protocol) if not name.startswith("_")}
        # A step of a caller's transaction waits for another one of the same step, as promised.
        assert verbs - {"store_id", "wake", "first_time"} <= named | called, protocol


@pytest.mark.parametrize("verb", ["cancel", "delete", "requeue", "restore", "run_now"])
async def test_a_bulk_verb_names_what_is_in_the_callers_hands(world: World, verb: str) -> None:
    outcome = await getattr(world.jobs, verb)(only(*world.theirs))
    locked = {job_id for job_id, why in outcome.refused.items() if why is Refusal.LOCKED}
    assert locked >= {world.theirs[1], world.theirs[3]}


async def test_a_delete_leaves_what_a_foreign_key_holds_and_names_it(
    storage: Storage, url: str
) -> None:
    ids = [await enqueue_one(storage) for _ in range(20)]
    async with drivers_own(url) as (connection, end):
        await connection.execute("CREATE TABLE theirs (job TEXT REFERENCES forge_jobs (id))")
        await connection.execute("INSERT INTO theirs VALUES ($1)", ids[7])
        await end(True)
    outcome = await storage.jobs.delete(only(*ids))
    assert outcome.refused == {ids[7]: Refusal.REFERENCED}
    assert {*outcome.changed} == {*ids} - {ids[7]}
    assert (await storage.jobs.counts())[QUEUE].by_status[JobStatus.PENDING] == 1


_NAMING: Mapping[str, Callable[[Storage], Coroutine[Any, Any, object]]] = {
    "declared": lambda storage: storage.config.ensure_queue("fresh", QueueSettings()),
    "served": lambda storage: register(storage, queues=("fresh",)),
    "enqueued": lambda storage: enqueue_patiently(storage, [new_job(queue="fresh")]),
}


@pytest.mark.parametrize("named", sorted(_NAMING))
async def test_who_names_a_queue_that_the_caller_has_just_made_waits_for_the_caller(
    storage: Storage, url: str, named: str
) -> None:
    async with drivers_own(url) as (connection, end):
        await storage.jobs.enqueue([new_job(queue="fresh")], connection=connection)
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        async with who_waits_for(url, pid) as waiters, anyio.create_task_group() as group:
            group.start_soon(_NAMING[named], storage)
            await wait_until(lambda: waiters, description="it waits", timeout=30)
            await end(True)
    assert (await storage.jobs.counts())["fresh"].by_status[JobStatus.PENDING] >= 1
