"""A caller's own transaction on PostgreSQL, by everything that ``connection=`` takes."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

End = Callable[[bool], Awaitable[None]]
"""Commits (True) or rolls back."""

Opener = Callable[[str], AbstractAsyncContextManager[tuple[Any, End]]]


def by(driver: str, url: str) -> str:
    """The URL for SQLAlchemy."""
    return url.replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def sync_connection(url: str) -> AsyncGenerator[tuple[Any, End]]:
    engine = create_engine(by("psycopg", url), poolclass=NullPool)
    with engine.connect() as connection:

        async def end(commit: bool) -> None:
            connection.commit() if commit else connection.rollback()

        yield connection, end


@asynccontextmanager
async def sync_session(url: str) -> AsyncGenerator[tuple[Any, End]]:
    engine = create_engine(by("psycopg", url), poolclass=NullPool)
    with Session(engine) as session:

        async def end(commit: bool) -> None:
            session.commit() if commit else session.rollback()

        yield session, end


@asynccontextmanager
async def async_connection(url: str) -> AsyncGenerator[tuple[Any, End]]:
    engine = create_async_engine(by("asyncpg", url), poolclass=NullPool)
    async with AsyncConnection(engine) as connection:

        async def end(commit: bool) -> None:
            await (connection.commit() if commit else connection.rollback())

        yield connection, end


@asynccontextmanager
async def async_session(url: str) -> AsyncGenerator[tuple[Any, End]]:
    engine = create_async_engine(by("asyncpg", url), poolclass=NullPool)
    async with AsyncSession(engine) as session:

        async def end(commit: bool) -> None:
            await (session.commit() if commit else session.rollback())

        yield session, end


@asynccontextmanager
async def async_psycopg(url: str) -> AsyncGenerator[tuple[Any, End]]:
    engine = create_async_engine(by("psycopg", url), poolclass=NullPool)
    async with engine.connect() as connection:

        async def end(commit: bool) -> None:
            await (connection.commit() if commit else connection.rollback())

        yield connection, end


@asynccontextmanager
async def drivers_own(url: str, **options: Any) -> AsyncGenerator[tuple[Any, End]]:
    connection: Any = await asyncpg.connect(url, **options)
    try:
        yield connection, await _begun(connection)
    finally:
        await connection.close()


@asynccontextmanager
async def drivers_pool(url: str) -> AsyncGenerator[tuple[Any, End]]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            yield connection, await _begun(connection)
        assert await pool.fetchval("SELECT 1") == 1, "it is still the pool's"


async def _begun(connection: Any) -> End:
    transaction = connection.transaction()
    await transaction.start()

    async def end(commit: bool) -> None:
        await (transaction.commit() if commit else transaction.rollback())

    return end


OPENERS: list[Opener] = [
    sync_connection,
    sync_session,
    async_connection,
    async_session,
    async_psycopg,
    drivers_own,
    drivers_pool,
]
