"""A store on disk, a ledger beside it, and worker processes that end with the test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from forge_jobs import JobClient, open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.pods import Fleet, fleet


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store that nobody has opened."""
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def storage(url: str) -> AsyncIterator[Storage]:
    """The test's own view of the store; made first, so that pods find a schema."""
    async with await open_storage(url) as opened:
        yield opened


@pytest.fixture
async def client(storage: Storage) -> AsyncIterator[JobClient]:
    """Enqueues on the store of the test."""
    opened = JobClient(storage)
    yield opened
    await opened.aclose()


@pytest.fixture
def pods(url: str, storage: Storage, tmp_path: Path) -> Iterator[Fleet]:
    """Starts worker processes."""
    with fleet(url, tmp_path) as started:
        yield started


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The file that handlers write to."""
    return tmp_path / "ledger"
