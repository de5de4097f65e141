"""The same program with Celery and with forge_jobs, both run, and both shown by the page."""

import re
import signal
import sys
from pathlib import Path

import pytest

from bench.peers.environments import installed
from tests.examples.running import ROOT, copied
from tests.support import backends, servers

pytestmark = [pytest.mark.processes, pytest.mark.anyio]

PAGE = (ROOT / "docs" / "coming-from-celery.md").read_text()
PROGRAMS = ROOT / "examples" / "coming_from_celery"
SAID = ["order 7 -> ada@example.org, in attempt 2", "{'report': 'monday'}"]
WORKER = ("forge-jobs", "worker", "jobs:handlers", "--queues", "mail=4,reports=1")
CELERY = ("-m", "celery", "--app", "tasks", "worker", "--pool", "solo", "--queues", "mail,reports")
TRIED = ("celery[redis]==5.7.0",)


def test_the_page_shows_the_programs() -> None:
    shown = dict(re.findall(r'^```python title="(.+)"\n((?:.*\n)*?)```$', PAGE, re.MULTILINE))

    assert sorted(shown) == sorted(str(path.relative_to(ROOT)) for path in PROGRAMS.rglob("*.py"))
    assert {name: (ROOT / name).read_text() for name in shown} == shown


@pytest.mark.parametrize("backend", backends.BACKENDS)
async def test_ours_says_what_celerys_says(backend: str, tmp_path: Path) -> None:
    url = await backends.url_of(backend, tmp_path)
    program = copied("coming_from_celery/after", tmp_path, FORGE_STORAGE_URL=url)

    with program.started(*WORKER) as worker:
        done = program.run(sys.executable, "shop.py")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=100) == 0

    await backends.forget(backend, tmp_path)
    assert done.stdout.splitlines() == SAID, done.stderr


@pytest.mark.long
async def test_celerys_says_what_ours_says(tmp_path: Path) -> None:
    python = str(installed(TRIED))
    with servers.a_redis() as server:
        program = copied("coming_from_celery/before", tmp_path, BROKER_URL=server.url)
        with program.started(python, *CELERY):
            done = program.run(python, "shop.py")

    assert TRIED[0].partition("==")[2] in PAGE
    assert done.stdout.splitlines() == SAID, done.stderr + program.log.read_text()
