"""The store under test, in the place of the module that names the stores of this repository.

The tests of the suite import ``tests.support.backends``. A run from a wheel has one store, and
that name leads here.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from forge_jobs.clock import Clock
from forge_jobs.storage.protocols import Storage

OpenStore = Callable[[Path, Clock | None], AbstractAsyncContextManager[Storage]]
"""Opens the store of a folder and closes the store at the end: ``async with open_store(folder,
clock) as storage``.

A new folder is an empty store, and the same folder opens the same store again. All times come from
``clock``, unless that is None. Where the data lie is the backend's affair: a server may take a
schema or a prefix that is derived from the folder's name.
"""

BACKENDS: dict[str, OpenStore] = {}
VARIANTS: dict[str, OpenStore] = {}

POOLED = "postgres-pooled"
"""A name among the parameters of some tests. Every name is the store under test."""


async def forget(backend: str, folder: Path) -> None:
    """Leave the store of the folder: the author knows where the data lie."""


async def problems_in(backend: str, folder: Path) -> list[str]:
    """Return no problem of the stored records: the author knows how to read them from outside."""
    return []


@asynccontextmanager
async def lent(
    backend: str, folder: Path, *, commits: bool = False
) -> AsyncGenerator[object | None]:
    """Yield no connection of a caller: the author knows how to open one."""
    yield None
