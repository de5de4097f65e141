"""A reader for all who look: there is one reading at a time, and none is older than asked for."""

import asyncio

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import Unavailable
from forge_jobs.operating.snapshots.shared import Kept, Reader
from forge_jobs.storage.protocols import Storage
from tests.support.faulty import Faults, faulty
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


class Readings:
    """A question whose answers are numbers, given when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.go = asyncio.Event()
        self.error: Unavailable | None = None

    async def __call__(self) -> int:
        self.begun += 1
        number = self.begun
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return number


async def begun(kept: Kept[int]) -> asyncio.Task[int]:
    """Return a task that waits for an answer already."""
    has_begun = asyncio.Event()

    async def ask() -> int:
        has_begun.set()
        return await kept.get()

    task = asyncio.create_task(ask())
    await has_begun.wait()
    return task


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


async def test_of_many_who_ask_at_once_one_reads(clock: ManualClock) -> None:
    readings = Readings()
    kept = Kept(clock.elapsed, readings)
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(kept.get()) for _ in range(100)]
        await wait_until(lambda: readings.begun == 1, description="a reading")
        # However long the reading takes: those who ask meanwhile take its answer.
        clock.advance(0.9)
        asked.append(await begun(kept))
        readings.go.set()
    assert [each.result() for each in asked] == [1] * 101
    assert await kept.get() == 1
    clock.advance(0.1)
    assert await kept.get() == 2
    assert await kept.get(float("inf")) == 2


async def test_a_failure_is_an_answer_for_as_long(clock: ManualClock) -> None:
    readings = Readings()
    readings.go.set()
    readings.error = Unavailable("the store is silent")
    kept = Kept(clock.elapsed, readings)
    for _ in range(3):
        with pytest.raises(Unavailable, match="silent"):
            await kept.get()
    assert readings.begun == 1
    readings.error = None
    clock.advance(1.0)
    assert await kept.get() == 2


async def test_a_viewer_who_leaves_takes_no_answer_from_others(clock: ManualClock) -> None:
    readings = Readings()
    kept = Kept(clock.elapsed, readings)
    gone = asyncio.ensure_future(kept.get())
    await wait_until(lambda: readings.begun == 1, description="a reading")
    stays = await begun(kept)
    gone.cancel()
    readings.go.set()
    assert await stays == 2


async def test_pages_streams_and_scrapes_share_each_part(
    sqlite_storage: Storage, clock: ManualClock
) -> None:
    faults = Faults()
    reader = Reader(faulty(sqlite_storage, faults), clock.elapsed)
    await asyncio.gather(
        *(reader.problems() for _ in range(10)),
        *(reader.fleet() for _ in range(10)),
        *(reader.counts() for _ in range(10)),
        *(reader.now() for _ in range(10)),
    )
    assert faults.calls == {
        "look": 2,
        "counts": 1,
        "report": 1,
        "error_groups": 1,
        "many_series": 1,
    }
    before = await reader.now()
    clock.advance(5.0)
    assert (await reader.now(10.0) - before).total_seconds() == 5.0
    assert faults.calls["look"] == 2


async def test_after_a_change_nobody_gets_an_answer_of_before(clock: ManualClock) -> None:
    readings = Readings()
    kept = Kept(clock.elapsed, readings)
    early = await begun(kept)
    kept.forget()
    clock.advance(0.001)
    late = await begun(kept)
    readings.go.set()
    assert (await early, await late) == (1, 2)
    assert await kept.get() == 2


async def test_a_visit_of_a_slow_store_reads_each_part_once(
    sqlite_storage: Storage, clock: ManualClock
) -> None:
    readings = Readings()
    readings.go.set()
    kept = Kept(clock.elapsed, readings)
    reader = Reader(sqlite_storage, clock.elapsed)
    with reader.visit():
        assert await kept.get() == 1
        clock.advance(30)
        assert await kept.get() == 1
        kept.forget()
        assert await kept.get() == 2
    assert await kept.get() == 3
