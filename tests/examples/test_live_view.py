"""A live view of jobs, on every store."""

import sys
from pathlib import Path

import pytest

from tests.examples.running import copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_each_job_is_seen_while_it_runs_and_at_its_end(backend: str, tmp_path: Path) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("live_view", tmp_path, FORGE_STORAGE_URL=url)

    done = program.run(sys.executable, "live_view.py", "3")

    await backends.forget(backend, tmp_path)
    assert done.returncode == 0, done.stderr
    for number in (1, 2, 3):
        assert f"Question {number}? ... Let" in done.stdout
        assert f"Question {number}? [done] Question {number}? Yes." in done.stdout
