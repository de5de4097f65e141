"""``--forge-storage``: the kit on shared servers, each process in a place of its own."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from subprocess import PIPE

import psycopg
import pytest
from redis import Redis
from sqlalchemy.ext.asyncio import create_async_engine

from forge_jobs import InvalidInput, JobClient, QueueRuntime, StorageClosed, Unavailable
from forge_jobs.testing import Kit
from forge_jobs.testing.kit.background import background
from forge_jobs.testing.kit.fixtures import lend
from forge_jobs.testing.kit.stores.server import ServerStore
from tests.kit import shop
from tests.support import servers

_URLS: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/jobs.db?synchronous=off",
    "postgres": lambda _: servers.postgres_url(),
    "redis": lambda _: servers.redis_url(),
    "redis-cluster": lambda _: servers.redis_cluster_url(),
}


@pytest.fixture(params=sorted(_URLS))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A server that others use too."""
    return _URLS[request.param](tmp_path)


def test_tests_find_an_empty_store_and_the_time_of_the_machine(url: str) -> None:
    for _ in range(2):
        with lend(url) as lent:
            kit = lent.kit(shop.handlers)
            kit.sync.assert_enqueued(count=0)
            kit.sync.enqueue(shop.split.request([1, 2]))
            kit.sync.enqueue(shop.send_receipt.request(3), delay=86_400)
            assert kit.sync.drain().counts == {"done": 3}
            kit.sync.advance(days=1)
            assert kit.sync.drain().counts == {"done": 1}
            kit.sync.advance(days=10)
            kit.sync.assert_enqueued(count=0)
            kit.sync.enqueue(shop.send_receipt.request(4))


def test_two_at_once_are_two_stores(url: str) -> None:
    with lend(url) as one, lend(url) as other:
        one.kit(shop.handlers).sync.enqueue(shop.pack.request(shop.Order(1)))
        other.kit(shop.handlers).sync.assert_enqueued(count=0)


def test_any_loop_may_use_the_store(url: str) -> None:
    with lend(url) as lent:
        storage, kit = lent.storage, lent.kit(shop.handlers)

        async def enqueue() -> None:
            async with JobClient(storage, shop.handlers) as client:
                await client.enqueue(shop.send_receipt.request(7))
            assert await kit.run_inline(shop.send_receipt, 7) == "7 in attempt 1"

        asyncio.run(enqueue())
        asyncio.run(enqueue())
        with JobClient(storage, shop.handlers).sync as client:
            client.enqueue(shop.send_receipt.request(7))
        kit.sync.assert_enqueued(shop.send_receipt, count=3)
    with pytest.raises(StorageClosed):
        background().run(storage.jobs.counts())


def test_a_pod_of_a_test_runs_on_the_store_and_hears_of_a_new_time(url: str) -> None:
    async def results() -> list[object]:
        async with QueueRuntime(lent.storage, shop.handlers).with_queues("mail").start() as handle:
            now = await handle.enqueue(shop.send_receipt.request(7))
            later = await handle.enqueue(shop.send_receipt.request(8), delay=86_400)
            first = await handle.result(now.job_id, timeout=50)
            await kit.advance(days=1)
            return [first, await handle.result(later.job_id, timeout=50)]

    with lend(url) as lent:
        kit = lent.kit(shop.handlers)
        assert asyncio.run(results()) == ["7 in attempt 1", "8 in attempt 1"]


def test_a_transaction_of_a_test_takes_the_job_along() -> None:
    async def enqueue() -> None:
        engine = create_async_engine(
            servers.postgres_url().replace("postgresql://", "postgresql+asyncpg://")
        )
        async with engine.connect() as connection:
            for order in (1, 2):
                async with connection.begin() as transaction:
                    client = JobClient(lent.storage, shop.handlers)
                    await client.enqueue(shop.send_receipt.request(order), connection=connection)
                    if order == 1:
                        await transaction.rollback()
        await engine.dispose()

    with lend(servers.postgres_url()) as lent:
        asyncio.run(enqueue())
        kit = lent.kit(shop.handlers)
        [job] = kit.sync.assert_enqueued(shop.send_receipt, count=1)
        assert job.payload == '{"order":2}'
        assert kit.sync.drain().counts == {"done": 1}


