"""This release and the next one work on one store, as while a deployment is under way."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

import forge_jobs
from tests.migrations.made_up import NEWEST, NEXT
from tests.support.backends import forget, url_of

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.long]

DOWN = "ALTER TABLE forge_jobs DROP COLUMN more;\n"
HANDLERS = "forge_jobs.demo.handlers:handlers"


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    yield await url_of(request.param, tmp_path)
    await forget(request.param, tmp_path)


def the_next_release(folder: Path, works_from: int) -> Path:
    """A copy of the package with one more migration."""
    shutil.copytree(
        Path(forge_jobs.__path__[0]),
        folder / "forge_jobs",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    migrations = folder / "forge_jobs" / "storage" / "sql" / "migrations"
    for flavor in ("sqlite", "postgresql"):
        name = f"{NEXT:04}_next.{flavor}"
        (migrations / f"{name}.sql").write_text(
            f"-- works-from: {works_from}\nALTER TABLE forge_jobs ADD COLUMN more TEXT;\n"
        )
        (migrations / f"{name}.down.sql").write_text(DOWN)
    return folder


async def command(url: str, *args: str, release: Path | None = None) -> tuple[int, str]:
    """Run a command of a release, by default of this one: exit code and output."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("FORGE_")},
        "FORGE_STORAGE_URL": url,
    }
    done = await anyio.run_process(
        [sys.executable, "-m", "forge_jobs", *args],
        # Python looks for modules here first.
        cwd=release or Path(forge_jobs.__path__[0]).parent,
        env=environment,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode, done.stdout.decode()


WORKER = ("worker", HANDLERS, "--queues", "pings=1", "--until-empty")


async def a_job_is_run(
    url: str, folder: Path, *, by: Path | None = None, made_by: Path | None = None
) -> None:
    """Enqueued by one release, and run by a worker of another."""
    ledger = Path(tempfile.mkdtemp(dir=folder))
    payload = f'{{"ledger": "{ledger}"}}'
    enqueue = ("enqueue", "demo.ping", "--queue", "pings", "--payload", payload)
    code, output = await command(url, *enqueue, release=made_by)
    assert code == 0, output
    code, output = await command(url, *WORKER, release=by)
    assert code == 0, output
    assert os.listdir(ledger)


async def test_programs_of_before_restart_beside_the_next_release_and_after_it(
    url: str, tmp_path: Path
) -> None:
    after = the_next_release(tmp_path / "next", NEWEST)
    code, output = await command(url, *WORKER, release=after)
    assert (code, "migrate up" in output) == (1, True), "the next release needs its schema first"
    assert await command(url, "migrate", "up", release=after) == (0, f"Applied {NEXT:04} next\n")
    await a_job_is_run(url, tmp_path)
    await a_job_is_run(url, tmp_path, by=after)
    await a_job_is_run(url, tmp_path, made_by=after)

    code, output = await command(url, "migrate", "down", "--to", str(NEWEST))
    assert (code, "of a newer program" in output) == (1, True), output
    code, output = await command(url, "migrate", "down", "--to", str(NEWEST), release=after)
    assert (code, output) == (0, f"Undid {NEXT:04} next\n")
    await a_job_is_run(url, tmp_path)


async def test_a_program_that_the_schema_does_not_work_with_is_refused(
    url: str, tmp_path: Path
) -> None:
    after = the_next_release(tmp_path / "next", NEXT)
    assert (await command(url, "migrate", "up", release=after))[0] == 0
    code, output = await command(url, "enqueue", "demo.add")
    assert code != 0
    assert "upgrade forge-jobs" in output
