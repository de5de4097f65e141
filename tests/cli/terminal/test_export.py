"""``forge-jobs export`` and ``errors``: whole jobs as JSON Lines, and failures in groups."""

import os
import signal
import stat
import subprocess
from pathlib import Path

import anyio
import msgspec
import pytest

from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.filters import JobFilter
from forge_jobs.operating.access import ALL, Access, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.opening import open_storage
from tests.cli.conftest import CommandLine
from tests.support import backends
from tests.support.factories import enqueue_one
from tests.support.proxy import proxy
from tests.support.runtimes import a_runtime, ended
from tests.support.silent import mute
from tests.support.terminals import COMMAND, PACKAGES, in_pipe
from tests.support.waiting import wait_until

BIG = 2**63 + 1


async def fill(url: str, count: int) -> list[str]:
    """So many jobs, newest first."""
    async with await open_storage(url) as storage:
        ids = [
            await enqueue_one(storage, kind="counts", payload=f'{{"number":{BIG + number}}}')
            for number in range(count)
        ]
    return [str(job_id) for job_id in reversed(ids)]


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
def test_every_job_is_a_line_with_the_numbers_as_stored(backend: str, tmp_path: Path) -> None:
    url = anyio.run(backends.url_of, backend, tmp_path)
    forge = CommandLine(url)
    forge("migrate", "up")
    ids = anyio.run(fill, url, 7)

    lines = forge("export", "--page", "3").stdout.splitlines()
    assert [msgspec.json.decode(line)["id"] for line in lines] == ids
    assert f'"payload":{{"number":{BIG + 6}}}' in lines[0].replace(": ", ":")
    assert forge("export", "--where", f"id:{ids[2]}").stdout.count("\n") == 1
    assert forge("export", "--queue", "nowhere").stdout == ""
    anyio.run(backends.forget, backend, tmp_path)


def test_a_file_has_its_name_when_it_is_whole(forge: CommandLine, tmp_path: Path) -> None:
    ids, file = anyio.run(fill, forge.url, 5), tmp_path / "jobs.jsonl"

    assert "5 jobs are written" in forge("export", "-o", str(file)).stderr
    assert file.read_bytes().count(b"\n") == len(ids)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not file.with_name("jobs.jsonl.part").exists()
    assert "no FILE.part" in forge.refuse("export", "-o", str(file), "--cursor", ids[0])
    assert "output" in forge.refuse("export", "-o", str(tmp_path / "no" / "jobs"))


@pytest.mark.long
@pytest.mark.anyio
async def test_an_export_that_breaks_off_goes_on_where_it_was(tmp_path: Path) -> None:
    url, file = await backends.url_of("redis", tmp_path), tmp_path / "jobs.jsonl"
    ids = await fill(url, 40)
    with proxy(url) as between:
        between.slow_down(replies=0.2)
        command = ("export", "--page", "2", "-o", str(file), "--storage")
        with in_pipe(*command, between.url) as export:
            part = file.with_name("jobs.jsonl.part")
            await wait_until(
                lambda: part.exists() and part.read_bytes().count(b"\n") >= 4,
                description="pages are written",
            )
            export.send(signal.SIGINT)
            assert await export.ends() == 130
            cursor = export.text.rpartition("--cursor ")[2].strip()
            assert not file.exists()
        between.slow_down()
        with in_pipe(*command, between.url, "--cursor", cursor) as export:
            assert await export.ends() == 0
    lines = file.read_bytes().splitlines()
    assert [msgspec.json.decode(line)["id"] for line in lines] == ids
    await backends.forget("redis", tmp_path)


@pytest.mark.anyio
async def test_payloads_need_the_right_and_closed_queues_are_not_there(
    forge: CommandLine,
) -> None:
    async with await open_storage(forge.url) as storage:
        secret = await enqueue_one(storage, queue="open", payload='{"card":"swordfish"}')
        await enqueue_one(storage, queue="vault")

        async def export(access: Access) -> list[object]:
            async with Operator(storage, Actor(name="ada", access=access)) as operator:
                return list((await operator.export_jobs(JobFilter())).jobs)

        assert len(await export(ALL)) == 2
        [job] = await export(Access(queues=frozenset({"open"})))
        assert secret in str(job)
        assert "swordfish" not in str(job)


def test_failures_are_listed_in_groups_and_one_is_shown(forge: CommandLine) -> None:
    async def fail() -> None:
        handlers = HandlerRegistry()

        @handlers.job("mail.send", max_attempts=1)
        async def send(to: int) -> None:
            raise LookupError(f"no such host {to} \x1b]0;owned\x07")

        async with (
            await open_storage(forge.url) as storage,
            a_runtime(storage, handlers).start() as handle,
        ):
            for number in (17, 18):
                await ended(storage, (await handle.enqueue(send.request(number))).job_id)

    anyio.run(fail)
    told = forge("errors", "list").stdout
    assert "mail.send" in told
    assert "LookupError: no such host" in told
    assert "\x1b" not in told
    [group] = forge.json("errors", "list")["groups"]
    assert group["dead"] == 2
    told = forge("errors", "show", group["queue"], group["id"]).stdout
    assert "dead:" in told
    assert "in send" in told
    assert "\x1b" not in told
    assert forge.json("errors", "show", group["queue"], group["id"])["newest"]
    assert "no failures of a group" in forge.refuse("errors", "show", "default", "x", code=1)


def _completed(url: str, *words: str, patience: str = "60") -> list[str]:
    """Words that bash would offer for the last of these."""
    done = subprocess.run(
        COMMAND,
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": PACKAGES,
            "_FORGE_JOBS_COMPLETE": "bash_complete",
            "COMP_WORDS": "forge-jobs " + " ".join(words),
            "COMP_CWORD": str(len(words)),
            "FORGE_STORAGE_URL": url,
            "FORGE_COMPLETION_PATIENCE": patience,
        },
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.split()]


@pytest.mark.long
def test_a_shell_offers_names_of_the_store(forge: CommandLine) -> None:
    for queue in ("mail", "mails", "crops"):
        forge("queues", "set", queue, "--max-workers", "1")
    forge("limits", "set", "upstream", "5/1m")
    forge("limits", "set-concurrency", "q", "hosts", "2")
    forge("cron", "add", "nightly", "report.build", "@daily")

    assert _completed(forge.url, "queues", "pause", "ma") == ["mail", "mails"]
    assert _completed(forge.url, "jobs", "list", "--queue", "c") == ["crops"]
    assert _completed(forge.url, "what-if", "m") == ["mail", "mails"]
    assert _completed(forge.url, "limits", "drain", "u") == ["upstream"]
    assert _completed(forge.url, "limits", "show", "q", "h") == ["hosts"]
    assert _completed(forge.url, "cron", "pause", "n") == ["nightly"]


@pytest.mark.long
def test_without_a_store_nothing_is_offered_and_nothing_is_said(tmp_path: Path) -> None:
    assert _completed(f"sqlite:///{tmp_path / 'none.db'}", "queues", "pause", "ma") == []
    assert not list(tmp_path.iterdir())
    assert _completed("", "queues", "pause", "ma") == []
    assert _completed("nonsense://", "queues", "pause", "ma") == []
    with mute() as port:
        for scheme in ("postgresql", "redis"):
            url = f"{scheme}://u:p@127.0.0.1:{port}/0"
            assert _completed(url, "queues", "pause", "ma", patience="0.2") == []
