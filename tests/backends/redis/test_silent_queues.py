"""Pods of a cluster of which one server is down: handlers of its queues stop, and no others."""

import asyncio
from datetime import timedelta

import anyio
import pytest

from forge_jobs.errors import Unavailable
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.jobs import Cause
from forge_jobs.model.processes import Beat, ClaimState, HeldClaim
from forge_jobs.model.queues import QueueSettings
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.storage.opening import open_storage
from tests.support.factories import LEASE, a_pod, claim_for, new_job
from tests.support.redis_databases import with_options
from tests.support.replicated_cluster import ReplicatedCluster
from tests.support.runtimes import ended, quick_settings, seconds
from tests.support.shards import FAULTS, KEYS, NAMES, Shards, node_of
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.long]

SHORT = timedelta(seconds=1)


async def test_a_beat_says_which_queues_are_silent_and_renews_the_others(shards: Shards) -> None:
    storage = shards.storage
    lease = await storage.procs.register(a_pod(queues=tuple(NAMES), kinds=("kind",)), LEASE)
    await storage.jobs.enqueue([new_job(queue=name, kind="kind") for name in NAMES])
    claims = []
    for name in NAMES:
        claims += await claim_for(storage, name, ["worker"], 1, frozenset({"kind"}), lease)
    held = [HeldClaim(job.claim, "worker") for job in claims]
    whole = await storage.jobs.heartbeat(lease, held, LEASE)
    assert whole.silent == whole.admitted == frozenset()
    for fault in FAULTS:
        with shards.down(fault):
            beat = await storage.jobs.heartbeat(lease, held, LEASE)
            assert beat.lease_held
            assert beat.silent == set(shards.lost)
            assert beat.queues.keys() == set(shards.healthy)
            assert {claim.queue for claim in beat.claims} == set(shards.healthy)
            assert set(beat.claims.values()) == {ClaimState.HELD}
        beat = await storage.jobs.heartbeat(lease, held, LEASE)
        assert beat.lease_held
        assert beat.silent == beat.admitted == frozenset()
        assert beat.queues.keys() == set(NAMES)


