"""A crawler with two pages of a host at once, over hosts without a name before, on every store."""

import sys
from pathlib import Path

import pytest

from tests.examples.running import copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_every_page_is_fetched_once_and_two_of_a_host_at_a_time(
    backend: str, tmp_path: Path
) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("crawler", tmp_path, FORGE_STORAGE_URL=url, HOSTS="25")

    done = program.run(sys.executable, "crawler.py")

    await backends.forget(backend, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "150 pages of 25 hosts, 0 of them twice\n" in done.stdout
    assert "at most 2 pages of a host at once\n" in done.stdout
