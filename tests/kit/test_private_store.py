"""The store of a test: empty, and beyond the reach of what an earlier test left running."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from forge_jobs import JobClient, QueueRuntime, StorageClosed
from forge_jobs.testing import Kit
from forge_jobs.testing.kit.background import background
from forge_jobs.testing.kit.fixtures import lend
from forge_jobs.testing.kit.stores.private import PrivateStore
from tests.kit import shop


def file_of(kit: Kit) -> Path:
    """The file behind the store."""
    return Path(kit.url.removeprefix("sqlite:///").partition("?")[0])


def test_the_next_test_finds_nothing() -> None:
    with lend() as lent:
        kit = lent.kit(shop.handlers)
        kit.sync.enqueue(shop.split.request([1, 2]))
        kit.sync.drain()
        first = file_of(kit)
    with lend() as lent:
        kit = lent.kit(shop.handlers)
        assert file_of(kit) == first
        kit.sync.assert_enqueued(count=0)
        assert background().run(kit.storage.config.queues()) == []
        # Also what a connection has learned of the queues is forgotten.
        kit.sync.enqueue(shop.split.request([1, 2]))
        assert kit.sync.drain().counts == {"done": 3}


def test_tables_of_a_test_go_with_the_test() -> None:
    with lend() as lent, closing(sqlite3.connect(file_of(lent.kit(shop.handlers)))) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        connection.commit()
    for _ in range(2):
        with lend() as lent:
            kit = lent.kit(shop.handlers)
            with closing(sqlite3.connect(file_of(kit))) as connection:
                found = connection.execute(
                    "SELECT count(*) FROM sqlite_master WHERE name = 'orders'"
                ).fetchone()
            assert found == (0,)
            kit.sync.enqueue(shop.pack.request(shop.Order(1)))
            assert kit.sync.drain().counts == {"done": 1}


def test_two_at_once_are_two_stores() -> None:
    with lend() as one, lend() as other:
        one.kit(shop.handlers).sync.enqueue(shop.pack.request(shop.Order(1)))
        other.kit(shop.handlers).sync.assert_enqueued(count=0)


def test_any_loop_may_use_the_store() -> None:
    with lend() as lent:
        storage, kit = lent.storage, lent.kit(shop.handlers)

        async def enqueue() -> None:
            async with JobClient(storage, shop.handlers) as client:
                await client.enqueue(shop.send_receipt.request(7))

        asyncio.run(enqueue())
        asyncio.run(enqueue())
        with JobClient(storage, shop.handlers).sync as client:
            client.enqueue(shop.send_receipt.request(7))
        kit.sync.assert_enqueued(shop.send_receipt, count=3)


def test_a_call_whose_loop_has_ended_harms_no_other() -> None:
    with lend() as lent:
        kit = lent.kit(shop.handlers)
        writer_is_busy, go_on = threading.Event(), threading.Event()

        def hold(_: sqlite3.Connection) -> None:
            writer_is_busy.set()
            go_on.wait()

        writer = cast("Any", lent.storage.jobs)._database._writer

        async def leave() -> None:
            held = asyncio.ensure_future(writer.run(hold))
            await asyncio.to_thread(writer_is_busy.wait)
            waiting = asyncio.ensure_future(kit.enqueue(shop.pack.request(shop.Order(1))))
            await asyncio.to_thread(lambda: None)
            held.cancel()
            waiting.cancel()

        asyncio.run(leave())
        go_on.set()
        kit.sync.enqueue(shop.pack.request(shop.Order(2)))
        kit.sync.assert_enqueued(payload={"order": {"number": 2}}, count=1)


def test_what_a_test_leaves_running_finds_the_store_closed() -> None:
    with lend() as lent:
        storage = lent.storage
    with pytest.raises(StorageClosed, match="its test has ended"):
        background().run(storage.jobs.counts())
    with pytest.raises(StorageClosed):
        background().run(storage.jobs.enqueue([]))


def test_a_pod_of_a_test_runs_on_the_store() -> None:
    async def result_of_a_pod() -> object:
        runtime = QueueRuntime(lent.storage, shop.handlers).with_queues("mail")
        async with runtime.start() as handle:
            outcome = await handle.enqueue(shop.send_receipt.request(7))
            return await handle.result(outcome.job_id, timeout=30)

    with lend() as lent:
        assert asyncio.run(result_of_a_pod()) == "7 in attempt 1"


def test_a_file_that_a_program_writes_to_is_given_up() -> None:
    with lend() as lent:
        kit = lent.kit(shop.handlers)
        first = file_of(kit)
        writing = sqlite3.connect(first, isolation_level=None)
        writing.execute("BEGIN IMMEDIATE")
    with closing(writing), lend() as lent:
        assert file_of(lent.kit(shop.handlers)) != first


async def _made_and_closed() -> Path:
    store = await PrivateStore.make()
    await store.lend()
    path = store.path
    await store.close()
    return path


def test_nothing_is_left_of_a_store() -> None:
    path = background().run(_made_and_closed())
    assert not path.parent.exists()
