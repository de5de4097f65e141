"""Kinds and their queues, as pods publish them."""

from typing import Any

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.ids import new_host_id
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import LEASE, SECOND, a_pod

pytestmark = pytest.mark.anyio


async def start(storage: Storage, kinds: dict[str, str | None], **overrides: Any) -> PodLease:
    """Register a pod that publishes these kinds and their queues."""
    named = {kind: queue for kind, queue in kinds.items() if queue is not None}
    pod = a_pod(kinds=tuple(kinds), routes=named, **overrides)
    return await storage.procs.register(pod, LEASE)


async def test_a_pod_publishes_the_queues_of_its_kinds(storage: Storage) -> None:
    assert await storage.procs.routes() == {}
    lease = await start(storage, {"mail.send": "mail", 'odd "kind"': "odd {queue}", "plain": None})
    assert await storage.procs.routes() == {
        "mail.send": "mail",
        'odd "kind"': "odd {queue}",
        "plain": None,
    }
    [state] = await storage.procs.pods()
    assert state.pod.routes == {"mail.send": "mail", 'odd "kind"': "odd {queue}"}
    await storage.procs.unregister(lease)
    assert await storage.procs.routes() == {}


async def test_a_pod_that_registers_again_publishes_anew(
    storage: Storage, clock: ManualClock
) -> None:
    host_id = new_host_id()
    await start(storage, {"a": "old", "b": "gone"}, host_id=host_id)
    await start(storage, {"a": "new"}, host_id=host_id)
    assert await storage.procs.routes() == {"a": "new"}


async def test_of_pods_that_differ_the_word_of_the_last_that_started_counts(
    storage: Storage, clock: ManualClock
) -> None:
    first, second = new_host_id(), new_host_id()
    await start(storage, {"a": "old", "b": "both"}, host_id=first)
    clock.advance(SECOND)
    await start(storage, {"a": "new", "c": None}, host_id=second)
    clock.advance(SECOND)
    # Registering again is not starting.
    await start(storage, {"a": "old", "b": "both"}, host_id=first)
    assert await storage.procs.routes() == {"a": "new", "b": "both", "c": None}


async def test_the_word_of_a_live_pod_counts_before_that_of_a_dead_one(
    storage: Storage, clock: ManualClock
) -> None:
    alive = new_host_id()
    await start(storage, {"a": "living"}, host_id=alive)
    clock.advance(SECOND)
    await start(storage, {"a": "dead", "b": "known"})
    clock.advance(LEASE + SECOND)
    await start(storage, {"a": "living"}, host_id=alive)
    assert await storage.procs.routes() == {"a": "living", "b": "known"}
