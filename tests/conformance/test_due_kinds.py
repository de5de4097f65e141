"""Questions of a coordinator about the fleet when equal shares may leave kinds without slots."""

from datetime import timedelta

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import new_host_id
from forge_jobs.model.transitions import Cooldown
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    LEASE,
    QUEUE,
    SECOND,
    a_pod,
    claim,
    enqueue_one,
    finish,
    new_job,
    register,
    snoozed,
)

pytestmark = pytest.mark.anyio


# -- live pods ---------------------------------------------------------------------------------


async def test_live_pods_are_told_as_they_described_themselves(storage: Storage) -> None:
    described = [
        a_pod(queues=("a", "b"), kinds=("k", "l"), version="7", label="x", concurrency=3),
        a_pod(queues=("a",), kinds=(), concurrency=None),
    ]
    for pod in described:
        await storage.procs.register(pod, LEASE)
    found = await storage.procs.live_pods()
    assert sorted(found, key=lambda pod: pod.host_id) == sorted(
        described, key=lambda pod: pod.host_id
    )
    assert {state.pod.concurrency for state in await storage.procs.pods()} == {3, None}


async def test_a_pod_that_drains_is_live_and_one_out_of_lease_is_not(
    storage: Storage, clock: ManualClock
) -> None:
    draining = await register(storage, lease_for=2 * LEASE)
    await storage.procs.set_draining(draining)
    await register(storage)
    gone = await register(storage, lease_for=2 * LEASE)
    await storage.procs.unregister(gone)
    clock.advance(LEASE)
    assert [pod.host_id for pod in await storage.procs.live_pods()] == [draining.host_id]


async def test_a_pod_that_registers_again_is_told_as_it_is_now(storage: Storage) -> None:
    host_id = new_host_id()
    await storage.procs.register(a_pod(host_id=host_id, concurrency=3), LEASE)
    again = a_pod(host_id=host_id, concurrency=5, kinds=("other",))
    await storage.procs.register(again, LEASE)
    assert await storage.procs.live_pods() == [again]


# -- due kinds ---------------------------------------------------------------------------------


async def due(storage: Storage, *queues: str) -> dict[str, dict[str, int]]:
    return await storage.procs.due_kinds(queues or (QUEUE,))


async def test_due_jobs_are_counted_by_queue_and_kind_over_all_priorities(
    storage: Storage,
) -> None:
    await register(storage, queues=("a", "b", "c"), kinds=("k", "l"))
    for queue, kind, priority in (
        ("a", "k", 0),
        ("a", "k", 5),
        ("a", "l", 5),
        ("b", "l", 0),
        ("c", "k", 0),
    ):
        await enqueue_one(storage, queue=queue, kind=kind, priority=priority)
    assert await due(storage, "a", "b", "nowhere") == {"a": {"k": 2, "l": 1}, "b": {"l": 1}}
    assert await storage.procs.due_kinds([]) == {}


async def test_a_job_is_due_from_its_time_on_and_until_it_is_claimed(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, lease_for=timedelta(hours=1))
    await enqueue_one(storage, delay=SECOND)
    assert await due(storage) == {}
    clock.advance(SECOND)
    assert await due(storage) == {QUEUE: {"tests.noop": 1}}
    assert len(await claim(storage, lease)) == 1
    assert await due(storage) == {}


async def test_jobs_on_hold_are_not_due(storage: Storage) -> None:
    lease = await register(storage)
    await enqueue_one(storage, kind="unknown")
    assert await claim(storage, lease) == []
    assert await due(storage) == {}


async def test_queues_that_are_paused_or_cool_down_are_left_out(
    storage: Storage, clock: ManualClock
) -> None:
    lease = await register(storage, queues=("paused", "cooling"), lease_for=timedelta(hours=1))
    await storage.config.set_paused("paused", True)
    await enqueue_one(storage, queue="cooling")
    [throttled] = await claim(storage, lease, queue="cooling")
    assert await finish(storage, throttled, snoozed(cooldown=Cooldown(SECOND, 0)))
    for queue in ("paused", "cooling"):
        await enqueue_one(storage, queue=queue)
    assert await due(storage, "paused", "cooling") == {}
    clock.advance(SECOND)
    await storage.config.set_paused("paused", False)
    assert set(await due(storage, "paused", "cooling")) == {"paused", "cooling"}


async def test_at_least_the_first_thousand_due_jobs_are_looked_at(storage: Storage) -> None:
    await register(storage, kinds=("k", "l"))
    await storage.jobs.enqueue([new_job(kind="l", priority=1)])
    await storage.jobs.enqueue([new_job(kind="k") for _ in range(999)])
    assert await due(storage) == {QUEUE: {"k": 999, "l": 1}}
    await storage.jobs.enqueue([new_job(kind="k") for _ in range(50)])
    assert 1000 <= (await due(storage))[QUEUE]["k"] <= 1049
