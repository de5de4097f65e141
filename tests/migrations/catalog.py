"""The contents of an SQL database, read past the store."""

import sqlite3
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import asyncpg


async def query(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement on the database, in the schema that the URL names."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///").partition("?")[0]
        with closing(sqlite3.connect(path)) as file, file:
            return file.execute(statement).fetchall()
    parts = urlsplit(url)
    [schema] = parse_qs(parts.query).get("schema", ["public"])
    connection = await asyncpg.connect(
        parts._replace(query="").geturl(), server_settings={"search_path": schema}
    )
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


async def names_in(url: str) -> set[str]:
    """Return all tables and indexes of the product."""
    if url.startswith("sqlite"):
        statement = "SELECT name FROM sqlite_master WHERE name LIKE 'forge%'"
    else:
        statement = (
            "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
            " AND relname LIKE 'forge%'"
        )
    return {str(name) for (name,) in await query(url, statement)}
