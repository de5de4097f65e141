"""The stores that the conformance suite runs against, one per folder."""

import os
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from forge_jobs.clock import Clock
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support import databases, files, key_prefixes
from tests.support.callers import by

POOLED = "postgres-pooled"
"""Postgres as if behind a pooler: every call is a script, also those that have a shorter way."""

OpenBackend = Callable[[Path, Clock | None], AbstractAsyncContextManager[Storage]]
"""A fresh store per folder: the same folder opens the same store again."""


async def url_of(backend: str, folder: Path) -> str:
    """The URL of the folder's store, for processes and for readers of the raw data.

    A store that no test has used yet is made first.
    """
    if backend == "sqlite":
        await files.make_in(folder)
        return f"{files.url_in(folder)}{files.IN_TESTS}"
    if backend == "postgres":
        return await databases.url_of(folder)
    if backend == POOLED:
        return f"{await databases.url_of(folder)}?pgbouncer=1"
    return key_prefixes.url_of(backend, folder)


async def forget(backend: str, folder: Path) -> None:
    """Throw the folder's store away. Every bundle of the store must be closed.

    A folder without a store is fine. Stores that are left go with the servers at the end of the
    run.
    """
    if backend in ("postgres", POOLED):
        await databases.forget(folder)
    elif backend != "sqlite":
        await key_prefixes.forget(backend, folder)


async def pass_on(backend: str, folder: Path) -> None:
    """Forget the store of a test that changed only rows: the next test may get its tables."""
    if backend in ("postgres", POOLED):
        await databases.pass_on(folder)
    else:
        await forget(backend, folder)


async def problems_in(backend: str, folder: Path) -> list[str]:
    """Return what is wrong with the stored records of the folder, read from outside."""
    # That module knows this one.
    from tests.support.aftermath import problems_of

    return await problems_of(backend, folder)


@asynccontextmanager
async def lent(
    backend: str, folder: Path, *, commits: bool = False
) -> AsyncGenerator[object | None]:
    """A caller's connection to the folder's store, for one transaction. None: Redis has none."""
    if backend.startswith("redis"):
        yield None
        return
    url = (await url_of(backend, folder)).partition("?")[0]
    with create_engine(by("psycopg", url), poolclass=NullPool).connect() as connection:
        yield connection
        connection.commit() if commits else connection.rollback()


_PATIENT = "timeout=30"
"""A loaded machine may pass the usual five seconds of a call, which these tests are not about."""


@asynccontextmanager
async def _open(backend: str, folder: Path, clock: Clock | None) -> AsyncGenerator[Storage]:
    if backend in ("postgres", POOLED):
        databases.take(folder)
    url = await url_of(backend, folder)
    if backend != "sqlite":
        url += f"{'&' if '?' in url else '?'}{_PATIENT}"
    async with await open_storage(url, clock=clock) as storage:
        yield storage


_NAMES = os.environ.get("FORGE_TEST_BACKENDS", "sqlite postgres redis redis-cluster").split()
"""Tests of stores that are not wanted are not even collected, which ``make quick`` saves."""

BACKENDS: dict[str, OpenBackend] = {name: partial(_open, name) for name in _NAMES}
ONE_PLACE = {name: opened for name, opened in BACKENDS.items() if name != "redis-cluster"}
"""Stores for what knows no store. A cluster is the store of Redis in several places, and the
conformance suite tries what that changes (ADR 269).
"""
VARIANTS: dict[str, OpenBackend] = {
    name: partial(_open, name) for name in (POOLED,) if "postgres" in _NAMES
}
"""Other ways into the same stores. The model and the conformance suite run on them as well."""


def try_on(metafunc: pytest.Metafunc, fixture: str, stores: Iterable[str]) -> None:
    """Make a test of these stores of a fixture, as a mark of the test itself would.

    To be called before other hooks: pytest knows no fewer parameters than a fixture has by itself.
    """
    mark = pytest.mark.parametrize(fixture, sorted(stores), indirect=True)
    # First, so that the store comes first in the ids.
    metafunc.definition.add_marker(mark, append=False)
