"""The stores that the conformance suite runs against."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from forge_jobs.clock import Clock
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

OpenBackend = Callable[[Path, Clock | None], AbstractAsyncContextManager[Storage]]
"""A fresh store per folder: the same folder opens the same store again."""


@asynccontextmanager
async def _open_sqlite(folder: Path, clock: Clock | None) -> "AsyncGenerator[Storage]":
    # Power is not cut in these tests, so they need not wait for the disk.
    storage = await open_storage(f"sqlite:///{folder}/jobs.db?synchronous=off", clock=clock)
    async with storage:
        yield storage


BACKENDS: dict[str, OpenBackend] = {"sqlite": _open_sqlite}
