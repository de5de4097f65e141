"""The waits of one call for connections of a pool."""

import anyio
import pytest

from forge_jobs.storage import pool_waits
from forge_jobs.storage.pool_waits import OF_CALL, PoolWait, waiting_for_connection

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Readings of the clock, the last one first."""
    readings = [9.0, 7.0, 5.0, 2.0, 1.0]
    monkeypatch.setattr(pool_waits, "_elapsed", readings.pop)
    return readings


def begin_call() -> PoolWait:
    call = PoolWait()
    OF_CALL.set(call)
    return call


def test_waits_of_one_call_that_overlap_count_once() -> None:
    call = begin_call()
    with waiting_for_connection(), waiting_for_connection():
        pass
    assert call.seconds == 1.0
    with waiting_for_connection():
        pass
    assert call.seconds == 1.0 + 2.0


async def test_a_call_has_the_waits_of_its_own_tasks_alone(times: list[float]) -> None:
    async def wait() -> None:
        with waiting_for_connection():
            await anyio.lowlevel.checkpoint()

    async def other() -> float:
        call = begin_call()
        await wait()
        return call.seconds

    first = begin_call()
    assert first.seconds == 0.0
    async with anyio.create_task_group() as group:
        group.start_soon(wait)
    assert first.seconds == 1.0
    async with anyio.create_task_group() as group:
        group.start_soon(other)
    assert first.seconds == 1.0
    assert len(times) == 1
