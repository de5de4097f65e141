"""Spoils single fields of stored records, by the driver alone."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
from sqlalchemy import BigInteger, Boolean, Column, Table

from forge_jobs.storage.redis.driver.address import parse_url
from tests.support.backends import url_of
from tests.support.key_prefixes import looker_of

NOT_UTF8 = ("a text of bytes that are no character", b"\xff\xfe")

_FAR = 2**62
"""Microseconds beyond every date."""


def wrong_values(backend: str, column: Column[Any]) -> Sequence[object]:
    """Return values that may stand in a column by mistake."""
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
        # As a restore without constraints leaves a record.
        for name in ("jobs", "handovers"):
            constraint = f"forge_{name}_known_status"
            await connection.execute(
                f"ALTER TABLE forge_{name} DROP CONSTRAINT IF EXISTS {constraint}"
            )
        text = _update(table, list(changes), list(key), numbered)
        assert await connection.execute(text, *values) == "UPDATE 1"
    finally:
        await connection.close()


async def execute(backend: str, folder: Path, *statements: str) -> None:
    """Run statements on a SQL store, by the driver alone."""
    if backend == "sqlite":
        await asyncio.to_thread(_execute, folder / "jobs.db", statements)
        return
    connection = await asyncpg.connect(await url_of(backend, folder))
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _execute(path: Path, statements: Sequence[str]) -> None:
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


async def stored_row(
    backend: str, folder: Path, table: Table, key: Mapping[str, object]
) -> dict[str, Any]:
    """Return the columns of one row without the key, as the driver gives them."""
    names = [column.name for column in table.columns if column.name not in key]
    chosen = f"SELECT {', '.join(names)} FROM {table.name} WHERE "
    if backend == "sqlite":
        text = chosen + " AND ".join(f"{name} = ?" for name in key)
        found = await asyncio.to_thread(_one, folder / "jobs.db", text, [*key.values()])
        return dict(zip(names, found, strict=True))
    connection = await asyncpg.connect(await url_of(backend, folder))
    try:
        marks = (f"{name} = ${number}" for number, name in enumerate(key, 1))
        row = await connection.fetchrow(chosen + " AND ".join(marks), *key.values())
    finally:
        await connection.close()
    assert row is not None
    return dict(row)


def _one(path: Path, text: str, values: Sequence[Any]) -> Sequence[Any]:
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        found = connection.execute(text, values).fetchone()
    assert found is not None
    return tuple(found)


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

    :param base: of a queue, by name, or "" for the fleet's
    :param commands: each with the part of the key behind the base in second place
    """
    keys = parse_url(await url_of(backend, folder)).keys
    prefix = keys.queue(base) if base else keys.fleet
    run: Any = looker_of(backend).execute_command
    return [run(name, f"{prefix}:{key}", *rest) for name, key, *rest in commands]


Use = Callable[[], Awaitable[None]]
"""A call made beside a spoilt record, and then on the record."""


async def each_wrong_value(
    backend: str, folder: Path, table: Table, key: Mapping[str, object], use: Use, mend: Use
) -> None:
    """Spoil each column of a row in each way: ``use`` and ``mend`` must not raise."""
    wrong, number = [], 0
    sound = await stored_row(backend, folder, table, key)
    for column in table.columns:
        if column.name in key:
            continue
        for value in wrong_values(backend, column):
            number += 1
            await spoil_row(backend, folder, table, key, {column.name: value})
            try:
                await use()
                await mend()
            except Exception as error:
                wrong.append(f"{column.name}={value!r}: {type(error).__name__}: {str(error)[:200]}")
            await spoil_row(backend, folder, table, key, sound)
    assert not wrong, "\n".join([f"{len(wrong)} of {number}", *wrong])


async def each_wrong_field(
    backend: str, folder: Path, base: str, key: str, use: Use, mend: Use
) -> None:
    """The same for the fields of a hash."""
    [flat] = await redis_commands(backend, folder, base, ("HGETALL", key))
    wrong, number = [], 0
    for name in flat:
        for value in ("spoilt {", "", "1.5", str(2**62), b"\xff\xfe"):
            number += 1
            await redis_commands(backend, folder, base, ("HSET", key, name, value))
            try:
                await use()
                await mend()
            except Exception as error:
                wrong.append(f"{name!r}={value!r}: {type(error).__name__}: {str(error)[:200]}")
            flat_sound = [part for pair in flat.items() for part in pair]
            await redis_commands(backend, folder, base, ("DEL", key), ("HSET", key, *flat_sound))
    assert not wrong, "\n".join([f"{len(wrong)} of {number}", *wrong])


async def each_wrong_text(
    folder: Path,
    base: str,
    key: str,
    entry: str,
    values: Sequence[str | bytes],
    use: Use,
    mend: Use,
) -> None:
    """The same for an entry of a hash on Redis that is a text, with these values."""
    wrong = []
    [sound] = await redis_commands("redis", folder, base, ("HGET", key, entry))
    for value in values:
        await redis_commands("redis", folder, base, ("HSET", key, entry, value))
        try:
            await use()
            await mend()
        except Exception as error:
            wrong.append(f"{value!r}: {type(error).__name__}: {str(error)[:200]}")
        await redis_commands("redis", folder, base, ("HSET", key, entry, sound))
    assert not wrong, "\n".join([f"{len(wrong)} of {len(values)}", *wrong])


def _cut(value: bytes) -> str:
    return f"{value[:20]!r}..{value[-30:]!r}"


async def each_wrong_entry(
    backend: str, folder: Path, base: str, key: str, entry: str, use: Use, mend: Use
) -> None:
    """The same for an entry of a hash that is a packed list, and each value of that list."""
    [sound] = await redis_commands(backend, folder, base, ("HGET", key, entry))
    parts = msgspec.msgpack.decode(sound)
    encode = msgspec.msgpack.encode
    values: list[bytes] = [b"spoilt {", b"", b"\xff\xfe", b"\x90", b"\x80"]
    for index in range(len(parts)):
        others: tuple[object, ...] = ("spoilt {", -1, 2**62, None, [], 1.5)
        values += (encode([*parts[:index], each, *parts[index + 1 :]]) for each in others)
        cut = [encode(each) for each in parts]
        cut[index] = b"\xa2\xff\xfe"
        values.append(bytes([0x90 + len(parts)]) + b"".join(cut))
    wrong = []
    for value in values:
        await redis_commands(backend, folder, base, ("HSET", key, entry, value))
        try:
            await use()
            await mend()
        except Exception as error:
            wrong.append(f"{_cut(value)}: {type(error).__name__}: {str(error)[:200]}")
        await redis_commands(backend, folder, base, ("HSET", key, entry, sound))
    assert not wrong, "\n".join([f"{len(wrong)} of {len(values)}", *wrong])
