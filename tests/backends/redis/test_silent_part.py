"""A cluster of which one server is dead or frozen: its queues stop, and nothing else."""

import asyncio
from datetime import timedelta

import anyio
import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.flows.plans import Group
from forge_jobs.clock import SystemClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import JobCancelled, PartlyUnavailable, SchemaMismatch, Unavailable
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.edges import Tally
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.filters import JobFilter, Refusal
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import After, NewJob
from forge_jobs.model.metrics import Histogram, LatencySample
from forge_jobs.model.series import Depth, FlowSample
from forge_jobs.policy.liveness import ReaperGuard
from forge_jobs.runtime.passes.cleanup import Cleanup, hand_over_once, roll_up_once
from forge_jobs.runtime.passes.coordinator import CoordinatorMemory, coordinate_once
from forge_jobs.runtime.passes.reaper import reap_once
from forge_jobs.runtime.shared.latencies import minute_start
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.redis.base.places import Places
from tests.support.factories import LEASE, a_pod, claim_for, new_job
from tests.support.shards import FAULTS, KEYS, NAMES, Shards, node_of, url_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.long]


@pytest.fixture
async def shards(shards: Shards) -> Shards:
    """Put a job into every queue."""
    await shards.storage.jobs.enqueue([new_job(queue=name) for name in NAMES])
    return shards


@pytest.mark.parametrize("fault", FAULTS)
async def test_ids_of_our_making_are_stored_in_every_healthy_queue(
    shards: Shards, fault: str
) -> None:
    jobs = shards.storage.jobs
    assert shards.lost
    assert shards.healthy
    stored = [new_job(queue=name) for name in shards.healthy for _ in range(3)]
    assert any(shards.is_located_there(job.id) for job in stored)
    with shards.down(fault):
        for job in stored:
            assert [each.job_id for each in await jobs.enqueue([job])] == [job.id]
        with pytest.raises(Unavailable):
            await jobs.enqueue([new_job(queue=shards.lost[0])])
        # A repeat is one.
        assert not any(each.deduplicated for each in await jobs.enqueue(stored[:1]))
    ids = [job.id for job in stored]

    async def all_are_found() -> bool:
        return len(await jobs.get(ids)) == len(ids)

    await wait_until(all_are_found, description="the locators are written")
    counts = await jobs.counts(shards.healthy)
    assert sum(each.by_status["pending"] for each in counts.values()) == 4 * len(shards.healthy)


async def test_a_group_is_counted_beside_one_of_a_silent_server(shards: Shards) -> None:
    client, groups = JobClient(shards.storage), {}
    for name in (shards.healthy[0], shards.lost[0]):
        members = [EnqueueRequest("kind", {}, queue=name) for _ in range(2)]
        # With the locator on a server that answers.
        its_id = new_job_id()
        while shards.is_located_there(its_id):
            its_id = new_job_id()
        groups[name] = (await client.enqueue_group(Group(members, id=its_id))).id
    there, lost = groups.values()
    with shards.down("killed"):
        assert (await client.group(there)).waiting == 2
        with pytest.raises(PartlyUnavailable) as raised:
            await shards.storage.jobs.tallies([there, lost])
        assert raised.value.found == {there: Tally(open=2)}
        assert raised.value.unknown == {lost}
        with pytest.raises(Unavailable):
            await client.group(lost)
    await client.aclose()


