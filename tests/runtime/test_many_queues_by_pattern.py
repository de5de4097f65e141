"""Many queues that appear at once: those that the store takes are served."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from forge_jobs import EnqueueRequest, HandlerRegistry, QueueRuntime, QueueSettings
from forge_jobs.errors import Unavailable
from forge_jobs.runtime.pod.served import ServedQueues
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import quick_settings
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]

NAMES = [f"tenant-{number:02}" for number in range(45)]
handlers = HandlerRegistry()


@handlers.job("works")
async def works() -> str:
    return "done"


def a_runtime(storage: Storage) -> QueueRuntime:
    runtime = QueueRuntime(storage, handlers, settings=quick_settings())
    return runtime.with_patterns(**{"tenant-*": 2})


async def test_a_queue_that_the_store_refuses_keeps_no_other_waiting(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refused = type(storage.config).ensure_queue, {NAMES[0], NAMES[30]}

    async def refusing(self: Any, name: str, settings: QueueSettings) -> Any:
        if name in refused:
            raise Unavailable("as planted")
        return await real(self, name, settings)

    monkeypatch.setattr(type(storage.config), "ensure_queue", refusing)
    async with a_runtime(storage).start() as handle:
        requests = [EnqueueRequest("works", {}, queue=name) for name in NAMES]
        outcomes = dict(zip(NAMES, await handle.enqueue_many(requests), strict=True))
        served = [name for name in NAMES if name not in refused]
        for name in served:
            assert await handle.result(outcomes[name].job_id, timeout=50) == "done"
        assert handle.queues == tuple(served)

        refused.clear()
        for outcome in outcomes.values():
            assert await handle.result(outcome.job_id, timeout=50) == "done"


async def test_a_look_that_is_broken_off_has_not_been_in_vain(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand queues take longer than a pass may, on a slow store."""
    real, stuck = type(storage.config).ensure_queue, asyncio.Event()

    async def slow(self: Any, name: str, settings: QueueSettings) -> Any:
        if name == NAMES[-1]:
            await stuck.wait()
        return await real(self, name, settings)

    monkeypatch.setattr(type(storage.config), "ensure_queue", slow)
    async with a_runtime(storage).start() as handle:
        include = asyncio.ensure_future(
            handle._pod.served.include(dict.fromkeys(NAMES, QueueSettings(max_workers=2)))
        )
        await wait_until(lambda: NAMES[0] in handle.queues, description="a part is served")
        include.cancel()
        outcome = await handle.enqueue(EnqueueRequest("works", {}, queue=NAMES[0]))
        assert await handle.result(outcome.job_id, timeout=50) == "done"
        stuck.set()


async def test_many_queues_join_in_few_portions(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each portion the pod tells the store of all queues, and the leader plans for all."""
    names = [f"tenant-{number:03}" for number in range(400)]
    portions: list[int] = []
    serve = ServedQueues._serve

    def noting(served: ServedQueues, queues: Mapping[str, QueueSettings | None]) -> None:
        portions.append(len(queues))
        serve(served, queues)

    async with a_runtime(storage).start() as handle:
        monkeypatch.setattr(ServedQueues, "_serve", noting)
        served = handle._pod.served
        await served.include(dict.fromkeys(names, QueueSettings(max_workers=2)))
        assert set(names) <= set(handle.queues)
        assert sum(portions) == len(names)
        assert len(portions) < 15, portions


async def test_a_portion_that_still_grows_is_served_when_the_look_is_broken_off(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"tenant-{number:03}" for number in range(130)]
    real, stuck, reached = type(storage.config).ensure_queue, asyncio.Event(), asyncio.Event()

    async def slow(self: Any, name: str, settings: QueueSettings) -> Any:
        if name == names[-1]:
            reached.set()
            await stuck.wait()
        return await real(self, name, settings)

    async with a_runtime(storage).start() as handle:
        served, one = handle._pod.served, QueueSettings(max_workers=2)
        await served.include(dict.fromkeys(names[:100], one))
        monkeypatch.setattr(type(storage.config), "ensure_queue", slow)
        include = asyncio.ensure_future(served.include(dict.fromkeys(names[100:], one)))
        await reached.wait()
        assert len(handle.queues) == 100
        include.cancel()
        await asyncio.wait([include])
        assert len(handle.queues) == 120
        stuck.set()