class Pod:
    """Beats in the background, with a short lease."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.beats: list[Beat] = []

    async def __aenter__(self) -> "Pod":
        procs = self._shards.storage.procs
        self.lease = await procs.register(a_pod(queues=tuple(NAMES), kinds=("kind",)), SHORT)
        self._task = asyncio.create_task(self._beat_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _beat_on(self) -> None:
        while True:
            self.beats.append(await self._shards.storage.jobs.heartbeat(self.lease, [], SHORT))
            await Wakeup().wait(timedelta(seconds=0.05))


@pytest.mark.parametrize("what", ["queues", "fleet"])
async def test_a_lease_that_ran_out_in_one_part_is_given_again_there_alone(
    shards: Shards, what: str
) -> None:
    node = shards.node if what == "queues" else shards.fleet
    there = {name for name in NAMES if node_of(shards.cluster, KEYS.queue(name)) is node}
    procs = shards.storage.procs
    async with Pod(shards) as pod:
        await wait_until(lambda: pod.beats, description="it has beaten")
        await procs.set_draining(pod.lease)
        with FAULTS["killed"](node):
            await wait_until(lambda: pod.beats[-1].silent == there, description="it is silent")
            first = len(pod.beats)
            # Some twenty beats take longer than the lease.
            await wait_until(lambda: len(pod.beats) > first + 40, description="it beats on")
        await wait_until(lambda: pod.beats[-1].queues.keys() == set(NAMES), description="all beat")
        await anyio.to_thread.run_sync(shards.cluster.wait_until_up)
        assert all(beat.lease_held for beat in pod.beats)
        assert frozenset(there) in {beat.admitted for beat in pod.beats}
        [state] = await procs.pods()
        assert state.lease_remaining > timedelta(0)
        # A pod that drains gets no slots where the pod comes back either.
        drained = {each.queue: each.draining for each in await procs.allocations()}
        assert drained == {name: {pod.lease.host_id} for name in NAMES}


async def test_nobody_joins_while_the_fleets_own_records_are_silent(shards: Shards) -> None:
    storage = shards.storage
    await storage.config.ensure_queue(shards.healthy[0], QueueSettings())
    with shards.down("killed", shards.fleet):
        with pytest.raises(Unavailable):
            await storage.procs.register(a_pod(queues=(shards.healthy[0],)), LEASE)
        with pytest.raises(Unavailable):
            await storage.cron.lead(a_pod().host_id, LEASE)
        with pytest.raises(Unavailable):
            await storage.cron.due_schedules(10)


async def test_a_pod_joins_while_some_queues_are_silent_and_serves_them_later(
    shards: Shards,
) -> None:
    storage = shards.storage
    await storage.jobs.enqueue([new_job(queue=name) for name in NAMES])
    with shards.down("killed"):
        lease = await storage.procs.register(a_pod(queues=tuple(NAMES)), LEASE)
        assert (await storage.jobs.heartbeat(lease, [], LEASE)).silent == set(shards.lost)
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).admitted == set(shards.lost)
    assert (await storage.jobs.heartbeat(lease, [], LEASE)).queues.keys() == set(NAMES)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_pod_starts_beside_a_silent_server_and_declares_there_later(
    shards: Shards, fault: str
) -> None:
    handlers = HandlerRegistry()

    ran: list[str] = []

    @handlers.job("quick")
    async def quick(queue: str) -> None:
        ran.append(queue)

    lost, healthy = shards.lost[0], shards.healthy[0]
    for name in (lost, healthy):
        await shards.storage.config.ensure_queue(name, QueueSettings(max_workers=1))
    settings = quick_settings(lease=seconds(6), fence_margin=seconds(1))
    runtime = QueueRuntime(shards.storage, handlers, settings=settings)
    starting = runtime.with_queues(**{lost: 7, healthy: 7}).start()

    async def is_declared() -> bool:
        states = {each.name: each.settings for each in await shards.storage.config.queues()}
        return all(states[name].max_workers == 7 for name in (lost, healthy))

    try:
        with shards.down(fault):
            handle = await starting
            await handle.enqueue(quick.request(healthy).options(queue=healthy))
            await wait_until(lambda: ran == [healthy], description="its job runs")
        await handle.enqueue(quick.request(lost).options(queue=lost))
        await wait_until(lambda: ran == [healthy, lost], description="the other's runs")
        await wait_until(is_declared, description="both have the settings of the code")
    finally:
        await (await starting).stop()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("what", ["queues", "fleet"])
async def test_handlers_of_other_queues_go_on(shards: Shards, what: str, fault: str) -> None:
    node = shards.node if what == "queues" else shards.fleet
    names = {name: node_of(shards.cluster, KEYS.queue(name)) for name in NAMES}
    lost = next(name for name, owner in names.items() if owner is node)
    healthy = next(name for name, owner in names.items() if owner is not node)
    handlers = HandlerRegistry()
    started: dict[str, int] = {lost: 0, healthy: 0}
    cancelled: list[str] = []
    finish = anyio.Event()

    @handlers.job("long")
    async def long(queue: str) -> None:
        started[queue] += 1
        try:
            await finish.wait()
        except BaseException:
            cancelled.append(queue)
            raise

    ran: list[str] = []

    @handlers.job("quick")
    async def quick(queue: str) -> None:
        ran.append(queue)

    settings = quick_settings(
        lease=seconds(6), fence_margin=seconds(1), heartbeat_interval=seconds(0.25)
    )
    runtime = QueueRuntime(shards.storage, handlers, settings=settings)
    async with runtime.with_queues(**{lost: 3, healthy: 3}).start() as handle:
        ids = {
            name: (await handle.enqueue(long.request(name).options(queue=name))).job_id
            for name in (lost, healthy)
        }
        await wait_until(lambda: all(started.values()), description="both run")
        with shards.down(fault, node):
            await wait_until(lambda: cancelled == [lost], description="its handler is stopped")
            health = handle.health()
            assert health.queues[lost].silent
            assert not health.queues[healthy].silent
            assert health.able_to_claim, health.problems
            await handle.enqueue(quick.request(healthy).options(queue=healthy))
            await wait_until(lambda: ran == [healthy], description="its job runs")
        await handle.enqueue(quick.request(lost).options(queue=lost))
        await wait_until(lambda: ran == [healthy, lost], description="the other's runs")
        await wait_until(lambda: started[lost] == 2, description="it runs again")
        finish.set()
        jobs = [await ended(shards.storage, ids[name]) for name in (lost, healthy)]
        assert [job.cause for job in jobs] == [Cause.SUCCEEDED] * 2
        assert [job.crashes for job in jobs] == [0, 0]
        assert started == {lost: 2, healthy: 1}
        assert cancelled == [lost]


async def test_a_pod_that_misses_a_queue_beats_again_soon(shards: Shards) -> None:
    """The next regular beat would come after minutes."""
    handlers = HandlerRegistry()

    @handlers.job("quick")
    async def quick() -> None: ...

    lost, healthy = shards.lost[0], shards.healthy[0]
    settings = quick_settings(
        heartbeat_interval=seconds(200), lease=seconds(900), fence_margin=seconds(100)
    )
    runtime = QueueRuntime(shards.storage, handlers, settings=settings)
    async with runtime.with_queues(**{lost: 1, healthy: 1}).start() as handle:

        def is_silent() -> bool:
            return handle.health().queues[lost].silent

        told = await handle.enqueue(quick.request().options(queue=lost))
        await ended(shards.storage, told.job_id)
        with FAULTS["killed"](shards.node):
            # A change of a queue makes every pod beat.
            await shards.storage.config.set_paused(healthy, True)
            await wait_until(is_silent, description="a beat misses it")
        await wait_until(lambda: not is_silent(), description="a beat finds it again")
    await anyio.to_thread.run_sync(shards.cluster.wait_until_up)


async def test_jobs_of_a_killed_primary_run_when_its_replica_has_its_place() -> None:
    """Under load. Jobs of the other queues run meanwhile, once each."""
    settings = {"cluster-require-full-coverage": "no"}
    with ReplicatedCluster(durable=True, settings=settings) as cluster:
        await cluster.join()
        fleet = node_of(cluster, KEYS.fleet)
        owners = {name: node_of(cluster, KEYS.queue(name)) for name in NAMES}
        healthy = next(name for name in NAMES if owners[name] is fleet)
        lost = next(name for name in NAMES if owners[name] is not fleet)
        handlers = HandlerRegistry()
        counted: list[tuple[str, int]] = []

        @handlers.job("count")
        async def count(queue: str, number: int) -> None:
            counted.append((queue, number))

        def ran(queue: str) -> list[int]:
            return sorted(number for name, number in counted if name == queue)

        url = with_options(cluster.url, prefix=KEYS.prefix, timeout=4, wait_replicas=1)
        limits = quick_settings(
            lease=seconds(6), fence_margin=seconds(1), heartbeat_interval=seconds(0.25)
        )
        async with await open_storage(url) as storage:
            runtime = QueueRuntime(storage, handlers, settings=limits)
            async with runtime.with_queues(**{lost: 2, healthy: 2}).start() as handle:
                client = handle.client
                for name in (lost, healthy):
                    await client.enqueue_many(
                        count.request(name, number).options(queue=name) for number in range(300)
                    )
                await wait_until(lambda: len(ran(lost)) > 20, description="jobs run")
                await anyio.to_thread.run_sync(owners[lost].kill)
                waiting = asyncio.create_task(
                    client.enqueue(count.request(lost, 300).options(queue=lost))
                )
                for number in range(300, 350):
                    await client.enqueue(count.request(healthy, number).options(queue=healthy))
                await wait_until(
                    lambda: ran(healthy) == list(range(350)), description="the others run"
                )
                await wait_until(cluster.is_served, description="its replica has its place")
                await waiting
                await wait_until(
                    lambda: set(ran(lost)) == set(range(301)), description="its own run"
                )
