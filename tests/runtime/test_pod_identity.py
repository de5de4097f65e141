"""A pod is its process, not its name."""

import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import a_runtime
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


async def test_a_label_used_again_is_another_pod(storage: Storage) -> None:
    handlers = HandlerRegistry()

    @handlers.job("work")
    async def work() -> None:
        """The pods need not be given any."""

    first = await a_runtime(storage, handlers, 2, label="shop-worker-1").start()
    second = await a_runtime(storage, handlers, 2, label="shop-worker-1").start()
    try:
        pods = await storage.procs.pods()
        assert {pod.pod.host_id for pod in pods} == {first.host_id, second.host_id}
        assert [pod.pod.label for pod in pods] == ["shop-worker-1"] * 2
        await first.stop()
        [left] = await storage.procs.pods()
        assert left.pod.host_id == second.host_id
        await wait_until(
            lambda: second.health().queues["default"].grant == 2, description="it has all slots"
        )
    finally:
        await first.stop()
        await second.stop()
