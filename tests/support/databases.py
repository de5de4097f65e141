"""One PostgreSQL database per folder, copied from one that has the schema."""

import asyncio
import atexit
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from forge_jobs.storage.opening import open_storage
from tests.support import servers

_RUN = f"forge_test_{secrets.token_hex(4)}"
_TEMPLATE = f"{_RUN}_template"
_made: dict[Path, str] = {}
_template_made: list[bool] = []


async def url_of(folder: Path) -> str:
    """The URL of the folder's database, made with an empty store when there is none."""
    if folder not in _made:
        if not _template_made:
            await _make_template()
        name = f"{_RUN}_{secrets.token_hex(6)}"
        async with _superuser() as connection:
            # Copying files is four times as quick as the log for a database of this size.
            await connection.execute(
                f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy"
            )
        _made[folder] = name
    return _url(_made[folder])


async def forget(folder: Path) -> None:
    """Drop the folder's database, if it has one."""
    name = _made.pop(folder, None)
    if name is not None:
        await _drop([name])


async def _make_template() -> None:
    async with _superuser() as connection:
        await connection.execute(f"CREATE DATABASE {_TEMPLATE}")
    await (await open_storage(_url(_TEMPLATE))).aclose()
    _template_made.append(True)
    if not servers.are_ours("postgres"):
        atexit.register(lambda: asyncio.run(_drop([*_made.values(), _TEMPLATE])))


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
