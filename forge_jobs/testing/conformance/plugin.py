"""The plugin of pytest for a run of the suite on one store."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.conformance import backends
from forge_jobs.testing.conformance.target import load

_MARKERS = ("any_store", "daily", "long", "processes", "timeout")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the store."""
    parser.addoption("--open-store", required=True, help="the store under test, module:function")


def pytest_configure(config: pytest.Config) -> None:
    """Put the store under test where the suite looks for stores."""
    target = config.getoption("--open-store")
    backends.BACKENDS[target.partition(":")[2]] = load(target)
    sys.modules["tests.support.backends"] = backends
    for marker in _MARKERS:
        config.addinivalue_line("markers", f"{marker}: of the tests of forge_jobs")


@pytest.fixture
def anyio_backend() -> str:
    """Name asyncio, the only loop of forge_jobs."""
    return "asyncio"


@pytest.fixture
async def storage(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Storage]:
    """An empty store."""
    [open_store] = backends.BACKENDS.values()
    async with open_store(tmp_path, clock) as opened:
        yield opened
