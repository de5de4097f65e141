"""A store whose time the test moves."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from tests.support.backends import BACKENDS, ONE_PLACE, pass_on, try_on

_HERE = "tests/runtime"


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try on a store in one place what is marked ``any_store``."""
    if metafunc.definition.get_closest_marker("any_store") is None:
        return
    for name in ("storage", "manual_storage"):
        # A module's own fixture names stores of its own.
        if name in metafunc.fixturenames and metafunc._arg2fixturedefs[name][-1].baseid == _HERE:
            try_on(metafunc, name, ONE_PLACE)


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
