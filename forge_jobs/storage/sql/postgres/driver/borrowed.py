"""An SQLAlchemy connection on top of a connection of asyncpg's that belongs to the caller."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from forge_jobs.errors import InvalidInput

_lent: ContextVar[Any] = ContextVar("forge_jobs_lent_connection")


class _BorrowedConnection:
    """The caller's connection, which the borrower neither closes nor sets up."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.lent = getattr(connection, "_con", connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, **_: Any) -> None:
        return

    def terminate(self) -> None:
        return

    async def set_type_codec(self, *_: Any, **__: Any) -> None:
        # SQLAlchemy would set its own JSON codecs, and the caller may have others.
        return


def is_of_driver(connection: object) -> bool:
    """Return whether this is a connection of asyncpg's, also one lent out by a pool."""
    return isinstance(connection, asyncpg.Connection | PoolConnectionProxy)


@asynccontextmanager
async def borrowed(connection: Any) -> AsyncGenerator[AsyncConnection]:
    """Use the connection by SQLAlchemy for a while. The caller's transaction goes on.

    :raises InvalidInput: the connection is not inside a transaction
    """
    if not connection.is_in_transaction():
        raise InvalidInput(
            "connection", "is outside a transaction", "call within 'async with transaction()'"
        )
    token = _lent.set(_BorrowedConnection(connection))
    try:
        async with _engine().connect() as plain:
            yield plain
    finally:
        _lent.reset(token)


@cache
def _engine() -> AsyncEngine:
    async def opened() -> Any:
        return _lent.get()

    return create_async_engine(
        "postgresql+asyncpg://",
        poolclass=NullPool,
        # The transaction is the caller's: SQLAlchemy must not begin or end one.
        isolation_level="AUTOCOMMIT",
        connect_args={"async_creator_fn": opened, "prepared_statement_cache_size": 0},
    )
