"""A pod of many queues declares what the store does not have yet, and no more.

Each declaration is a transaction of its own. A pod of a thousand queues took half a minute to start
at a store 2 ms away.
"""

from collections.abc import Mapping

import pytest

from forge_jobs import HandlerRegistry, Limit, QueueRuntime, QueueSettings
from forge_jobs.model.queues import QueueChange
from forge_jobs.storage.protocols import Storage
from tests.support.faulty import Faults, faulty
from tests.support.runtimes import quick_settings

pytestmark = pytest.mark.anyio

SERVED = {f"tenant-{number:02}": QueueSettings(max_workers=2) for number in range(30)}
FIRST, SECOND, THIRD, FOURTH, *_ = SERVED
KIND = "reports.make"


def handlers_of(at_most: int) -> HandlerRegistry:
    handlers = HandlerRegistry()

    @handlers.job(KIND, concurrency=Limit(at_most, key="customer:{customer}"))
    async def make(customer: int) -> None: ...

    return handlers


async def declared_at_start(
    storage: Storage, queues: Mapping[str, QueueSettings] = SERVED, at_most: int = 3
) -> tuple[int, int]:
    """Start and stop a pod, and return how many queues and limits the pod has declared."""
    faults = Faults()
    runtime = QueueRuntime(faulty(storage, faults), handlers_of(at_most), settings=quick_settings())
    async with runtime.with_queues(**queues).start():
        return faults.calls["ensure_queue"], faults.calls["ensure_limits"]


async def test_a_pod_declares_many_queues_once(storage: Storage) -> None:
    assert await declared_at_start(storage) == (len(SERVED), len(SERVED))
    states = {each.name: each.settings for each in await storage.config.queues()}
    assert {name: states[name] for name in SERVED} == SERVED
    assert {(each.queue, each.at_most) for each in await storage.config.limits()} == {
        (name, 3) for name in SERVED
    }
    assert await declared_at_start(storage) == (0, 0)


async def test_a_pod_of_many_queues_declares_what_is_missing_or_different(storage: Storage) -> None:
    await declared_at_start(storage)
    await storage.config.set_queue(FIRST, QueueChange(max_workers=9))
    await storage.config.set_limit(FIRST, KIND, 8)
    await storage.config.delete_limit(SECOND, KIND)
    await storage.config.delete_queue(THIRD)
    changed = SERVED | {FOURTH: QueueSettings(max_workers=5)}

    assert await declared_at_start(storage, changed) == (2, 2), "two queues, and two limits"

    states = {each.name: each.settings.max_workers for each in await storage.config.queues()}
    assert [states[name] for name in (FIRST, SECOND, THIRD, FOURTH)] == [9, 2, 2, 5]
    limits = {each.queue: each.at_most for each in await storage.config.limits()}
    assert [limits[name] for name in (FIRST, SECOND, THIRD, FOURTH)] == [8, 3, 3, 3]


async def test_a_pod_of_many_queues_declares_a_new_number(storage: Storage) -> None:
    await declared_at_start(storage)
    assert await declared_at_start(storage, at_most=4) == (0, len(SERVED))
    assert {each.at_most for each in await storage.config.limits()} == {4}


async def test_a_store_that_goes_away_ends_all_declarations_at_once(storage: Storage) -> None:
    faults = Faults()
    faults.lose_replies("ensure_queue", 1)
    runtime = QueueRuntime(faulty(storage, faults), handlers_of(3), settings=quick_settings())
    async with runtime.with_queues(**SERVED).start():
        assert faults.calls["ensure_queue"] < 2 * len(SERVED)
        states = {each.name: each.settings for each in await storage.config.queues()}
    assert {name: states[name] for name in SERVED} == SERVED
