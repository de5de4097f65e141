"""A snapshot is read from the events and records that real pods make."""

import asyncio
import threading
from datetime import timedelta

import anyio
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.events import EventKind, PodNote, TimelineEvent, grace_in, pod_note
from forge_jobs.operating.snapshots.reading import read_snapshot
from forge_jobs.policy.judgement.problems.snapshot import PodSeen, QueueSeen
from forge_jobs.storage.protocols import Storage
from tests.support.runtimes import QUEUE, a_runtime, quick_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> None:
    """The store's own: real pods live by that."""


async def queue_seen(storage: Storage) -> QueueSeen:
    [queue] = (await read_snapshot(storage)).queues
    return queue


async def events_of(storage: Storage, kind: EventKind) -> list[TimelineEvent]:
    return [each for each in await storage.jobs.events(queue="") if each.kind is kind]


async def test_since_when_a_queue_is_unserved_is_what_its_pod_said_as_it_left(
    storage: Storage,
) -> None:
    runtime = a_runtime(storage, HandlerRegistry(), version="7a11, dirty")
    async with runtime.start():
        served = await queue_seen(storage)
        assert (served.pods, served.unserved_since) == (1, None)

    left = await queue_seen(storage)

    [stopped] = await events_of(storage, EventKind.POD_STOPPED)
    assert (left.pods, left.unserved_since) == (0, stopped.at)
    assert left.served_by == "pods of version 7a11  dirty"


async def test_a_pod_that_drains_says_so_with_its_grace(storage: Storage) -> None:
    handlers = HandlerRegistry()
    begun, may_end = anyio.Event(), anyio.Event()

    @handlers.job("slow", queue=QUEUE)
    async def slow() -> None:
        begun.set()
        await may_end.wait()

    settings = quick_settings(grace=timedelta(seconds=40))
    async with a_runtime(storage, handlers, settings=settings).start() as handle:
        await handle.enqueue(slow.request())
        await begun.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(handle.stop)

            async def drains() -> bool:
                [pod] = (await read_snapshot(storage)).pods
                return pod.draining_since is not None

            await wait_until(drains, description="the pod has said that it drains")
            [asked] = await events_of(storage, EventKind.POD_DRAINING)
            [pod] = (await read_snapshot(storage)).pods
            queue = await queue_seen(storage)
            may_end.set()
    assert (pod.draining_since, pod.grace) == (asked.at, timedelta(seconds=40))
    assert (queue.pods, queue.unserved_since) == (0, asked.at)


async def test_a_blocked_event_loop_is_seen_from_elsewhere_with_its_place(
    storage: Storage,
) -> None:
    handlers = HandlerRegistry()
    may_end = threading.Event()

    @handlers.job("greedy", queue=QUEUE)
    async def greedy() -> None:
        may_end.wait(60)

    async def watch() -> PodSeen:
        async with await storage.reopen() as own:

            async def is_seen() -> PodSeen | None:
                [pod] = (await read_snapshot(own)).pods
                return pod if pod.blocked_since else None

            seen: PodSeen = await wait_until(is_seen, description="the pod's loop is blocked")
            return seen

    def look() -> PodSeen:
        try:
            return asyncio.run(watch())
        finally:
            may_end.set()

    settings = quick_settings(blocked_after=timedelta(milliseconds=300))
    async with a_runtime(storage, handlers, settings=settings).start() as handle:
        before = await storage.cron.now()
        other = asyncio.create_task(asyncio.to_thread(look))
        await handle.enqueue(greedy.request())
        seen = await other

        async def turns() -> bool:
            [pod] = (await read_snapshot(storage)).pods
            return pod.blocked_since is None

        await wait_until(turns, description="the pod says that its loop turns")
    assert seen.blocked_since is not None
    assert before <= seen.blocked_since <= await storage.cron.now()
    assert seen.blocked_in == f"{__name__}.{greedy.__qualname__}"


@pytest.mark.parametrize("queues", [(), ("a",), ("a b", "serves", "c; d")])
def test_the_note_of_a_pod_reads_as_itself(queues: tuple[str, ...]) -> None:
    note = PodNote(version="1.2", label="web worker", queues=queues)
    assert pod_note(str(note)) == note


@pytest.mark.parametrize("detail", ["", "term 3", "version 1", "version 1, label x", "a, b, c"])
def test_a_detail_of_another_release_is_no_note(detail: str) -> None:
    assert pod_note(detail) == PodNote()
    assert grace_in(detail) is None
