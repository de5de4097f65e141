"""Invariants of a store after any test, checked from outside by the driver alone."""

import sqlite3
import time
from pathlib import Path

import anyio

from forge_jobs.storage.redis.driver.address import parse_url
from tests.support import databases, key_prefixes, redis_keys
from tests.support.backends import POOLED

_ORPHANS = (
    "SELECT child_id FROM forge_edges WHERE child_id NOT IN (SELECT id FROM forge_jobs)"
    " UNION SELECT job_id FROM forge_progress WHERE job_id NOT IN (SELECT id FROM forge_jobs)"
    " UNION SELECT job_id FROM forge_log_lines WHERE job_id NOT IN (SELECT id FROM forge_jobs)"
    " UNION SELECT job_id FROM forge_steps WHERE job_id NOT IN (SELECT id FROM forge_jobs)"
)
_IN_TRANSACTION = (
    "SELECT query FROM pg_stat_activity"
    " WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
)


_ENDS_SOON_S = 5.0
_LOOKS_APART_S = 0.01


async def problems_of(backend: str, folder: Path, *, patience: float = _ENDS_SOON_S) -> list[str]:
    """Return what is wrong with the folder's store. Its bundles may be open, but no call may run.

    Bundles announce commits in the background. Such a transaction is a problem only when still
    open after ``patience`` seconds.
    """
    if backend == "sqlite" or backend in ("postgres", POOLED):
        look = _of_sqlite if backend == "sqlite" else _of_postgres
        latest = time.monotonic() + patience
        while problems := await look(folder):
            if time.monotonic() > latest:
                break
            await anyio.sleep(_LOOKS_APART_S)
        return problems
    prefix = parse_url(key_prefixes.url_of(backend, folder)).keys.prefix
    stored = redis_keys.read(key_prefixes.looker_of(backend), prefix)
    return redis_keys.problems_in(stored, prefix)


async def _of_sqlite(folder: Path) -> list[str]:
    connection = sqlite3.connect(folder / "jobs.db", timeout=0, isolation_level=None)
    try:
        orphans = connection.execute(_ORPHANS).fetchall()
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return [f"a transaction is open: {error}"]
    finally:
        connection.close()
    return [f"edges, progress or lines of {child}, which does not exist" for (child,) in orphans]


async def _of_postgres(folder: Path) -> list[str]:
    connection = await databases.look_into(folder)
    orphans = connection.execute(_ORPHANS).fetchall()
    waiting = connection.execute(_IN_TRANSACTION).fetchall()
    return [
        *(f"edges, progress or lines of {child}, which does not exist" for (child,) in orphans),
        *(f"a transaction is open after {query}" for (query,) in waiting),
    ]
