"""A queue that many tenants share: the small ones do not wait for the big one, on every store."""

import re
import sys
from pathlib import Path

import pytest

from tests.examples.running import copied
from tests.support import backends

pytestmark = [pytest.mark.processes, pytest.mark.anyio]


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_small_tenants_come_before_the_backlog_of_a_big_one(
    backend: str, tmp_path: Path
) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("fair_tenants", tmp_path, FORGE_STORAGE_URL=url, BACKLOG="600")

    done = program.run(sys.executable, "fair_tenants.py")

    await backends.forget(backend, tmp_path)
    assert done.returncode == 0, done.stderr
    [(count, first)] = re.findall(r"(\d+) statements, .* the first (\d+)\n", done.stdout)
    assert int(count) == 605
    # Slots and jobs that the pod holds ahead come on top of the round, more on a slow machine.
    assert int(first) < 234
    assert "600 statements\n" in done.stdout