async def test_relatives_are_read_beside_those_of_a_silent_server(shards: Shards) -> None:
    def placed(queue: str, *parents: JobId) -> NewJob:
        """A job with the locator on a server that answers."""
        its_id = new_job_id()
        while shards.is_located_there(its_id):
            its_id = new_job_id()
        return new_job(id=its_id, queue=queue, after=tuple(map(After, parents)))

    there, lost = shards.healthy[0], shards.lost[0]
    parent = placed(there)
    beside = placed(there, parent.id)
    silent = placed(lost)
    child, elsewhere = placed(there, silent.id), placed(lost, beside.id)
    await shards.storage.jobs.enqueue([parent, beside, silent, child, elsewhere])
    with shards.down("killed"), pytest.raises(PartlyUnavailable) as raised:
        await shards.storage.jobs.kin([parent.id, beside.id, silent.id, child.id])
    # The one has a child there, the other a parent.
    assert raised.value.unknown == {beside.id, silent.id, child.id}
    assert [each.id for each in raised.value.found[parent.id].children] == [beside.id]
    assert raised.value.found.keys() == {parent.id}
    with shards.down("killed"):
        found = await shards.storage.jobs.with_parents(beside.id)
        assert found is not None
        assert [each.id for each in found[1]] == [parent.id]
        for unknown in (silent.id, child.id):
            with pytest.raises(PartlyUnavailable):
                await shards.storage.jobs.with_parents(unknown)


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_id_of_the_callers_needs_its_locator(shards: Shards, fault: str) -> None:
    jobs = shards.storage.jobs
    ids = [new_job_id() for _ in range(40)]
    there = [job_id for job_id in ids if shards.is_located_there(job_id)]
    first, second, *_ = shards.healthy
    assert there
    with shards.down(fault):
        for job_id in ids:
            job = new_job(id=job_id, queue=first, fingerprint="mine")
            if job_id in there:
                with pytest.raises(Unavailable):
                    await jobs.enqueue([job])
            else:
                assert await jobs.enqueue([job])
        assert (await jobs.counts([first]))[first].by_status["pending"] == 1 + len(ids) - len(there)
    await jobs.enqueue([new_job(id=there[0], queue=second, fingerprint="mine")])
    assert (await jobs.get(there))[there[0]].queue == second


@pytest.mark.parametrize("fault", FAULTS)
async def test_what_a_dead_caller_left_without_a_locator_the_sweep_finds(
    shards: Shards, fault: str
) -> None:
    stored = [new_job(queue=shards.healthy[0]) for _ in range(20)]
    with shards.down(fault):
        async with await open_storage(url_of(shards.cluster), migrate=False) as caller:
            await caller.jobs.enqueue(stored)
    ids = [job.id for job in stored]
    assert len(await shards.storage.jobs.get(ids)) < len(ids)
    await shards.storage.jobs.sweep(100)
    assert len(await shards.storage.jobs.get(ids)) == len(ids)


@pytest.mark.parametrize("fault", FAULTS)
async def test_callers_of_one_client_do_not_wait_for_each_others_queues(
    shards: Shards, fault: str
) -> None:
    async with JobClient(shards.storage, repeat_for=60) as client:
        with shards.down(fault), anyio.fail_after(50):
            waiting = [
                asyncio.create_task(client.enqueue(EnqueueRequest("kind", {}, queue=name)))
                for name in shards.lost
            ]
            for name in shards.healthy:
                assert await client.enqueue(EnqueueRequest("kind", {}, queue=name))
            assert not any(task.done() for task in waiting)
        # Their own come when the server is back.
        assert len({each.job_id for each in await asyncio.gather(*waiting)}) == len(shards.lost)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
async def test_ends_are_told_beside_waits_for_jobs_of_a_silent_server(
    shards: Shards, fault: str, few: bool
) -> None:
    storage = shards.storage
    lost = (shards.lost[:1] if few else shards.lost * 2)[:20]
    async with JobClient(storage, repeat_for=60) as client:
        ids = [
            (await client.enqueue(EnqueueRequest("kind", {}, queue=name))).job_id
            for name in (shards.healthy[0], *lost)
        ]
        with shards.down(fault), anyio.fail_after(50):
            waiting = [asyncio.create_task(client.result(job_id, 55)) for job_id in ids]
            # One more is known to this client alone, whose locator cannot be written.
            while not shards.is_located_there(
                last := (
                    await client.enqueue(EnqueueRequest("kind", {}, queue=shards.healthy[0]))
                ).job_id
            ):
                pass
            assert await client.get(last)
            await client.cancel(JobFilter(queues=(shards.healthy[0],)))
            with pytest.raises(JobCancelled):
                await waiting[0]
            with pytest.raises(JobCancelled):
                await client.result(last, 55)
            assert not any(task.done() for task in waiting[1:])
        await client.cancel(ids[1:])
        ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in ended] == [JobCancelled] * len(ids)


