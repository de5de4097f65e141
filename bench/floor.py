"""The floor of a pickup: ``python -m bench.floor postgres``.

Ours and the bare statements of the driver run by turns in one process, one job every 50 ms, so both
meet the same machine and the same cold caches. The bare side stores a row and takes it, with the
same durability, on two connections, without an index but one and without a fence or a count.
"""

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import asyncpg
from redis.asyncio import Redis

from bench.child import loop_factory
from forge_jobs import EnqueueRequest, HandlerRegistry, JobClient, QueueRuntime, open_storage
from forge_jobs.testing.servers import PostgresServer, RedisServer

GAP_S = 0.05
BLOCK = 60
_WARM_UP = 20

OneJob = Callable[[], Awaitable[float]]
"""Stores one job and takes it. Returns the seconds from before the one to after the other."""

_PUT = """
redis.call('HSET', KEYS[1] .. ARGV[1], 'p', ARGV[2])
return redis.call('ZADD', KEYS[1], 1, ARGV[1])
"""
_TAKE = "return redis.call('HGETALL', KEYS[1] .. redis.call('ZPOPMIN', KEYS[1])[1])"


async def bare_postgres(url: str, stack: AsyncExitStack) -> OneJob:
    """An ``INSERT`` and an ``UPDATE``, prepared, each a synced commit."""
    ours, theirs = [await asyncpg.connect(url) for _ in range(2)]
    stack.push_async_callback(ours.close)
    stack.push_async_callback(theirs.close)
    await ours.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, p text, token bigint)")
    await ours.execute("CREATE INDEX ON bare (id) WHERE token IS NULL")
    put = await ours.prepare("INSERT INTO bare (p) VALUES ($1)")
    take = await theirs.prepare(
        "UPDATE bare SET token = 1 WHERE id = (SELECT id FROM bare WHERE token IS NULL"
        " ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, p"
    )

    async def one() -> float:
        sent = time.monotonic()
        await put.fetch("{}")
        assert await take.fetch()
        return time.monotonic() - sent

    return one


async def bare_redis(url: str, stack: AsyncExitStack) -> OneJob:
    """Two scripts of two commands each."""
    ours, theirs = Redis.from_url(url), Redis.from_url(url)
    stack.push_async_callback(ours.aclose)
    stack.push_async_callback(theirs.aclose)
    put, take = await ours.script_load(_PUT), await theirs.script_load(_TAKE)

    async def one() -> float:
        sent = time.monotonic()
        await ours.evalsha(put, 1, "bare", "id", "{}")
        assert await theirs.evalsha(take, 1, "bare")
        return time.monotonic() - sent

    return one


async def bare_sqlite(url: str, stack: AsyncExitStack) -> OneJob:
    """An ``INSERT`` that is synced and an ``UPDATE`` that need not be, on the caller's thread."""
    path = url.removeprefix("sqlite:///") + ".bare"
    opened = closing(sqlite3.connect(path, isolation_level=None))
    connection = stack.enter_context(opened)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE bare (id integer PRIMARY KEY, p text, token int)")

    async def one() -> float:
        sent = time.monotonic()
        connection.execute("PRAGMA synchronous = full")
        connection.execute("INSERT INTO bare (p) VALUES ('{}')")
        connection.execute("PRAGMA synchronous = normal")
        taken = connection.execute(
            "UPDATE bare SET token = 1 WHERE id = (SELECT max(id) FROM bare) RETURNING id, p"
        )
        assert taken.fetchall()
        return time.monotonic() - sent

    return one


BARE = {"postgres": bare_postgres, "redis": bare_redis, "sqlite": bare_sqlite}


@asynccontextmanager
async def ours_at(url: str) -> AsyncIterator[OneJob]:
    """A pod of ten workers in the process of the client."""
    handlers, arrived = HandlerRegistry(), asyncio.Event()
    at = 0.0

    @handlers.job("floor.stamp", queue="floor", keep_result=False)
    async def stamp() -> None:
        nonlocal at
        at = time.monotonic()
        arrived.set()

    async def one() -> float:
        arrived.clear()
        sent = time.monotonic()
        await client.enqueue(EnqueueRequest("floor.stamp", {}))
        await arrived.wait()
        return at - sent

    async with (
        await open_storage(url) as storage,
        JobClient(storage, handlers) as client,
        QueueRuntime(storage, handlers).with_queues(floor=10).start(),
    ):
        yield one


async def measure(kind: str, url: str, rounds: int) -> None:
    """Print medians of the rounds' medians, with the least and the greatest."""
    found: dict[str, list[float]] = {"ours": [], "bare": []}
    async with AsyncExitStack() as stack:
        ways = {
            "ours": await stack.enter_async_context(ours_at(url)),
            "bare": await BARE[kind](url, stack),
        }
        for way in ways.values():
            for _ in range(_WARM_UP):
                await way()
        for _ in range(rounds):
            for name, way in ways.items():
                times = []
                for _ in range(BLOCK):
                    await asyncio.sleep(GAP_S)
                    times.append(1_000 * await way())
                found[name].append(statistics.median(times))
    for name, medians in found.items():
        middle = statistics.median(medians)
        print(f"{kind:<9} {name}  {middle:.2f} ms  min {min(medians):.2f}  max {max(medians):.2f}")
    ratio = statistics.median(
        one / other for one, other in zip(found["ours"], found["bare"], strict=True)
    )
    print(f"{kind:<9} ours to bare {ratio:.2f}, load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.floor", description=__doc__)
    parser.add_argument("kind", choices=sorted(BARE))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=loop_factory(True)) as runner:
        if arguments.kind == "sqlite":
            with tempfile.TemporaryDirectory() as folder:
                url = f"sqlite:///{Path(folder) / 'floor.db'}"
                runner.run(measure("sqlite", url, arguments.rounds))
            return
        is_postgres = arguments.kind == "postgres"
        server = PostgresServer(durable=True) if is_postgres else RedisServer()
        try:
            server.start()
            runner.run(measure(arguments.kind, server.url, arguments.rounds))
        finally:
            server.close()


if __name__ == "__main__":
    main()
