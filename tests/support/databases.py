"""A PostgreSQL database per folder, copied from a template that has the schema."""

import asyncio
import atexit
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg

from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.sql.progress.tables import metadata
from forge_jobs.testing.kit.stores.places import left_by_the_dead, own_name
from tests.support import servers

_RUN = own_name("forge_test")
_TEMPLATE = f"{_RUN}_template"
_made: dict[Path, str] = {}
_spare: list[str] = []
_looked_into: dict[str, "psycopg.Connection[tuple[Any, ...]]"] = {}
_template_made: list[bool] = []

# A claim that passes so many dead entries of these indexes leaves a cursor, and then claims look at
# what comes before it only from time to time. The tests that follow know of no cursor.
_PASSED_BY_CLAIMS = """
    SELECT max(pg_relation_size(name::regclass)) / current_setting('block_size')::int
    FROM unnest(ARRAY['forge_jobs_ready', 'forge_jobs_ready_by_kind']) AS index (name)
"""
_MOST_PAGES = 10

# What a test has left running ends here, and not in the database of the next one.
_END_OTHERS = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND backend_type = 'client backend'"
)


async def url_of(folder: Path) -> str:
    """The URL of the folder's database, made with an empty store when there is none."""
    if folder not in _made:
        take(folder)
        if folder not in _made:
            _made[folder] = await _make()
        _stop_looking(_made[folder])
    return _url(_made[folder])


def take(folder: Path) -> None:
    """Give the folder a database that was passed on, if there is one.

    Other than :func:`url_of` for a new folder, this leaves the connection open that looks into the
    database. For tests that count no sessions.
    """
    if folder not in _made and _spare:
        _made[folder] = _spare.pop()


async def look_into(folder: Path) -> "psycopg.Connection[tuple[Any, ...]]":
    """A connection to the folder's database, kept as long as the database is."""
    url = await url_of(folder)
    name = _made[folder]
    if name not in _looked_into:
        _looked_into[name] = psycopg.connect(url, autocommit=True)
        atexit.register(_stop_looking, name)
    return _looked_into[name]


async def forget(folder: Path) -> None:
    """Drop the database of the folder, if there is one."""
    name = _made.pop(folder, None)
    if name is not None:
        _stop_looking(name)
        await _drop([name])


async def pass_on(folder: Path) -> None:
    """Give the folder's database, emptied, to the next folder that asks for one.

    For tests that change nothing but rows: making a database takes longer than most tests. A
    database with many dead rows goes.
    """
    if folder in _made:
        connection = await look_into(folder)
        pages = connection.execute(_PASSED_BY_CLAIMS).fetchone()
        if pages is None or pages[0] > _MOST_PAGES:
            await forget(folder)
            return
        connection.execute(_END_OTHERS)
        connection.execute(_empty())
        _spare.append(_made.pop(folder))


def _stop_looking(name: str) -> None:
    if name in _looked_into:
        _looked_into.pop(name).close()


@cache
def _empty() -> str:
    tables = reversed(metadata.sorted_tables)
    return "; ".join(f"DELETE FROM {table.name}" for table in tables)


async def _make() -> str:
    if not _template_made:
        await _make_template()
    name = f"{_RUN}_{secrets.token_hex(6)}"
    async with _superuser() as connection:
        # Copying files is four times as quick as the log for a database of this size.
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy")
    return name


async def _make_template() -> None:
    async with _superuser() as connection:
        found = await connection.fetch("SELECT datname FROM pg_database")
        await _drop(left_by_the_dead([row[0] for row in found], "forge_test"))
        await connection.execute(f"CREATE DATABASE {_TEMPLATE}")
    await (await open_storage(_url(_TEMPLATE))).aclose()
    _template_made.append(True)
    if not servers.are_ours("postgres"):
        atexit.register(lambda: asyncio.run(_drop([*_made.values(), *_spare, _TEMPLATE])))


async def _drop(names: list[str]) -> None:
    async with _superuser() as connection:
        for name in names:
            # With force: what a killed pod has left open takes a moment to be noticed.
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@asynccontextmanager
async def _superuser() -> AsyncGenerator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(servers.postgres_url())
    try:
        yield connection
    finally:
        await connection.close()


def _url(database: str) -> str:
    return urlsplit(servers.postgres_url())._replace(path=f"/{database}").geturl()
