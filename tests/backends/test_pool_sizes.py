"""A pool that is too small for a pod's queues is reported when the pod starts."""

import logging

import pytest

from forge_jobs import HandlerRegistry, QueueRuntime, open_storage

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["postgres", "redis"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(("pool_size", "is_told"), [(4, True), (5, False)])
async def test_a_pool_smaller_than_the_queues_is_told(
    url: str, pool_size: int, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    separator = "&" if "?" in url else "?"
    async with await open_storage(f"{url}{separator}pool_size={pool_size}") as storage:
        runtime = QueueRuntime(storage, HandlerRegistry()).with_queues("a", "b", "c")
        async with runtime.start():
            pass
    told = [record.message for record in caplog.records if "pool_size=5" in record.message]
    assert len(told) == is_told
