"""The demo in a store that is there already: kept apart, and open about what stays."""

from pathlib import Path

import anyio
import pytest

from forge_jobs.demo import stage
from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.support import backends
from tests.support.factories import register


def a_store(backend: str, folder: Path) -> CommandLine:
    """The command line on a store of that kind."""

    async def make() -> str:
        return await backends.url_of(backend, folder)

    return CommandLine(anyio.run(make))


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def forge(request: pytest.FixtureRequest, tmp_path: Path) -> CommandLine:
    command_line = a_store(request.param, tmp_path)
    command_line("migrate", "up")
    return command_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "files"
    place.mkdir()
    for number in range(40):
        (place / f"{number:03}.txt").write_text("two words\n")
    return place


@pytest.mark.processes
@pytest.mark.long
def test_the_demo_leaves_the_jobs_of_others_alone_and_removes_its_own(
    forge: CommandLine, folder: Path
) -> None:
    job_id = forge("enqueue", "shop.mail", "--queue", "demo-mail").stdout.strip()

    done = forge("demo", str(folder), "--storage", forge.url, "--pace", "0.1")

    assert " 0 lost" in done.stdout
    assert "stay" in done.stdout
    [job] = forge.json("jobs", "list")["jobs"]
    assert (job["id"], job["status"]) == (job_id, "pending")
    # A deleted schedule stays known as deleted, so that no deploy brings it back.
    assert all(each["deleted"] for each in forge.json("cron", "list")["schedules"])


def test_a_store_that_pods_work_on_is_refused(forge: CommandLine, folder: Path) -> None:
    url = stage.in_store(forge.url).url

    async def join() -> None:
        async with await open_storage(url) as storage:
            await register(storage)

    anyio.run(join)

    told = forge.refuse("demo", str(folder), "--storage", forge.url, code=1)
    assert "pods work on this store (1)" in told


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:p@h/d?schema=forge_demo"),
        ("postgresql://h/d?sslmode=require", "postgresql://h/d?sslmode=require&schema=forge_demo"),
        ("postgresql://h/d?schema=mine", "postgresql://h/d?schema=mine"),
        ("redis://h/3", "redis://h/3?prefix=forge-demo"),
        ("redis+cluster://a,b?prefix=mine", "redis+cluster://a,b?prefix=mine"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ],
)
def test_the_demo_keeps_apart_unless_the_url_says_where(given: str, used: str) -> None:
    assert stage.in_store(given).url == used


def test_one_store_is_named_at_most_and_one_that_processes_can_share(
    tmp_path: Path, folder: Path
) -> None:
    forge = CommandLine("")
    both = forge.refuse("demo", str(folder), "--storage", "sqlite:///x.db", "--redis")
    assert "exclude each other" in both
    alone = forge.refuse("demo", str(folder), "--storage", "sqlite:///:memory:")
    assert "a store of one process" in alone


@pytest.mark.parametrize("server", ["--postgres", "--redis"])
def test_a_server_that_is_not_installed_is_named_with_the_command_that_installs_it(
    server: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    told = CommandLine("").refuse("demo", str(folder), server, code=1)

    assert told.endswith("is not installed here; run: pip install 'forge-jobs[dev]'")
