"""Empties a store while programs use it, as FLUSHALL and DELETE do."""

import asyncio
import sqlite3
from contextlib import aclosing, closing
from pathlib import Path

import asyncpg

from forge_jobs.storage.sql.base.tables import pods
from forge_jobs.storage.sql.progress.tables import metadata
from tests.support.backends import url_of
from tests.support.key_prefixes import client_of

# Pods last: once they are gone the fleet comes back, and must find the rest gone.
_TABLES = sorted(
    (table.name for table in metadata.sorted_tables), key=lambda name: name == pods.name
)


async def empty(backend: str, folder: Path) -> None:
    """Delete every row or key of the folder's store. Tables stay."""
    url = await url_of(backend, folder)
    if backend == "sqlite":
        await asyncio.to_thread(_empty_file, folder / "jobs.db")
    elif backend == "postgres":
        await _empty_database(url)
    else:
        await _empty_prefix(backend, url.partition("prefix=")[2])


def _empty_file(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for table in _TABLES:
            connection.execute(f"DELETE FROM {table}")
        connection.execute("COMMIT")


async def _empty_database(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        # Not in one transaction, which would lock in another order than those of the fleet.
        for table in _TABLES:
            await connection.execute(f"DELETE FROM {table}")
    finally:
        await connection.close()


async def _empty_prefix(backend: str, prefix: str) -> None:
    async with aclosing(client_of(backend)) as client:
        pipeline = client.pipeline(transaction=False)
        async for key in client.scan_iter(match=f"*{prefix}*", count=1000):
            pipeline.execute_command("UNLINK", key)
        await pipeline.execute()
