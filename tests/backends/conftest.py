"""An empty store per test. Each folder names a backend."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage
from tests.support.backends import forget, pass_on, url_of


@pytest.fixture
async def url(request: pytest.FixtureRequest, backend: str, tmp_path: Path) -> AsyncGenerator[str]:
    """Of an empty store, which is gone after the test."""
    yield await url_of(backend, tmp_path)
    changes_only_rows = request.node.get_closest_marker("only_rows") is not None
    await (pass_on if changes_only_rows else forget)(backend, tmp_path)


@pytest.fixture
async def storage(url: str) -> AsyncGenerator[Storage]:
    """The store, in real time."""
    async with await open_storage(url) as opened:
        yield opened
