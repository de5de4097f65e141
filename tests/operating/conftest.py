"""Fresh stores, and operators with different rights on them."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, pass_on


@pytest.fixture(params=sorted(BACKENDS))
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Storage]:
    """A fresh store of every backend."""
    async with BACKENDS[request.param](tmp_path, None) as opened:
        yield opened
    await pass_on(request.param, tmp_path)


@pytest.fixture
async def sqlite_storage(tmp_path: Path) -> AsyncGenerator[Storage]:
    """A fresh store where the rule under test is the operator's alone."""
    async with BACKENDS["sqlite"](tmp_path, None) as opened:
        yield opened
    await pass_on("sqlite", tmp_path)
