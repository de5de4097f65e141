"""A store per test, of every backend, whose time stands still until the test moves it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forge_jobs.clock import ManualClock
from forge_jobs.storage.protocols import Storage
from tests.conformance.fixtures import clock, lease
from tests.support.aftermath import problems_of
from tests.support.backends import BACKENDS, VARIANTS, pass_on, try_on
from tests.support.shared_statements import is_as_unpooled

__all__ = ["clock", "lease", "storage"]

_ALL = {**BACKENDS, **VARIANTS}


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try on one way into Postgres what is the same on each (ADR 269)."""
    test = metafunc.definition
    names_stores = any("storage" in mark.args[0] for mark in test.iter_markers("parametrize"))
    if "storage" not in metafunc.fixturenames or names_stores:
        return
    if is_as_unpooled(test.nodeid, metafunc.function):
        try_on(metafunc, "storage", BACKENDS)


@pytest.fixture(params=sorted(_ALL))
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Storage]:
    """An empty store, looked over from outside after the test."""
    async with _ALL[request.param](tmp_path, clock) as opened:
        yield opened
        assert await problems_of(request.param, tmp_path) == []
    await pass_on(request.param, tmp_path)
