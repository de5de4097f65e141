"""Requests of a pod without work: counted pass by pass, at the pace of the loops."""

import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from bench.monitoring import monitored
from forge_jobs.clock import ManualClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.liveness import ReaperGuard
from forge_jobs.runtime.passes.cleanup import hand_over_once, roll_up_once
from forge_jobs.runtime.passes.coordinator import CoordinatorMemory, coordinate_once
from forge_jobs.runtime.passes.cron import fire_due_once
from forge_jobs.runtime.passes.gauges import PodMeter, gauges_once
from forge_jobs.runtime.passes.reaper import reap_once, rest_of
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.driver.messages import PING_AFTER_S
from forge_jobs.testing.servers import RedisServer
from tests.support.factories import register

pytestmark = pytest.mark.anyio

QUEUES = tuple(f"q{number}" for number in range(10))
SETTINGS = RuntimeSettings()
MINUTE = timedelta(minutes=1)

Pass = Callable[[], Awaitable[timedelta]]
"""A pass of a loop, which returns the time until the next pass."""


def passes(storage: Storage, lease: PodLease, clock: ManualClock) -> Mapping[str, Pass]:
    """Return each pass of a pod as the loops make it while nothing happens."""
    memory = CoordinatorMemory(clock)
    guard = ReaperGuard(SETTINGS.lease, rest_of(SETTINGS))
    meter = PodMeter(clock=clock)

    async def beat() -> timedelta:
        await storage.jobs.heartbeat(lease, (), SETTINGS.lease)
        return SETTINGS.heartbeat_interval

    async def coordinate() -> timedelta:
        return (await coordinate_once(storage, lease.host_id, SETTINGS, memory)).next_in

    async def reap() -> timedelta:
        report = await reap_once(
            storage.jobs, storage.procs, SETTINGS, guard, clock=clock, sweep=False
        )
        return report.next_in

    async def sweep() -> timedelta:
        await reap_once(storage.jobs, storage.procs, SETTINGS, guard, clock=clock)
        return 5 * SETTINGS.reap_interval

    async def fire() -> timedelta:
        return (await fire_due_once(storage.cron, SETTINGS, random.Random(0))).next_in

    async def hand_over() -> timedelta:
        assert not await hand_over_once(storage.jobs)
        return MINUTE

    async def roll_up() -> timedelta:
        await roll_up_once(storage.jobs, clock=clock)
        return SETTINGS.rollup_interval

    async def measure() -> timedelta:
        await gauges_once(storage, lease, meter, running=0)
        return SETTINGS.rollup_interval

    each = (beat, coordinate, reap, sweep, fire, hand_over, roll_up, measure)
    return {made.__name__: made for made in each}


async def test_a_pass_that_finds_nothing_is_one_request_however_many_queues_there_are(
    server: RedisServer, client: Redis, storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, queues=QUEUES)
    loops = passes(storage, lease, clock)
    for _ in range(4):
        # The passes find the queues, the server learns the scripts, and the reaper trusts its
        # clocks.
        for each in loops.values():
            await each()
        clock.advance(SETTINGS.heartbeat_interval * 2)

    sent: dict[str, int] = {}
    per_second = 1 / PING_AFTER_S
    for name, each in loops.items():
        async with monitored(server.url) as requests:
            rest = await each()
        sent[name] = requests.sent
        per_second += requests.sent / rest.total_seconds()
    await storage.procs.unregister(lease)

    assert sent == {
        **dict.fromkeys(loops, 1),
        # The sweep reaps, expires jobs and looks for dead pods.
        "sweep": 3,
        # The store's time comes before.
        "measure": 2,
    }
    assert per_second <= 1.5
