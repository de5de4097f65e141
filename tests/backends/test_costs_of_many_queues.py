"""Few calls of the database write what pods have for each of their queues, however many, and jobs
of one request.

While one pod writes its counts, others wait for the record of the whole store. While the leader
grants slots, no pod of these queues comes or goes.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio.connection import Connection
from sqlalchemy import Engine, event

from forge_jobs.clock import ManualClock
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.jobs import After, Hold, Line, Unique
from forge_jobs.model.metrics import HOUR, MINUTE, Histogram, LatencySample
from forge_jobs.model.processes import AllocationChange, Slots
from forge_jobs.model.retention import Kept
from forge_jobs.model.series import Depth, FlowSample
from forge_jobs.model.unique.keys import UniqueMode
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.driver import connections
from tests.support.backends import forget, url_of
from tests.support.factories import KIND, LEASE, claim, cleaned_up, held, new_job, register

pytestmark = pytest.mark.anyio

QUEUES = [f"tenant-{number:03}" for number in range(200)]
ONE_RUN = Histogram({1: 1})
MOST = 40


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Storage]:
    async with await open_storage(await url_of(request.param, tmp_path), clock=clock) as opened:
        await opened.jobs.enqueue([new_job(queue=name) for name in QUEUES])
        yield opened
    await forget(request.param, tmp_path)


@contextmanager
def calls() -> Iterator[list[str]]:
    """The calls of the database, each with however many rows or commands."""
    made: list[str] = []
    converse = connections.converse

    def note(_c: object, _k: object, text: str, *_: Any) -> None:
        made.append(text)

    async def noted(connection: Connection, commands: Sequence[connections.Command]) -> list[Any]:
        made.append(str(commands[0][0]))
        return await converse(connection, commands)

    event.listen(Engine, "before_cursor_execute", note)
    connections.converse = noted
    try:
        yield made
    finally:
        connections.converse = converse
        event.remove(Engine, "before_cursor_execute", note)


async def test_flows_of_many_queues_are_written_in_few_calls(
    store: Storage, clock: ManualClock
) -> None:
    minute = clock.now().replace(second=0, microsecond=0)
    flows = [
        FlowSample(
            queue=name,
            kind=KIND,
            minute=minute,
            counts={"succeeded": 1},
            delay=ONE_RUN,
            processing=ONE_RUN,
            total=ONE_RUN,
        )
        for name in QUEUES
    ]
    for times in (1, 2):
        with calls() as made:
            assert not await store.jobs.add_flows(flows)
        assert 0 < len(made) < MOST, made
        [step] = await store.jobs.series(minute, minute + MINUTE, queue=QUEUES[-1])
        assert step.total == Histogram({1: times})
        assert {each.counts["succeeded"] for each in await store.jobs.flow_totals()} == {times}


async def test_failures_of_many_queues_are_written_in_few_calls(
    store: Storage, clock: ManualClock
) -> None:
    failures = [
        FailureSample(
            queue=name,
            kind=KIND,
            minute=clock.now().replace(second=0, microsecond=0),
            group=f"{number:016x}",
            type="OSError",
            message="the host is away",
            retried=1,
            first_at=clock.now(),
            last_at=clock.now(),
        )
        for number, name in enumerate(QUEUES)
    ]
    for times in (1, 2):
        with calls() as made:
            assert not await store.jobs.add_failures(failures)
        assert 0 < len(made) < MOST, made
        until = clock.now() + MINUTE
        found = await store.jobs.error_groups(until - HOUR, until, limit=len(QUEUES))
        assert len(found.groups) == len(QUEUES)
        assert {each.retried for each in found.groups} == {times}


@pytest.mark.parametrize("how", ["after", "sequence", "cooldown"])
async def test_jobs_that_wait_for_others_are_stored_in_few_calls(store: Storage, how: str) -> None:
    parents = [each.job_id for each in await store.jobs.enqueue([new_job() for _ in QUEUES])]
    ways: dict[str, list[dict[str, Any]]] = {
        "after": [{"after": (After(parent),)} for parent in parents],
        "sequence": [{"sequence": Line("one after the other")} for _ in parents],
        "cooldown": [{"unique": Unique(parent, mode="cooldown", window=60)} for parent in parents],
    }
    with calls() as made:
        await store.jobs.enqueue([new_job(**fields) for fields in ways[how]])
    assert 0 < len(made) < MOST, made


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_jobs_of_full_keys_in_many_queues_are_stored_in_few_calls(store: Storage) -> None:
    """Of a file each call is cheap. A server may be far away."""
    for name in QUEUES[1:]:
        # Jobs of a key that takes turns begin on hold.
        await store.config.ensure_limits(name, {"of each": 1}, {"of each": 1})
    requests = [new_job(queue=name, limit_name="of each", limit_key="c") for name in QUEUES]
    with calls() as made:
        await store.jobs.enqueue(requests)
    assert 0 < len(made) < MOST, made
    jobs = await store.jobs.get([each.id for each in requests])
    held = [jobs[each.id].hold for each in requests]
    assert held == [None, *[Hold.LIMIT] * len(QUEUES[1:])]


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
@pytest.mark.parametrize("mode", ["keep", "replace", "cooldown"])
async def test_jobs_of_unique_keys_in_many_queues_are_stored_in_few_calls(
    store: Storage, mode: UniqueMode
) -> None:
    unique = Unique("customer", mode=mode, window=60 if mode == "cooldown" else None)
    first = [new_job(queue=name, unique=unique) for name in QUEUES]
    again = [new_job(queue=name, unique=unique) for name in QUEUES]
    for requests in (first, again):
        with calls() as made:
            outcomes = await store.jobs.enqueue(requests)
        assert 0 < len(made) < MOST, made
        assert [each.job_id for each in outcomes] == [each.id for each in first]
    assert {each.deduplicated or each.replaced for each in outcomes} == {True}


async def test_slots_of_many_queues_are_granted_and_lowered_in_few_calls(store: Storage) -> None:
    lease = await register(store, queues=tuple(QUEUES))
    one = {lease.host_id: Slots(target=1, grant=1)}
    changes = [
        AllocationChange(queue=each.queue, version=each.version, slots=one)
        for each in await store.procs.allocations()
    ]
    with calls() as made:
        assert await store.procs.allocate(changes) == [True] * len(QUEUES)
        await store.procs.lower_grants(lease, dict.fromkeys(QUEUES, 0))
    assert 0 < len(made) < MOST, made
    grants = {
        slots.grant for each in await store.procs.allocations() for slots in each.pods.values()
    }
    assert grants == {0}


async def test_depths_of_many_queues_are_written_in_few_calls(
    store: Storage, clock: ManualClock
) -> None:
    with calls() as made:
        await store.jobs.record_depths(
            {name: Depth(due=1, running=0, granted=0, max_workers=1) for name in QUEUES}
        )
    assert 0 < len(made) < MOST, made
    minute = clock.now().replace(second=0, microsecond=0)
    [step] = await store.jobs.series(minute, minute + MINUTE, queue=QUEUES[-1])
    assert step.depth is not None


async def test_durations_of_many_queues_are_written_rolled_up_and_folded_in_few_calls(
    store: Storage, clock: ManualClock
) -> None:
    lease = await register(store, lease_for=timedelta(days=60))
    minute = clock.now().replace(second=0, microsecond=0)
    taken = [
        LatencySample(queue=name, minute=minute, processing=ONE_RUN, total=ONE_RUN)
        for name in QUEUES
    ]
    for _ in range(2):
        with calls() as made:
            await store.jobs.add_latencies(lease.host_id, taken)
        assert 0 < len(made) < MOST, made
    clock.advance(timedelta(minutes=5))
    with calls() as made:
        while await store.jobs.roll_up(1_000):
            pass
    assert 0 < len(made) < 3 * MOST, made
    clock.advance(timedelta(days=2))
    with calls() as made:
        await cleaned_up(store, kept=Kept(minutes=timedelta(days=1)))
    [hour] = await store.jobs.metrics(QUEUES[-1], minute - HOUR, clock.now())
    assert hour.processing == Histogram({1: 2})
    assert 0 < len(made) < 3 * MOST, made


async def test_a_beat_reads_the_queues_before_it_locks_jobs(store: Storage) -> None:
    """No end of a job waits while the pod's queues are read."""
    lease = await register(store, queues=QUEUES)
    [job] = await claim(store, lease, queue=QUEUES[0])
    with calls() as made:
        beat = await store.jobs.heartbeat(lease, [held(job)], lease_for=LEASE)
    assert len(beat.queues) == len(QUEUES)
    [reads] = [index for index, text in enumerate(made) if "levels_of_one" in text]
    [locks] = [index for index, text in enumerate(made) if "heartbeat_at" in text]
    assert reads < locks


@pytest.mark.parametrize("store", ["postgres", "redis"], indirect=True)
async def test_jobs_of_many_queues_that_a_clock_left_ahead_are_brought_back_in_few_calls(
    store: Storage, clock: ManualClock
) -> None:
    clock.step_wall(-HOUR)
    with calls() as made:
        assert await store.jobs.bring_back_jobs(10 * len(QUEUES)) == len(QUEUES)
    assert 0 < len(made) < MOST, made
