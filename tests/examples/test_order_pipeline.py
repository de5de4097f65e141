"""Orders that commit with their jobs: in the database of the jobs, and by an outbox."""

import sys
from pathlib import Path

import pytest

from tests.examples.running import copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_each_order_is_charged_once_and_shipped(backend: str, tmp_path: Path) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("order_pipeline", tmp_path, FORGE_STORAGE_URL=url)

    done = program.run(sys.executable, "pipeline.py")

    await backends.forget(backend, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "order 3: no chair is left, so neither row nor job is" in done.stdout
    assert "order 1 is shipped, order 2 is shipped, order 4 is shipped\n" in done.stdout
    assert "3 orders, 3 charges" in done.stdout
