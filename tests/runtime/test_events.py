"""Timeline events are kept while the store is down, up to a bound, and flushed in order."""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import cast

import anyio
import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.errors import InvalidInput, StorageError, Unavailable
from forge_jobs.model.events import EventKind, TimelineEvent
from forge_jobs.runtime.shared.events import FLUSH_BATCH, EventBuffer
from forge_jobs.storage.protocols import JobStore, Storage

pytestmark = [pytest.mark.anyio, pytest.mark.any_store]


class Timeline:
    """The part of a store that takes events, and can be down."""

    def __init__(self) -> None:
        self.events: list[TimelineEvent] = []
        self.calls = 0
        self.error: StorageError | None = None
        self.gate: anyio.Event | None = None

    async def append_events(self, events: Sequence[TimelineEvent]) -> list[TimelineEvent]:
        self.calls += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.events += events
        return []


def buffer_on(timeline: Timeline, **options: int) -> EventBuffer:
    return EventBuffer(cast("JobStore", timeline), host_id="pod", clock=ManualClock(), **options)


def details(timeline: Timeline) -> list[str]:
    return [event.detail for event in timeline.events]


async def test_nothing_buffered_costs_no_call() -> None:
    timeline = Timeline()

    assert await buffer_on(timeline).flush_once() == 0
    assert timeline.calls == 0


async def test_where_events_are_not_kept_none_is_recorded() -> None:
    timeline = Timeline()
    buffer = buffer_on(timeline, capacity=0)

    buffer.record(EventKind.STARTED, queue="gh", job_id="j")

    assert (len(buffer), buffer.dropped, await buffer.flush_once()) == (0, 0, 0)
    assert timeline.calls == 0


async def test_events_are_stamped_with_the_process_and_its_clock() -> None:
    timeline, clock = Timeline(), ManualClock()
    buffer = EventBuffer(cast("JobStore", timeline), host_id="pod", clock=clock)

    buffer.record(EventKind.STARTED, queue="gh", job_id="j")
    clock.advance(timedelta(minutes=1))
    await buffer.flush_once()

    [event] = timeline.events
    assert event.at == clock.now() - timedelta(minutes=1)
    assert (event.host_id, event.queue, event.job_id) == ("pod", "gh", "j")


async def test_a_large_backlog_goes_in_bounded_batches_in_order() -> None:
    timeline = Timeline()
    buffer = buffer_on(timeline)
    count = 2 * FLUSH_BATCH + 1
    for number in range(count):
        buffer.record(EventKind.STARTED, detail=str(number))

    assert await buffer.flush_once() == count
    assert timeline.calls == 3
    assert details(timeline) == [str(number) for number in range(count)]


async def test_events_survive_an_outage_of_the_store_in_order() -> None:
    timeline = Timeline()
    buffer = buffer_on(timeline)
    buffer.record(EventKind.STARTED, detail="1")
    buffer.record(EventKind.STARTED, detail="2")
    timeline.error = Unavailable("down")

    for _ in range(3):
        with pytest.raises(Unavailable):
            await buffer.flush_once()
    buffer.record(EventKind.STARTED, detail="3")
    timeline.error = None
    await buffer.flush_once()

    assert details(timeline) == ["1", "2", "3"]
    assert buffer.dropped == 0


async def test_a_full_buffer_drops_the_oldest_counts_them_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timeline = Timeline()
    buffer = buffer_on(timeline, capacity=3)
    with caplog.at_level(logging.WARNING):
        for number in range(10):
            buffer.record(EventKind.STARTED, detail=str(number))
    await buffer.flush_once()

    assert details(timeline) == ["7", "8", "9"]
    assert buffer.dropped == 7
    assert len(caplog.records) == 1


async def test_what_comes_back_from_a_failed_flush_respects_the_bound() -> None:
    timeline = Timeline()
    buffer = buffer_on(timeline, capacity=3)
    for number in range(3):
        buffer.record(EventKind.STARTED, detail=str(number))
    timeline.gate, timeline.error = anyio.Event(), Unavailable("down")

    async with anyio.create_task_group() as group:

        async def flush() -> None:
            with pytest.raises(Unavailable):
                await buffer.flush_once()

        group.start_soon(flush)
        await anyio.wait_all_tasks_blocked()
        buffer.record(EventKind.STARTED, detail="new")
        timeline.gate.set()
    timeline.error = None
    await buffer.flush_once()

    assert details(timeline) == ["1", "2", "new"]
    assert buffer.dropped == 1


async def test_a_flush_that_is_cancelled_loses_nothing() -> None:
    timeline = Timeline()
    buffer = buffer_on(timeline)
    buffer.record(EventKind.STARTED, detail="1")
    timeline.gate = anyio.Event()

    async with anyio.create_task_group() as group:
        group.start_soon(buffer.flush_once)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    timeline.gate = None
    await buffer.flush_once()

    assert details(timeline) == ["1"]


async def test_a_batch_the_store_refuses_for_good_does_not_hold_up_later_ones() -> None:
    timeline = Timeline()
    buffer = buffer_on(timeline)
    buffer.record(EventKind.STARTED, detail="bad")
    timeline.error = InvalidInput("detail", "is bad", "give a better one")
    with pytest.raises(InvalidInput):
        await buffer.flush_once()
    timeline.error = None
    buffer.record(EventKind.STARTED, detail="good")
    await buffer.flush_once()

    assert details(timeline) == ["good"]
    assert buffer.dropped == 1


async def test_flushed_events_are_in_the_store(manual_storage: Storage) -> None:
    buffer = EventBuffer(manual_storage.jobs, clock=ManualClock())
    buffer.record(EventKind.THROTTLED, queue="gh", detail="a producer without a pod")
    await buffer.flush_once()

    [event] = await manual_storage.jobs.events(queue="gh")
    assert event.kind is EventKind.THROTTLED
