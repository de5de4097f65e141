"""What an idle pod asks of its store, as the store counts it."""

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import asyncpg
from redis.asyncio import Redis
from sqlalchemy import event
from sqlalchemy.engine import Engine

Count = Callable[[], Awaitable[int]]


def counter(url: str) -> Count:
    """Reads how much the store has been asked so far; one store is used at a time.

    SQLite: statements; its change check is none. PostgreSQL: transactions of the database, which
    tell within a second. Redis: commands of one server, those inside scripts too.
    """
    if url.startswith("sqlite"):
        return _sqlite()
    return _postgres(url) if url.startswith("postgres") else _redis(url)


def _sqlite() -> Count:
    statements = 0

    def counted(*_: object) -> None:
        nonlocal statements
        statements += 1

    async def read() -> int:
        return statements

    event.listen(Engine, "before_cursor_execute", counted)
    return read


def _postgres(url: str) -> Count:
    async def read() -> int:
        connection = await asyncpg.connect(urlsplit(url)._replace(query="").geturl())
        try:
            return int(
                await connection.fetchval(
                    "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
                )
            )
        finally:
            await connection.close()

    return read


def _redis(url: str) -> Count:
    async def read() -> int:
        async with Redis.from_url(urlsplit(url)._replace(query="").geturl()) as client:
            stats = await client.info("commandstats")
        return sum(int(each["calls"]) for each in stats.values())

    return read
