"""A loss of power at any moment: acknowledged writes are there, and unsynced writes are gone.

Each scenario runs in other processes, whose disk keeps a file as of the last sync.
"""

import random
import sqlite3
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.ids import JobId, new_host_id, new_worker_id
from forge_jobs.model.jobs import After, ClaimedJob, Job, JobStatus, Unique
from forge_jobs.model.processes import AllocationChange, PodLease, Slots
from forge_jobs.model.queues import QueueChange, QueueSettings, RateLimit
from forge_jobs.model.transitions import Demand, Exchange, Finalization
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.sqlite.database import SqliteDatabase
from tests.support.factories import (
    KIND,
    LEASE,
    QUEUE,
    claim_one,
    crashed,
    dead,
    done,
    enqueue_one,
    failed,
    finish,
    get_job,
    held,
    new_job,
    only,
    register,
    revive,
)
from tests.support.firings import a_spec
from tests.support.power_cuts import Machine, Scenario, at_work, build, play

DAY = timedelta(days=1)
CUTS = 12
TOKENS = 10_000
AGES = timedelta(seconds=1_000 * TOKENS)

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library between the processes and the disk."""
    return build(tmp_path_factory.mktemp("power"))


def opened(machine: Machine) -> AbstractAsyncContextManager[Storage]:
    """The store of a machine."""
    return _opened(machine.url)


def left(machine: Machine) -> AbstractAsyncContextManager[Storage]:
    """Open the store as a loss of power at this moment would leave it."""
    return _opened(machine.after_a_power_cut())


@asynccontextmanager
async def _opened(url: str) -> AsyncGenerator[Storage]:
    async with await open_storage(url) as storage:
        yield storage


async def job_left(machine: Machine, job_id: JobId) -> Job:
    """A job after a loss of power at this moment."""
    async with left(machine) as storage:
        return await get_job(storage, job_id)


async def exchange(
    storage: Storage, lease: PodLease, limit: int, ended: Sequence[ClaimedJob] = ()
) -> Exchange:
    """Ends and claims in one call."""
    workers = tuple(new_worker_id() for _ in range(limit))
    demand = Demand(worker_ids=workers, limit=limit, kinds=frozenset({KIND}))
    ends = [Finalization(job.claim, done()) for job in ended]
    return await storage.jobs.exchange(QUEUE, ends, demand, lease)


async def register_alone(storage: Storage) -> PodLease:
    """The only pod of a queue that may have ten workers."""
    lease = await register(storage)
    await storage.config.set_queue(QUEUE, QueueChange(max_workers=10))
    return lease


async def allocate(storage: Storage, lease: PodLease, grant: int) -> None:
    """Give slots to the pod, which is alone."""
    [allocation] = await storage.procs.allocations()
    slots = {lease.host_id: Slots(grant, grant)}
    wish = AllocationChange(queue=QUEUE, version=allocation.version, slots=slots)
    assert await storage.procs.allocate([wish]) == [True]


async def granted(storage: Storage) -> int:
    """The slots of the only pod."""
    [allocation] = await storage.procs.allocations()
    [slots] = allocation.pods.values()
    return slots.grant


# -- what is kept --------------------------------------------------------------------------------


async def keeps_what_was_acknowledged(machine: Machine) -> None:
    async with opened(machine) as storage:
        lease = await register(storage)
        await storage.config.ensure_rate_limit("gh", RateLimit(capacity=10, per=DAY))

        parent = await enqueue_one(storage)
        assert (await job_left(machine, parent)).status is JobStatus.PENDING
        many = await storage.jobs.enqueue([new_job() for _ in range(100)])
        assert (await job_left(machine, many[-1].job_id)).status is JobStatus.PENDING
        child = await enqueue_one(storage, unique=Unique("k"), after=(After(parent),))
        assert (await job_left(machine, child)).status is JobStatus.BLOCKED

        first = await claim_one(storage, lease)
        assert await finish(storage, first, done('"kept"'))
        kept = await job_left(machine, parent)
        assert (kept.status, kept.result) == (JobStatus.DONE, '"kept"')

        # One commit of an end and of a claim.
        [second] = (await exchange(storage, lease, 1)).claimed
        [third] = (await exchange(storage, lease, 1, [second])).claimed
        assert (await job_left(machine, second.claim.job_id)).status is JobStatus.DONE
        assert (await job_left(machine, third.claim.job_id)).status is JobStatus.IN_PROGRESS

        fourth, fifth = [await claim_one(storage, lease) for _ in range(2)]
        assert await storage.jobs.record_start([fourth.claim]) == [True]
        assert (await job_left(machine, fourth.claim.job_id)).started_at is not None
        assert (await job_left(machine, fifth.claim.job_id)).started_at is None
        running = [held(job, "worker") for job in (fourth, fifth)]
        await storage.jobs.heartbeat(lease, running, LEASE)
        assert (await job_left(machine, fifth.claim.job_id)).started_at is not None

        assert (await storage.config.take_tokens("gh", 3)).granted
        async with left(machine) as after:
            [limit] = await after.config.rate_limits()
            assert limit.available == 7


async def every_other_commit_is_synced(machine: Machine) -> None:
    """Expect that each commit after an unsynced one is synced, once."""
    async with opened(machine) as storage:
        jobs, procs, config, cron = storage.jobs, storage.procs, storage.config, storage.cron
        lease = await register(storage)
        await config.ensure_rate_limit("gh", RateLimit(capacity=10, per=DAY))
        await jobs.enqueue([new_job() for _ in range(20)])
        claims = [await claim_one(storage, lease) for _ in range(8)]
        ends = [Finalization(claims[0].claim, failed(DAY)), Finalization(claims[1].claim, dead())]
        now = await cron.now()
        event = TimelineEvent(at=now, kind=EventKind.STARTED)
        waiting = await enqueue_one(storage, delay=DAY)
        unwanted = await enqueue_one(storage, delay=DAY)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "enqueue": lambda: jobs.enqueue([new_job()]),
            "enqueue with a key": lambda: jobs.enqueue([new_job(unique=Unique("k"))]),
            "finalize": lambda: jobs.finalize(ends),
            "exchange with an end": lambda: exchange(storage, lease, 1, [claims[2]]),
            "release": lambda: jobs.release([claims[3].claim]),
            "record_start": lambda: jobs.record_start([claims[4].claim]),
            "first beat of a run": lambda: jobs.heartbeat(lease, [held(claims[5], "w")], LEASE),
            "revive": lambda: revive(storage, claims[6], crashed(), timedelta(0)),
            "cancel": lambda: jobs.cancel(only(unwanted)),
            "requeue": lambda: jobs.requeue(only(unwanted)),
            "run_now": lambda: jobs.run_now(only(waiting)),
            "delete": lambda: jobs.delete(only(unwanted)),
            "events": lambda: jobs.append_events([event]),
            "tokens": lambda: config.take_tokens("gh", 1),
            "turns": lambda: config.take_turns("gh", [10], DAY),
            "limit": lambda: config.set_rate_limit("gh", RateLimit(capacity=20, per=DAY)),
            "drained limit": lambda: config.drain_tokens("gh"),
            "queue": lambda: config.ensure_queue("q", QueueSettings()),
            "edited queue": lambda: config.set_queue("q", QueueChange(max_workers=3)),
            "paused queue": lambda: config.set_paused("q", True),
            "leader": lambda: cron.lead(lease.host_id, LEASE),
            "schedule": lambda: cron.ensure_schedule(a_spec(), now + DAY),
            "trigger": lambda: cron.trigger(a_spec().name, new_job(schedule=a_spec().name)),
            "pod that drains": lambda: procs.set_draining(lease),
            "pod": lambda: register(storage, host_id=new_host_id()),
            "pod that leaves": lambda: procs.unregister(lease),
        }
        synced = {}
        for name, call in calls.items():
            await storage.jobs.heartbeat(lease, [], LEASE)
            before = machine.log_syncs()
            await call()
            synced[name] = machine.log_syncs() - before
        assert set(synced.values()) == {1}, synced


# -- what is lost --------------------------------------------------------------------------------


async def claims_beats_and_grants_are_not_synced(machine: Machine) -> None:
    async with opened(machine) as storage:
        lease = await register_alone(storage)
        await storage.jobs.enqueue([new_job() for _ in range(10)])
        running = await claim_one(storage, lease)
        beat = [held(running, "w")]
        await storage.jobs.heartbeat(lease, beat, LEASE)
        before = machine.syncs()
        await claim_one(storage, lease)
        await exchange(storage, lease, 3)
        await exchange(storage, lease, 100)
        await storage.jobs.heartbeat(lease, beat, LEASE)
        await storage.jobs.heartbeat(lease, [], LEASE)
        await allocate(storage, lease, 5)
        await storage.procs.lower_grants(lease, {QUEUE: 2})
        assert machine.syncs() == before
        assert await granted(storage) == 2
        async with left(machine) as after:
            assert await granted(after) == 0


async def a_lost_claim_is_as_if_it_had_not_been(machine: Machine) -> None:
    """The run is not counted, and the number of the claim is not used again."""
    async with opened(machine) as storage:
        lease = await register(storage)
        job_id = await enqueue_one(storage)
        lost = await claim_one(storage, lease)
        assert lost.attempt == 1
        async with left(machine) as after:
            job = await get_job(after, job_id)
            assert (job.status, job.attempt, job.crashes) == (JobStatus.PENDING, 0, 0)
            again = await claim_one(after, await register(after))
            assert again.attempt == 1
            assert again.claim.token > lost.claim.token
            # If the process came back, it could do no harm.
            assert not await finish(after, lost, done("lost"))
            assert await finish(after, again, done())


async def the_next_synced_commit_carries_it(machine: Machine) -> None:
    """A commit of any kind, on any connection."""
    async with opened(machine) as storage, opened(machine) as other:
        lease = await register(storage)
        await storage.jobs.enqueue([new_job() for _ in range(2)])
        first = await claim_one(storage, lease)
        assert (await job_left(machine, first.claim.job_id)).status is JobStatus.PENDING
        await other.config.ensure_queue("other", QueueSettings())
        kept = await job_left(machine, first.claim.job_id)
        assert (kept.status, kept.token) == (JobStatus.IN_PROGRESS, first.claim.token)


async def a_removal_is_synced_once_the_lock_is_free(machine: Machine) -> None:
    """A removal that is lost before that is made again."""
    async with opened(machine) as storage:
        job_id, *_ = old = [await enqueue_one(storage) for _ in range(3)]
        assert len((await storage.jobs.cancel(only(*old))).changed) == 3
        with closing(sqlite3.connect(machine.path, isolation_level=None)) as raw:
            raw.execute("UPDATE forge_jobs SET finished_at = 1")
        # A commit that is synced, so that what follows stands alone.
        kept = await enqueue_one(storage)
        settle, begun, seen = SqliteDatabase.settle, machine.log_syncs(), list[str]()

        def settles(database: SqliteDatabase) -> None:
            assert machine.log_syncs() == begun
            with closing(sqlite3.connect(machine.path, timeout=0, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                other.execute("ROLLBACK")
            seen.append(machine.after_a_power_cut())
            settle(database)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqliteDatabase, "settle", settles)
            assert (await storage.jobs.cleanup(100)).removed == 3
        assert machine.log_syncs() == begun + len(seen)
        async with _opened(seen[0]) as before_it:
            assert len(await before_it.jobs.get(old)) == 3
            assert (await before_it.jobs.cleanup(100)).removed == 3
        async with left(machine) as after:
            assert (await after.jobs.get([*old, kept])).keys() == {kept}
        # A request for the id of a removed job is a new one, and both stay or neither.
        await storage.jobs.enqueue([new_job(id=job_id)])
        async with left(machine) as after:
            assert (await get_job(after, job_id)).status is JobStatus.PENDING


async def a_checkpoint_syncs_what_it_moves(machine: Machine) -> None:
    async with opened(machine) as storage:
        lease = await register_alone(storage)
        await storage.jobs.enqueue([new_job() for _ in range(1_000)])
        ahead = [held(job) for job in (await exchange(storage, lease, 1_000)).claimed]
        await allocate(storage, lease, 1)
        begun = machine.syncs()
        size = 0
        while (grown := machine.log_bytes()) > size:
            size = grown
            await storage.jobs.heartbeat(lease, ahead, LEASE)
        # A checkpoint has emptied the log, and the last beat has begun the log anew.
        assert (machine.syncs() - begun).keys() == {"jobs.db", "jobs.db-wal"}
        await allocate(storage, lease, 2)
        async with left(machine) as after:
            assert await granted(after) == 1
        await enqueue_one(storage)
        async with left(machine) as after:
            assert await granted(after) == 2


def _long(scenario: Scenario) -> Any:
    return pytest.param(scenario, marks=pytest.mark.long)


@pytest.mark.parametrize(
    "scenario",
    [
        keeps_what_was_acknowledged,
        _long(every_other_commit_is_synced),
        claims_beats_and_grants_are_not_synced,
        _long(a_lost_claim_is_as_if_it_had_not_been),
        _long(the_next_synced_commit_carries_it),
        _long(a_removal_is_synced_once_the_lock_is_free),
        _long(a_checkpoint_syncs_what_it_moves),
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_power_is_lost(scenario: Scenario, library: Path, tmp_path: Path) -> None:
    play(scenario, tmp_path, library)


# -- under load ----------------------------------------------------------------------------------


async def churns(machine: Machine) -> None:
    """Note each acknowledged call, until the power is lost."""
    async with opened(machine) as storage:
        lease = await register(storage)
        chance = random.Random()
        ended: list[ClaimedJob] = []
        while True:
            outcomes = await storage.jobs.enqueue(
                [new_job() for _ in range(chance.randrange(1, 4))]
            )
            machine.tell(*(f"enqueued {each.job_id}" for each in outcomes))
            swapped = await exchange(storage, lease, 2, ended)
            machine.tell(*(f"ended {each.claim.job_id}" for each in ended))
            machine.tell(*(f"claimed {j.claim.job_id} {j.claim.token}" for j in swapped.claimed))
            ended = list(swapped.claimed)
            await storage.jobs.heartbeat(lease, [held(job) for job in ended], LEASE)
            if chance.random() < 0.5:
                # A separate call, so that the claims before were not carried by ends.
                [again] = (await exchange(storage, lease, 1)).claimed or [None]
                if again is not None:
                    machine.tell(f"claimed {again.claim.job_id} {again.claim.token}")
                    await storage.jobs.record_start([again.claim])
                    machine.tell(f"started {again.claim.job_id} {again.claim.token}")
                    ended.append(again)
            if (await storage.config.take_tokens("gh", 1)).granted:
                machine.tell("took gh")


async def outlives_its_cuts(machine: Machine) -> None:
    """Three processes at work, and the store after a cut at any moment."""
    async with opened(machine) as storage:
        await storage.config.ensure_rate_limit("gh", RateLimit(capacity=TOKENS, per=AGES))
    lost_claims = 0
    chance = random.Random(1)
    with at_work(machine, churns, 3):
        for _ in range(CUTS):
            told = await machine.more_lines(chance.randrange(1, 4_000))
            url = machine.after_a_power_cut()
            lost_claims += await check(url, told)
    assert lost_claims, "a test of losses needs some"


async def check(url: str, told: Sequence[str]) -> int:
    """Compare the store with the noted calls, and return how many claims were lost."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        rows = connection.execute("SELECT id, status, token, started_at FROM forge_jobs")
        stored = {job_id: rest for job_id, *rest in rows}
    of: defaultdict[str, list[list[str]]] = defaultdict(list)
    for line in told:
        what, *about = line.split()
        of[what].append(about)
    for [job_id] in of["enqueued"]:
        assert job_id in stored, f"{job_id} was acknowledged"
    for [job_id] in of["ended"]:
        assert stored[job_id][0] == JobStatus.DONE, f"the end of {job_id} was accepted"
    for job_id, token in of["started"]:
        status, kept, started_at = stored[job_id]
        assert kept == int(token), f"the claim of the start of {job_id} is gone"
        assert status == JobStatus.DONE or started_at, f"the start of {job_id} was recorded"
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for job_id, token in of["claimed"]:
        numbers[job_id].append(int(token))
    async with _opened(url) as storage:
        [limit] = await storage.config.rate_limits()
        assert limit.available <= TOKENS - len(of["took"])
        lease = await register(storage)
        claimed = (await exchange(storage, lease, 1_000)).claimed
        for job in claimed:
            assert all(job.claim.token > number for number in numbers[job.claim.job_id])
    return sum(job.claim.job_id in numbers for job in claimed)


@pytest.mark.long
def test_power_is_lost_under_load(library: Path, tmp_path: Path) -> None:
    play(outlives_its_cuts, tmp_path, library)
