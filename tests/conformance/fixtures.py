"""Fixtures of the suite that fit every store. The store itself comes from who runs the suite."""

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.factories import register


@pytest.fixture
def clock() -> ManualClock:
    """The store's clock."""
    return ManualClock()


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    """The live lease of a pod that knows the default queue and kind."""
    return await register(storage)