@pytest.mark.parametrize("fault", FAULTS)
async def test_passes_go_on_with_what_answers(shards: Shards, fault: str) -> None:
    storage, settings = shards.storage, RuntimeSettings()
    pod = a_pod(queues=tuple(NAMES))
    lease = await storage.procs.register(pod, LEASE)
    guard, memory = ReaperGuard(settings.lease, settings.reap_interval), CoordinatorMemory()
    await coordinate_once(storage, pod.host_id, settings, memory)
    with shards.down(fault):
        assert (await coordinate_once(storage, pod.host_id, settings, memory)).leading
        await reap_once(storage.jobs, storage.procs, settings, guard)
        assert await hand_over_once(storage.jobs) == 0
        assert await storage.jobs.expire(100) == 0
        await roll_up_once(storage.jobs, clock=SystemClock())
        await Cleanup(storage.jobs).go_on()
        await storage.jobs.sweep(100)
        assert {each.name for each in await storage.config.queues()} == set(shards.healthy)
        assert set(await storage.jobs.counts()) == set(shards.healthy)
        assert {each.queue for each in await storage.procs.allocations()} == set(shards.healthy)
        page = await storage.jobs.list(JobFilter())
        assert {job.queue for job in page.jobs} == set(shards.healthy)
        assert set(page.silent) == set(shards.lost)
        assert [each.pod.host_id for each in await storage.procs.pods()] == [pod.host_id]
        assert await storage.procs.workers() == []
        assert storage.health().silent == set(shards.lost)
        with pytest.raises(Unavailable):
            await storage.jobs.list(JobFilter(queues=(shards.lost[0],)))
        with pytest.raises(Unavailable):
            await storage.jobs.cancel(JobFilter())
    await storage.procs.unregister(lease)
    assert set(await storage.jobs.counts()) == set(NAMES)
    assert storage.health().silent == frozenset()


async def test_events_and_latencies_of_silent_queues_are_handed_back(shards: Shards) -> None:
    now = await shards.storage.cron.now()
    events = [TimelineEvent(at=now, kind=EventKind.RETRIED, queue=name) for name in NAMES]
    samples = [
        LatencySample(
            queue=name,
            minute=minute_start(int(now.timestamp() * 1_000_000)),
            processing=Histogram({1: 1}),
            total=Histogram({1: 1}),
        )
        for name in NAMES
    ]
    with shards.down("killed"):
        left = await shards.storage.jobs.append_events(events)
        assert {event.queue for event in left} == set(shards.lost)
        kept = await shards.storage.jobs.add_latencies(a_pod().host_id, samples)
        assert {sample.queue for sample in kept} == set(shards.lost)
        failed = [
            FailureSample(
                queue=name,
                group="abc",
                kind="tests.kind",
                type="ValueError",
                message="…",
                minute=now.replace(second=0, microsecond=0),
                first_at=now,
                last_at=now,
                dead=1,
            )
            for name in NAMES
        ]
        unheard = await shards.storage.jobs.add_failures(failed)
        assert {sample.queue for sample in unheard} == set(shards.lost)
        since, until = now - timedelta(minutes=1), now + timedelta(minutes=1)
        page = await shards.storage.jobs.error_groups(since, until)
        assert set(page.silent) == set(shards.lost)
        assert {group.queue for group in page.groups} == set(NAMES) - set(shards.lost)
        flows = [
            FlowSample(
                queue=name,
                kind="tests.kind",
                minute=now.replace(second=0, microsecond=0),
                counts={"succeeded": 1},
                delay=Histogram({1: 1}),
                processing=Histogram({1: 1}),
                total=Histogram({1: 1}),
            )
            for name in NAMES
        ]
        untold = await shards.storage.jobs.add_flows(flows)
        assert {sample.queue for sample in untold} == set(shards.lost)
        await shards.storage.jobs.record_depths({name: Depth(due=1) for name in NAMES})
        with pytest.raises(Unavailable):
            await shards.storage.jobs.error_group(shards.lost[0], "abc", since, until)
    assert await shards.storage.jobs.append_events(left) == []
    found = await shards.storage.jobs.events()
    assert sorted(event.queue for event in found) == sorted(NAMES)


