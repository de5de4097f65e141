"""A store per test, of every backend, whose time stands still until the test moves it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from tests.conformance.fixtures import clock, lease
from tests.support.aftermath import problems_of
from tests.support.backends import BACKENDS, VARIANTS, pass_on

__all__ = ["clock", "lease", "storage"]

_ALL = {**BACKENDS, **VARIANTS}


@pytest.fixture(params=sorted(_ALL))
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Storage]:
    """An empty store, looked over from outside after the test."""
    async with _ALL[request.param](tmp_path, clock) as opened:
        yield opened
        assert await problems_of(request.param, tmp_path) == []
    await pass_on(request.param, tmp_path)
