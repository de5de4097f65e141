"""Leases in two places and schedules with an outbox: what a pod leaves that dies in between."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from forge_jobs.model.ids import new_host_id
from forge_jobs.model.jobs import NewJob, Unique
from forge_jobs.model.processes import AllocationChange, PodLease, Slots
from forge_jobs.model.schedules import Firing, Schedule, ScheduleSpec
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues, queue_names
from forge_jobs.storage.redis.cron.store import RedisCronStore
from forge_jobs.storage.redis.fleet.pods import RedisProcStore
from forge_jobs.storage.redis.jobs.enqueue import enqueue
from tests.support import servers
from tests.support.factories import KIND, LEASE, QUEUE, a_pod, new_job
from tests.support.redis_databases import opened
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

QUEUES = (QUEUE, "other", "third")
MOMENT = timedelta(milliseconds=50)


class Died(Exception):
    """The process is gone."""


class DyingPod:
    """A pod that dies just before a script is sent."""

    def __init__(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = ""
        self.sent: list[str] = []
        self._run = database.run
        monkeypatch.setattr(database, "run", self._maybe)

    async def _maybe(
        self, name: str, requests: Mapping[str, object], answer: Any, **others: Any
    ) -> Any:
        if name == self.at:
            raise Died
        if requests:
            self.sent.append(name)
        return await self._run(name, requests, answer, **others)


@pytest.fixture(params=["redis", "redis-cluster"])
async def database(request: pytest.FixtureRequest) -> AsyncGenerator[Database]:
    url = servers.redis_url() if request.param == "redis" else servers.redis_cluster_url()
    async with opened(url) as made:
        yield made


@pytest.fixture
def mortal(database: Database, monkeypatch: pytest.MonkeyPatch) -> DyingPod:
    return DyingPod(database, monkeypatch)


@pytest.fixture
def procs(database: Database) -> RedisProcStore:
    return RedisProcStore(database)


@pytest.fixture
def cron(database: Database) -> RedisCronStore:
    return RedisCronStore(database)


# -- leases ------------------------------------------------------------------------------------


async def serving(procs: RedisProcStore) -> dict[str, int]:
    """How many live pods each queue has."""
    return {each.queue: len(each.pods) for each in await procs.allocations()}


@pytest.mark.parametrize("step", ["pod_register", "pod_admit"])
async def test_a_registration_that_broke_off_can_be_made_again(
    procs: RedisProcStore, mortal: DyingPod, step: str
) -> None:
    pod = a_pod(queues=QUEUES)
    mortal.at = step
    with pytest.raises(Died):
        await procs.register(pod, LEASE)
    assert await serving(procs) == {}
    mortal.at = ""
    lease = await procs.register(pod, LEASE)
    assert await serving(procs) == dict.fromkeys(QUEUES, 1)
    [state] = await procs.pods()
    assert (state.pod.host_id, set(state.slots)) == (lease.host_id, set(QUEUES))


async def test_a_registration_overrules_whoever_looked_at_the_kinds_before(
    database: Database, procs: RedisProcStore
) -> None:
    """In every queue: jobs are put on hold only under the version that was read."""
    await procs.register(a_pod(queues=QUEUES), LEASE)
    look = [("HGET", f"{database.keys.queue(name)}:queue", "kinds_version") for name in QUEUES]
    before = await database.commands(look)
    await procs.register(a_pod(queues=(QUEUE,)), LEASE)
    after = await database.commands(look)
    assert all(was != now for was, now in zip(before, after, strict=True))


async def test_what_a_pod_that_died_registering_left_runs_out_and_is_dropped(
    procs: RedisProcStore, mortal: DyingPod
) -> None:
    pod = a_pod(queues=QUEUES)
    await procs.register(pod, MOMENT)
    mortal.at = "pod_admit"
    with pytest.raises(Died):
        await procs.register(pod, MOMENT)
    mortal.at = ""

    async def is_dropped() -> bool:
        return await procs.drop_dead_pods(timedelta(0), 10) == [pod.host_id]

    await wait_until(is_dropped, description="the pod is dropped")
    assert await procs.pods() == []
    assert await serving(procs) == {}
    lease = await procs.register(a_pod(queues=QUEUES), LEASE)
    assert [list(each.pods) for each in await procs.allocations()] == [[lease.host_id]] * 3


async def test_a_pod_that_died_leaving_has_no_grants_and_can_leave_again(
    procs: RedisProcStore, mortal: DyingPod
) -> None:
    lease = await procs.register(a_pod(queues=QUEUES), LEASE)
    mortal.at = "pod_forget"
    with pytest.raises(Died):
        await procs.unregister(lease)
    assert await serving(procs) == {}
    mortal.at = ""
    await procs.unregister(lease)
    assert await procs.pods() == []


async def test_draining_that_broke_off_can_be_asked_for_again(
    procs: RedisProcStore, mortal: DyingPod
) -> None:
    lease = await procs.register(a_pod(queues=QUEUES), LEASE)
    mortal.at = "slot_drain"
    with pytest.raises(Died):
        await procs.set_draining(lease)
    mortal.at = ""
    await procs.set_draining(lease)
    assert all(each.draining == {lease.host_id} for each in await procs.allocations())


async def test_a_grant_is_void_where_its_queue_says_so_whatever_the_fleet_says(
    database: Database, procs: RedisProcStore
) -> None:
    """The pod could renew the lease of the fleet and not the lease of a queue."""
    lease = await procs.register(a_pod(), LEASE)
    [allocation] = await procs.allocations()
    wish = AllocationChange(
        queue=QUEUE, version=allocation.version, slots={lease.host_id: Slots(1, 1)}
    )
    assert await procs.allocate([wish]) == [True]
    base = database.keys.queue(QUEUE)
    await database.run_one("slot_leave", base, [(lease.host_id, lease.epoch)], bool)
    assert await serving(procs) == {}
    [state] = await procs.pods()
    assert state.lease_remaining > timedelta(0)
    assert state.slots == {}


async def test_pods_of_hundreds_of_queues_come_and_go(procs: RedisProcStore) -> None:
    names = tuple(f"queue-{number}" for number in range(230))
    lease = await procs.register(a_pod(queues=names), LEASE)
    assert await serving(procs) == dict.fromkeys(names, 1)
    await procs.lower_grants(PodLease(new_host_id(), lease.epoch), dict.fromkeys(names, 0))
    await procs.unregister(lease)
    assert await serving(procs) == {}


# -- the leader --------------------------------------------------------------------------------


async def test_a_pass_that_changes_nothing_asks_once(
    database: Database, procs: RedisProcStore, cron: RedisCronStore, mortal: DyingPod
) -> None:
    await procs.register(a_pod(queues=QUEUES), LEASE)
    leader, other = new_host_id(), RedisCronStore(database)
    first = await cron.lead(leader, LEASE)
    mortal.sent.clear()
    again = await cron.lead(leader, LEASE)
    assert (again.term, again.fleet_version) == (first.term, first.fleet_version)
    assert mortal.sent == ["lead"]
    await other.lead(new_host_id(), LEASE)
    assert mortal.sent == ["lead", "lead"]


async def test_a_queue_that_is_new_changes_the_fleets_version_at_once(
    procs: RedisProcStore, cron: RedisCronStore
) -> None:
    leader = new_host_id()
    versions = set()
    for number in range(3):
        await procs.register(a_pod(queues=(f"queue-{number}",)), LEASE)
        versions.add((await cron.lead(leader, LEASE)).fleet_version)
    assert len(versions) == 3


# -- schedules ---------------------------------------------------------------------------------

NAME = "nightly: {#} %s"
HOUR = timedelta(hours=1)


async def declared(cron: RedisCronStore, **overrides: Any) -> Schedule:
    fields: dict[str, Any] = {"name": NAME, "queue": QUEUE, "kind": KIND, "expression": "@hourly"}
    return await cron.put_schedule(ScheduleSpec(**(fields | overrides)), await cron.now())


def firing(schedule: Schedule, *jobs: NewJob) -> Firing:
    assert schedule.next_at is not None
    return Firing(
        name=NAME,
        version=schedule.version,
        jobs=jobs,
        next_at=schedule.next_at + HOUR,
        fired_at=schedule.next_at,
    )


async def stored(cron: RedisCronStore) -> Schedule:
    found = await cron.get_schedule(NAME)
    assert found is not None
    return found


async def job_ids(database: Database) -> list[str]:
    """The waiting jobs of all queues."""
    bases = [database.keys.queue(name) for name in await queue_names(database)]
    found = await database.commands([("ZRANGE", f"{base}:s:pending", 0, -1) for base in bases])
    return sorted(job_id.decode() for ids in found for job_id in ids)


@pytest.mark.parametrize("step", ["fire_jobs", "fired"])
async def test_what_a_leader_fired_that_died_comes_to_its_queue_once(
    database: Database, cron: RedisCronStore, mortal: DyingPod, step: str
) -> None:
    schedule = await declared(cron)
    jobs = [new_job(schedule=NAME), new_job(schedule=NAME, queue="other")]
    mortal.at = step
    with pytest.raises(Died):
        await cron.fire([firing(schedule, *jobs)])
    assert (await stored(cron)).fired == 0
    mortal.at = ""
    await asyncio.gather(*(RedisCronStore(database).due_schedules(10) for _ in range(5)))
    assert await job_ids(database) == sorted(job.id for job in jobs)
    after = await stored(cron)
    assert (after.fired, after.skipped, after.last_fired_at) == (2, 0, schedule.next_at)
    mortal.sent.clear()
    await cron.due_schedules(10)
    assert mortal.sent == ["due_schedules"]


async def test_a_job_that_was_brought_and_has_gone_is_not_brought_again(
    database: Database, cron: RedisCronStore, mortal: DyingPod
) -> None:
    schedule = await declared(cron)
    mortal.at = "fired"
    with pytest.raises(Died):
        await cron.fire([firing(schedule, new_job(schedule=NAME))])
    mortal.at = ""
    [job_id] = await job_ids(database)
    await forget_job(database, job_id)
    await cron.due_schedules(10)
    assert await job_ids(database) == []
    assert (await stored(cron)).fired == 1


async def test_what_an_overlap_dropped_stays_dropped_when_it_is_brought_again(
    database: Database, cron: RedisCronStore, mortal: DyingPod
) -> None:
    schedule = await declared(cron)
    key = Unique("one at a time")
    [holder] = await enqueue(database, [new_job(unique=key)])
    mortal.at = "fired"
    with pytest.raises(Died):
        await cron.fire([firing(schedule, new_job(schedule=NAME, unique=key))])
    mortal.at = ""
    await forget_job(database, holder.job_id)
    await cron.due_schedules(10)
    assert await job_ids(database) == []
    after = await stored(cron)
    assert (after.fired, after.skipped) == (0, 1)


async def forget_job(database: Database, job_id: str) -> None:
    """Remove the job, as retention does after the end."""
    base = database.keys.queue(QUEUE)
    await database.commands(
        [
            ("DEL", f"{base}:j:{job_id}"),
            ("ZREM", f"{base}:s:pending", job_id),
            ("DEL", f"{base}:unique"),
        ]
    )


async def test_a_trigger_that_broke_off_is_brought_and_a_repeat_counts_once(
    database: Database, cron: RedisCronStore, mortal: DyingPod
) -> None:
    await declared(cron)
    job = new_job(schedule=NAME)
    mortal.at = "fire_jobs"
    with pytest.raises(Died):
        await cron.trigger(NAME, job)
    mortal.at = ""
    assert not (await cron.trigger(NAME, job)).deduplicated
    await cron.due_schedules(10)
    assert await job_ids(database) == [job.id]
    assert (await stored(cron)).fired == 1


async def test_edits_of_one_schedule_at_once_all_come_through(cron: RedisCronStore) -> None:
    before = await declared(cron)
    kinds = [f"kind-{number}" for number in range(12)]
    edited = await asyncio.gather(*(declared(cron, kind=kind) for kind in kinds))
    assert {each.spec.kind for each in edited} == set(kinds)
    assert (await stored(cron)).version == before.version + len(kinds)


# -- all queues --------------------------------------------------------------------------------


async def test_whoever_has_met_some_queues_looks_into_those_that_came_since(
    database: Database,
) -> None:
    for queues in (["a", "b"], ["b", "c", "d"]):
        for name in queues:
            await enqueue(database, [new_job(queue=name)])
        names = await queue_names(database)
        for _ in range(2):
            found = await in_all_queues(database, "expirable", [], int)
            assert found == dict.fromkeys(names, 0)


async def test_queues_that_are_gone_are_not_answered_for(database: Database) -> None:
    await enqueue(database, [new_job(queue="a"), new_job(queue="b")])
    await in_all_queues(database, "expirable", [], int)
    await database.commands([("SREM", f"{database.keys.fleet}:queues", "b")])

    for _ in range(2):
        assert await in_all_queues(database, "expirable", [], int) == {"a": 0}
    await database.commands([("SADD", f"{database.keys.fleet}:queues", "b")])
