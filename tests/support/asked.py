"""Calls to any store, seen where they leave this process."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest
from redis.asyncio.connection import Connection
from sqlalchemy import Engine, event

from forge_jobs.storage.redis.driver import connections
from forge_jobs.storage.sql.base.transaction import HotStatement
from forge_jobs.storage.sql.sqlite.statements import SqliteTx

Note = Callable[[SqliteTx, HotStatement, Sequence[Mapping[str, Any]]], None]


@contextmanager
def handed_to_the_driver(note: Note) -> Iterator[None]:
    """Calls ``note``, on the connection's thread, before a statement that passes SQLAlchemy by."""
    seam: Any = SqliteTx
    rows, put = seam.rows, seam.put

    def noted_rows(
        self: SqliteTx, statement: HotStatement, values: Mapping[str, Any], *more: Any
    ) -> Any:
        note(self, statement, [values])
        return rows(self, statement, values, *more)

    def noted_put(
        self: SqliteTx, statement: HotStatement, values: Sequence[Mapping[str, Any]]
    ) -> None:
        note(self, statement, values)
        put(self, statement, values)

    seam.rows, seam.put = noted_rows, noted_put
    try:
        yield
    finally:
        seam.rows, seam.put = rows, put


def beside_notices(seen: Counter[str]) -> int:
    """Return how many statements there were beside the notices that follow commits on PostgreSQL.

    A process sends them in the background, so one of an earlier call may come at any moment.
    """
    return sum(count for text, count in seen.items() if not text.startswith("SELECT pg_notify("))


@contextmanager
def asked() -> Iterator[Counter[str]]:
    """Counts SQL statements by their text, and Redis commands by their name or script."""
    seen: Counter[str] = Counter()
    real = connections.converse

    def note(_c: object, _k: object, text: str, parameters: object, *_: object) -> None:
        seen[text] += len(parameters) if isinstance(parameters, list) else 1

    def note_direct(
        _s: SqliteTx, statement: HotStatement, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        seen[str(statement.core)] += len(rows)

    async def converse(
        connection: Connection, commands: Sequence[connections.Command]
    ) -> list[Any]:
        seen.update(" ".join(map(str, command[:2])) for command in commands)
        return await real(connection, commands)

    def heard(ask: Any) -> Any:
        async def noted(self: Any, text: str, *values: object, **options: Any) -> Any:
            # One message may bring many statements.
            seen.update(each.strip() for each in text.split(";"))
            return await ask(self, text, *values, **options)

        return noted

    event.listen(Engine, "before_cursor_execute", note)
    connections.converse = converse
    try:
        with handed_to_the_driver(note_direct), pytest.MonkeyPatch.context() as patch:
            for method in ("execute", "fetch"):
                patch.setattr(
                    asyncpg.Connection, method, heard(getattr(asyncpg.Connection, method))
                )
            yield seen
    finally:
        connections.converse = real
        event.remove(Engine, "before_cursor_execute", note)
