"""Spoils single fields of stored records, by the driver alone."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import asyncpg
from sqlalchemy import BigInteger, Boolean, Column, Table

from forge_jobs.storage.redis.address import parse_url
from tests.support.backends import url_of
from tests.support.key_prefixes import client_of

NOT_UTF8 = ("a text of bytes that are no character", b"\xff\xfe")

_FAR = 2**62
"""Microseconds beyond every date."""


def wrong_values(backend: str, column: Column[Any]) -> Sequence[object]:
    """What may stand in a column by mistake."""
    if backend == "sqlite":
        # Which keeps anything but NULL anywhere.
        return ("spoilt {", b"\xff\xfe", NOT_UTF8, 1.5, _FAR, "[1, {}]")
    if isinstance(column.type, BigInteger):
        return (_FAR, -_FAR)
    if isinstance(column.type, Boolean):
        return (True,)
    if column.type.python_type is int:
        return (2**31 - 1, -(2**31))
    return ("spoilt {", "[1, {}]", "")


async def spoil_row(
    backend: str, folder: Path, table: Table, key: Mapping[str, object], changes: Mapping[str, Any]
) -> None:
    """Write values into one row."""
    names = [*changes, *key]
    values = [*changes.values(), *key.values()]
    if backend == "sqlite":
        marks = ["CAST(? AS TEXT)" if value == NOT_UTF8 else "?" for value in values]
        values = [value[1] if value == NOT_UTF8 else value for value in values]
        text = _update(table, list(changes), list(key), marks)
        await asyncio.to_thread(_run, folder / "jobs.db", text, values)
        return
    numbered = [f"${number}" for number in range(1, len(names) + 1)]
    connection = await asyncpg.connect(await url_of(backend, folder))
    try:
        text = _update(table, list(changes), list(key), numbered)
        assert await connection.execute(text, *values) == "UPDATE 1"
    finally:
        await connection.close()


def _update(table: Table, changed: Sequence[str], key: Sequence[str], marks: Sequence[str]) -> str:
    each = iter(marks)
    sets = ", ".join(f"{name} = {next(each)}" for name in changed)
    where = " AND ".join(f"{name} = {next(each)}" for name in key)
    return f"UPDATE {table.name} SET {sets} WHERE {where}"


def _run(path: Path, text: str, values: Sequence[Any]) -> None:
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        assert connection.execute(text, values).rowcount == 1


async def redis_commands(
    backend: str, folder: Path, base: str, *commands: tuple[Any, ...]
) -> list[Any]:
    """Run commands on keys under a base.

    :param base: of a queue, by its name; "" for the fleet's
    :param commands: each with the part of its key behind the base in second place
    """
    keys = parse_url(await url_of(backend, folder)).keys
    prefix = keys.queue(base) if base else keys.fleet
    async with aclosing(client_of(backend)) as client:
        return [
            await client.execute_command(name, f"{prefix}:{key}", *rest)
            for name, key, *rest in commands
        ]
