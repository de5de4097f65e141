"""Fixtures for tests of clients: a store of each backend in real time, a pod's lease, a client."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from forge_jobs.clients.client import JobClient
from forge_jobs.model.processes import PodLease
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, pass_on
from tests.support.factories import register


@pytest.fixture(params=sorted(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    """The name of a backend."""
    name: str = request.param
    return name


@pytest.fixture
async def storage(backend: str, tmp_path: Path) -> AsyncIterator[Storage]:
    """An empty store."""
    async with BACKENDS[backend](tmp_path, None) as opened:
        yield opened
    await pass_on(backend, tmp_path)


@pytest.fixture
async def lease(storage: Storage) -> PodLease:
    """The lease of a pod that outlives the test."""
    return await register(storage, lease_for=timedelta(days=1000))


@pytest.fixture
async def client(storage: Storage) -> AsyncIterator[JobClient]:
    """A client of the store."""
    async with JobClient(storage) as opened:
        yield opened