async def test_no_claim_is_revived_to_which_nobody_could_beat(shards: Shards) -> None:
    """Their pod lives. The server was away for longer than the lease."""
    storage = shards.storage
    lease = timedelta(seconds=1)
    settings = RuntimeSettings(
        lease=lease,
        heartbeat_interval=lease / 4,
        fence_margin=lease / 4,
        reap_interval=lease / 4,
        leader_lease=lease,
        coordinate_interval=lease / 4,
    )
    pod = a_pod(queues=tuple(NAMES), kinds=("kind",))
    held = await storage.procs.register(pod, timedelta(minutes=1))
    guard = ReaperGuard(lease, settings.reap_interval * 40)
    await reap_once(storage.jobs, storage.procs, settings, guard)
    queue = shards.lost[0]
    [job] = await storage.jobs.enqueue([new_job(queue=queue, kind="kind")])
    await claim_for(storage, queue, ["worker"], 10, frozenset({"kind"}), held)

    async def is_stale() -> bool:
        return bool(await storage.jobs.stale_claims(lease, 1))

    with shards.down("killed"):
        assert not await is_stale()
        await reap_once(storage.jobs, storage.procs, settings, guard)
    await wait_until(is_stale, description="the claims look stale")
    report = await reap_once(storage.jobs, storage.procs, settings, guard)
    assert report.revived == ()
    assert job.job_id in await storage.jobs.get([job.job_id])


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_bulk_requeue_goes_on_beside_jobs_of_which_not_all_is_known(
    shards: Shards, fault: str
) -> None:
    """The handover of a lost parent may lie with any queue, and the locator anywhere."""
    jobs = shards.storage.jobs
    queue, far = shards.healthy[0], shards.lost[0]
    of_queue = JobFilter(queues=(queue,))
    lost, there = (new_job(queue=queue) for _ in range(2))
    away = new_job(queue=far)
    plain = [new_job(queue=queue) for _ in range(3)]
    orphan, beside, waits = (
        new_job(queue=queue, after=(After(parent.id, "continue"),))
        for parent in (lost, away, there)
    )
    await jobs.enqueue([lost, there, away, *plain, orphan, beside, waits])
    await jobs.cancel(of_queue, limit=100)
    # Otherwise the handover of the lost parent would say all.
    await hand_over_once(jobs)
    key = f"{KEYS.queue(queue)}:j:{lost.id}"
    node_of(shards.cluster, key).command("DEL", key)
    silent = {beside.id, orphan.id}
    silent |= {waits.id} if shards.is_located_there(there.id) else set()
    with shards.down(fault):
        done = await jobs.requeue(of_queue, limit=100)
        assert {one for one, why in done.refused.items() if why is Refusal.SILENT} == silent
        assert {*(job.id for job in plain)} <= set(done.changed)
    again = await jobs.requeue(of_queue, limit=100)
    assert silent <= set(again.changed)


# -- opened while the fleet's own records are silent -------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_program_may_begin_without_the_fleets_own_records(
    shards: Shards, fault: str
) -> None:
    """The program checks the fleet's records when they answer again."""
    with shards.down(fault, shards.fleet):
        healthy = [
            name for name in NAMES if node_of(shards.cluster, KEYS.queue(name)) is not shards.fleet
        ]
        async with await open_storage(url_of(shards.cluster)) as fresh:
            stored = [new_job(queue=name) for name in healthy]
            for job in stored:
                await fresh.jobs.enqueue([job])
            named = next(
                job
                for job in iter(lambda: new_job(queue=healthy[0], fingerprint="a"), None)
                if node_of(shards.cluster, KEYS.locators(job.id)) is not shards.fleet
            )
            await fresh.jobs.enqueue([named])
            assert (await fresh.jobs.get([named.id]))[named.id].queue == healthy[0]
            assert fresh.health().problem == ""


async def test_a_newer_store_is_refused_also_without_the_fleets_own_records(shards: Shards) -> None:
    for base in Places(KEYS).old_bases():
        key = f"{base}:ids"
        node_of(shards.cluster, key).command("SET", key, "all from=9")
    refused = pytest.raises(SchemaMismatch, match="from schema version 9 on")
    with shards.down("killed", shards.fleet), refused:
        await open_storage(url_of(shards.cluster))


async def test_a_store_that_says_nothing_of_itself_is_not_opened_without_the_fleet(
    shards: Shards,
) -> None:
    for base in Places(KEYS).old_bases():
        key = f"{base}:ids"
        node_of(shards.cluster, key).command("DEL", key)
    with shards.down("killed", shards.fleet), pytest.raises(Unavailable):
        await open_storage(url_of(shards.cluster))


async def test_what_was_opened_without_the_fleet_is_not_used_on_when_it_turns_out_newer(
    shards: Shards,
) -> None:
    shards.fleet.command("HSET", f"{KEYS.fleet}:schema", 99, "1700000000000000 of the future")
    with shards.down("killed", shards.fleet):
        fresh = await open_storage(url_of(shards.cluster))
    async with fresh:
        await wait_until(lambda: bool(fresh.health().problem), description="it is checked")
        assert "upgrade forge-jobs" in fresh.health().problem
        with pytest.raises(SchemaMismatch):
            await fresh.jobs.enqueue([new_job()])
