"""A store whose time the test moves."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, pass_on


@pytest.fixture
def manual_clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=sorted(BACKENDS))
async def manual_storage(
    request: pytest.FixtureRequest, tmp_path: Path, manual_clock: ManualClock
) -> AsyncGenerator[Storage]:
    """A fresh store on ``manual_clock``, of every backend."""
    async with BACKENDS[request.param](tmp_path, manual_clock) as storage:
        yield storage
    await pass_on(request.param, tmp_path)


@pytest.fixture(params=sorted(BACKENDS))
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Storage]:
    """A fresh store on the machine's own clock, for runtimes that really run."""
    async with BACKENDS[request.param](tmp_path, None) as opened:
        yield opened
    await pass_on(request.param, tmp_path)
