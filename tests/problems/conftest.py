"""A store of each backend whose time stands still, and what is wrong there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from tests.conformance.fixtures import clock
from tests.support.backends import BACKENDS, pass_on
from tests.support.fleets import HOUR, MINUTE, SECOND, Fleet

__all__ = ["HOUR", "MINUTE", "SECOND", "Fleet", "clock"]


@pytest.fixture(params=["sqlite", "postgres", "redis"])
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Storage]:
    async with BACKENDS[request.param](tmp_path, clock) as opened:
        yield opened
    await pass_on(request.param, tmp_path)


@pytest.fixture
def fleet(storage: Storage, clock: ManualClock) -> Fleet:
    return Fleet(storage, clock)
