"""A store that processes can share, a ledger beside it, and worker processes that end with the
test.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from forge_jobs import JobClient, open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, forget, url_of
from tests.support.pods import Fleet, fleet


@pytest.fixture(params=[name for name in BACKENDS if name != "redis-cluster"])
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the backend."""
    return str(request.param)


@pytest.fixture
async def url(backend: str, tmp_path: Path) -> AsyncIterator[str]:
    """An empty store."""
    yield await url_of(backend, tmp_path)
    await forget(backend, tmp_path)


@pytest.fixture
async def storage(url: str) -> AsyncIterator[Storage]:
    """The test's own view of the store, made first, so that pods find a schema."""
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
