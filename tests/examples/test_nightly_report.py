"""A report whose step breaks in the night and is resumed in the morning, on every store."""

import sys
from pathlib import Path

import pytest

from tests.examples.running import copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_the_report_is_written_when_the_broken_step_was_mended(
    backend: str, tmp_path: Path
) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("nightly_report", tmp_path, FORGE_STORAGE_URL=url)

    done = program.run(sys.executable, "report.py")

    await backends.forget(backend, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the currency service is down" in done.stdout
    assert "nightly: 4 of 6 steps are done, held by rate" in done.stdout
    assert "in the morning: 40.70 dollars in 3 shops" in done.stdout
    assert "nightly: 6 of 6 steps are done\n" in done.stdout
