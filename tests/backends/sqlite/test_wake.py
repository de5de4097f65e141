"""How a wait on one bundle learns of commits by others, near and far."""

import sqlite3
import sys
from contextlib import closing
from datetime import timedelta

import anyio
import pytest

from forge_jobs.model.queues import Wake
from forge_jobs.storage.protocols import Storage
from tests.support.factories import (
    QUEUE,
    claim_one,
    done,
    enqueue_one,
    finish,
    held,
    new_job,
    register,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio

LONG = timedelta(seconds=20)
SHORT = timedelta(milliseconds=120)
QUEUES = frozenset({QUEUE})


async def test_an_enqueue_by_another_bundle_of_the_process_is_noticed_once(
    storage: Storage,
) -> None:
    async with await storage.reopen() as other:
        assert other.jobs.store_id == storage.jobs.store_id
        await other.jobs.enqueue([new_job()])
        assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES
        assert not await storage.jobs.wait_for_work(QUEUES, SHORT)


_ENQUEUE = """
import asyncio, sys
from forge_jobs.storage.opening import open_storage
from tests.support.factories import new_job

async def main():
    async with await open_storage(sys.argv[1]) as storage:
        await storage.jobs.enqueue([new_job()])

asyncio.run(main())
"""


async def test_an_enqueue_by_another_process_is_noticed_once(storage: Storage, url: str) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.run_process, [sys.executable, "-c", _ENQUEUE, url])
        assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES
    assert not await storage.jobs.wait_for_work(QUEUES, SHORT)


@pytest.mark.long
async def test_what_another_process_did_between_two_waits_is_noticed(
    storage: Storage, url: str
) -> None:
    assert not await storage.jobs.wait_for_work(QUEUES, timedelta(0))
    await anyio.run_process([sys.executable, "-c", _ENQUEUE, url])
    assert (await storage.jobs.wait_for_work(QUEUES, timedelta(0))).queues == QUEUES


async def test_own_commits_without_news_wake_nobody(storage: Storage) -> None:
    lease = await register(storage)
    await enqueue_one(storage)
    await enqueue_one(storage)
    claimed = await claim_one(storage, lease)
    await storage.jobs.wait_for_work(QUEUES, timedelta(0))
    await storage.jobs.heartbeat(lease, [held(claimed)], timedelta(seconds=15))
    await finish(storage, claimed, done())
    # A job is due all the while: that alone wakes no waiter.
    assert not await storage.jobs.wait_for_work(QUEUES, SHORT)


async def test_a_hint_for_a_queue_not_waited_for_stays_until_it_is(storage: Storage) -> None:
    await enqueue_one(storage)
    assert not await storage.jobs.wait_for_work(frozenset({"other"}), SHORT)
    assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES


async def test_a_ring_from_another_thread_wakes(storage: Storage) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, storage.jobs.wake, Wake(beat=True))
        assert await storage.jobs.wait_for_work(QUEUES, LONG) == Wake(beat=True)


async def test_a_wait_may_be_cancelled_at_any_moment(storage: Storage) -> None:
    for number in range(50):
        with anyio.move_on_after(number * 0.001):
            await storage.jobs.wait_for_work(QUEUES, LONG)
    await enqueue_one(storage)
    assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES


async def test_what_this_process_does_itself_is_not_looked_for(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await register(storage)
    while await storage.jobs.wait_for_work(QUEUES, timedelta(0)):
        pass
    reads: list[object] = []
    database = storage.jobs._database  # type: ignore[attr-defined]
    read = database.read

    async def counted(script: object) -> object:
        reads.append(script)
        return await read(script)

    monkeypatch.setattr(database, "read", counted)
    for _ in range(3):
        await storage.jobs.heartbeat(lease, [], timedelta(seconds=15))
        await enqueue_one(storage)
        assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES
    assert not await storage.jobs.wait_for_work(QUEUES, SHORT)
    assert reads == []


async def test_who_is_woken_asks_nothing_first(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = storage.jobs._database  # type: ignore[attr-defined]
    looks: list[object] = []
    look = database.data_version

    async def counted() -> object:
        looks.append(None)
        return await look()

    monkeypatch.setattr(database, "data_version", counted)
    await storage.jobs.wait_for_work(frozenset(), timedelta(0))
    assert len(looks) == 1
    for _ in range(3):
        await enqueue_one(storage)
        assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES
    assert len(looks) == 1


async def test_a_wait_ends_in_time_though_a_lock_keeps_the_writer_busy(
    storage: Storage,
) -> None:
    with closing(
        sqlite3.connect(storage.jobs._database.path, isolation_level=None)  # type: ignore[attr-defined]
    ) as connection:
        connection.execute("BEGIN IMMEDIATE")
        async with anyio.create_task_group() as group:
            group.start_soon(enqueue_one, storage)
            database = storage.jobs._database  # type: ignore[attr-defined]
            await wait_until(
                lambda: database._writer.is_busy, description="the writer waits for the lock"
            )
            with anyio.fail_after(20):
                assert not await storage.jobs.wait_for_work(QUEUES, SHORT)
            connection.execute("ROLLBACK")
    assert (await storage.jobs.wait_for_work(QUEUES, LONG)).queues == QUEUES
