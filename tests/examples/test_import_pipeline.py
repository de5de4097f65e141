"""An import that breaks off twice, on every store."""

import sys
from pathlib import Path

import pytest

from tests.examples.running import copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_each_order_is_imported_once(backend: str, tmp_path: Path) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("import_pipeline", tmp_path, FORGE_STORAGE_URL=url)

    done = program.run(sys.executable, "pipeline.py")

    await backends.forget(backend, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the last run begins with page 4" in done.stdout
    assert "the job says 300 orders, the database has 300" in done.stdout
