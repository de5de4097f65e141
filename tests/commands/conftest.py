"""Stores for pods that run commands and processes of handlers, which know no store."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from forge_jobs.storage.protocols import Storage
from tests.support.backends import ONE_PLACE, pass_on


@pytest.fixture(params=sorted(ONE_PLACE))
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Storage]:
    """A fresh store on the machine's own clock."""
    async with ONE_PLACE[request.param](tmp_path, None) as opened:
        yield opened
    await pass_on(request.param, tmp_path)