def test_a_place_that_a_test_has_locked_is_given_up() -> None:
    with lend(servers.postgres_url()) as lent:
        kit = lent.kit(shop.handlers)
        kit.sync.enqueue(shop.pack.request(shop.Order(1)))
        schema = kit.url.rpartition("schema=")[2]
    with psycopg.connect(servers.postgres_url()) as locking:
        locking.execute(f"SELECT * FROM {schema}.forge_jobs FOR UPDATE")
        with lend(servers.postgres_url()) as lent:
            other = lent.kit(shop.handlers)
            assert other.url != kit.url
            other.sync.assert_enqueued(count=0)


def left_on(url: str, own: str, folder: Path) -> list[object]:
    """Records of a place that a server has."""
    name = own.rpartition("=")[2]
    if url.startswith("sqlite"):
        return list(folder.glob("*"))
    if url.startswith("postgresql"):
        with closing(psycopg.connect(url)) as connection:
            query = "SELECT nspname FROM pg_namespace WHERE nspname = %s"
            return list(connection.execute(query, [name]))
    if url.startswith("redis+cluster"):
        return []
    with closing(Redis.from_url(url)) as client:
        return list(client.scan_iter(match=f"{name}:*"))


async def _used_and_removed(url: str, look: Callable[[str], list[object]]) -> list[object]:
    store = await ServerStore.make(url)
    storage = await store.lend()
    await Kit(storage, shop.handlers).enqueue(shop.send_receipt.request(1))
    assert await asyncio.to_thread(look, store.url) != []
    await store.close()
    return await asyncio.to_thread(look, store.url)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_nothing_is_left_of_a_place(kind: str, tmp_path: Path) -> None:
    url = _URLS[kind](tmp_path)
    assert background().run(_used_and_removed(url, lambda own: left_on(url, own, tmp_path))) == []


@pytest.mark.long
def test_the_schema_of_a_killed_process_is_removed_by_the_next_one() -> None:
    url = servers.postgres_url()
    code = f"from tests.kit.test_server_stores import hold; hold({url!r})"
    ended, living = (
        subprocess.Popen([sys.executable, "-c", code], stdout=PIPE, stdin=PIPE, text=True)
        for _ in range(2)
    )
    with ended, living:
        assert ended.stdout is not None
        assert living.stdout is not None
        left, kept = ended.stdout.readline().strip(), living.stdout.readline().strip()
        ended.kill()
        ended.wait()
        assert left_on(url, left, Path()) != []

        async def use_one() -> None:
            store = await ServerStore.make(url)
            await store.lend()
            await store.close()

        background().run(use_one())
        assert left_on(url, left, Path()) == []
        assert left_on(url, kept, Path()) != []


def hold(url: str) -> None:
    """Keep a place with a store until the end of the input."""

    async def take() -> ServerStore:
        store = await ServerStore.make(url)
        await store.lend()
        return store

    store = background().run(take())
    print(store.url, flush=True)
    sys.stdin.read()
    background().run(store.close())


def test_the_name_of_the_user_comes_first(tmp_path: Path) -> None:
    postgres, redis = servers.postgres_url(), servers.redis_url()
    for url, begins in (
        (f"sqlite:///{tmp_path}/a.b/jobs.db", f"sqlite:///{tmp_path}/a.b/jobs-"),
        (f"sqlite:///{tmp_path}/a.b/jobs", f"sqlite:///{tmp_path}/a.b/jobs-"),
        (f"{postgres}?schema=mine&pool_size=3", f"{postgres}?schema=mine_"),
        (postgres, f"{postgres}?schema=forge_test_"),
        (f"{redis}?prefix=mine", f"{redis}?prefix=mine_"),
    ):
        assert background().run(ServerStore.make(url)).url.startswith(begins)


@pytest.mark.parametrize("wrong", ["mysql://here/db", "jobs.db", "postgresql://here", "sqlite:"])
def test_a_url_that_is_wrong_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidInput, match=r"^url"), lend(wrong):
        raise AssertionError("lent")


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1"), lend("redis://127.0.0.1:1/0"):
        raise AssertionError("lent")


def test_the_file_of_the_user_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
    with lend(f"sqlite:///{path}") as lent:
        lent.kit(shop.handlers).sync.enqueue(shop.send_receipt.request(1))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
