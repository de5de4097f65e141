"""Beats in one step: the pod's own lease still goes before the leases of the queues."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import ClaimState, PodLease
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.redis.base.database import BASES_AT_ONCE
from tests.support.factories import (
    LEASE,
    QUEUE,
    a_pod,
    claim_one,
    enqueue_one,
    held,
    register,
)
from tests.support.redis_databases import KEYS

pytestmark = pytest.mark.anyio

QUEUES = (QUEUE, "other")

Lose = Callable[[Storage, ManualClock, PodLease], Awaitable[None]]


async def _wait_too_long(_storage: Storage, clock: ManualClock, _lease: PodLease) -> None:
    clock.advance(LEASE)


async def _register_anew(storage: Storage, _clock: ManualClock, lease: PodLease) -> None:
    await storage.procs.register(a_pod(queues=QUEUES, host_id=lease.host_id), LEASE)


async def _leave(storage: Storage, _clock: ManualClock, lease: PodLease) -> None:
    await storage.procs.unregister(lease)


@pytest.mark.parametrize("lose", [_wait_too_long, _register_anew, _leave])
async def test_a_pod_that_has_beaten_before_is_told_that_its_lease_is_lost(
    either: Storage, clock: ManualClock, lose: Lose
) -> None:
    lease = await register(either, queues=QUEUES)
    for _ in range(2):
        beat = await either.jobs.heartbeat(lease, (), LEASE)
        assert beat.lease_held
        assert set(beat.queues) == set(QUEUES)

    await lose(either, clock, lease)

    for _ in range(2):
        beat = await either.jobs.heartbeat(lease, (), LEASE)
        assert not beat.lease_held
        assert all(told.slots.grant == 0 for told in beat.queues.values())


async def test_no_queue_renews_a_lease_that_the_fleet_has_ended(
    storage: Storage, client: Redis, clock: ManualClock
) -> None:
    lease = await register(storage, queues=QUEUES)
    await storage.jobs.heartbeat(lease, (), LEASE)
    pod = f"{KEYS.fleet}:pod:{lease.host_id}"
    await client.hset(pod, "lease_until", clock.time_us())
    before = [await client.hgetall(f"{KEYS.queue(name)}:slots") for name in QUEUES]
    clock.advance(timedelta(seconds=1))

    assert not (await storage.jobs.heartbeat(lease, (), LEASE)).lease_held

    assert [await client.hgetall(f"{KEYS.queue(name)}:slots") for name in QUEUES] == before
    await storage.procs.unregister(lease)


async def test_two_pods_of_one_bundle_beat_in_turn(either: Storage) -> None:
    one, other = await register(either, queues=(QUEUE,)), await register(either, queues=("other",))

    for lease, queue in 2 * ((one, QUEUE), (other, "other")):
        beat = await either.jobs.heartbeat(lease, (), LEASE)
        assert (beat.lease_held, set(beat.queues)) == (True, {queue})


async def test_a_claim_of_a_queue_that_the_pod_does_not_declare(either: Storage) -> None:
    lease = await register(either, queues=(QUEUE,))
    elsewhere = await register(either, queues=("other",))
    await enqueue_one(either, queue="other")
    claimed = await claim_one(either, elsewhere, queue="other")

    for _ in range(2):
        beat = await either.jobs.heartbeat(lease, [held(claimed)], LEASE)
        assert beat.claims == {claimed.claim: ClaimState.LOST}
        assert set(beat.queues) == {QUEUE}
    assert (await either.jobs.heartbeat(elsewhere, [held(claimed)], LEASE)).claims == {
        claimed.claim: ClaimState.HELD
    }


async def test_more_queues_than_a_step_takes(storage: Storage) -> None:
    queues = [f"q{number}" for number in range(BASES_AT_ONCE)]
    lease = await register(storage, queues=queues)

    for _ in range(2):
        beat = await storage.jobs.heartbeat(lease, (), LEASE)
        assert beat.lease_held
        assert set(beat.queues) == set(queues)


async def test_an_idle_queue_and_a_busy_one_are_told_alike(either: Storage) -> None:
    lease = await register(either, queues=QUEUES)
    await enqueue_one(either)
    claimed = await claim_one(either, lease)

    for _ in range(2):
        beat = await either.jobs.heartbeat(lease, (), LEASE)
        assert beat.unknown == (claimed.claim,)
        assert beat.queues[QUEUE].slots == beat.queues["other"].slots
