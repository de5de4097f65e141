"""``forge-jobs outbox``."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

from forge_jobs import open_storage
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.storage.protocols import Storage
from tests.cli.conftest import CommandLine
from tests.support import files
from tests.support.outboxes import write_down
from tests.support.ports import free_ports


def on(url: str, work: Callable[[Storage], Coroutine[Any, Any, Any]]) -> Any:
    async def run() -> Any:
        async with await open_storage(url) as storage:
            return await work(storage)

    return anyio.run(run)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Another database, which the environment names as that of the outbox."""
    folder = tmp_path / "database"
    folder.mkdir()
    anyio.run(files.make_in, folder)
    monkeypatch.setenv("FORGE_OUTBOX", files.url_in(folder))
    return files.url_in(folder)


def written(url: str, count: int, problem: str = "") -> list[JobId]:
    found: list[JobId] = on(url, lambda storage: write_down(storage, "jobs", count, problem))
    return found


def stored(forge: CommandLine) -> list[str]:
    async def read(storage: Storage) -> list[str]:
        return sorted(each.id for each in (await storage.jobs.list(JobFilter())).jobs)

    found: list[str] = on(forge.url, read)
    return found


def test_what_was_set_aside_is_listed_retried_and_relayed(
    forge: CommandLine, database: str
) -> None:
    assert "No job waits." in forge("outbox", "state").output
    bad, *good = written(database, 3, "Conflict: the id is taken")

    [state] = forge.json("outbox", "state")["outboxes"]
    assert (state["name"], state["waiting"], state["set_aside"]) == ("jobs", 2, 1)
    assert "SET ASIDE" in forge("outbox", "state").stdout
    listed = forge.json("outbox", "list", "jobs")["records"]
    assert [each["job_id"] for each in listed] == [bad, *good]
    assert "Conflict: the id is taken" in forge("outbox", "list", "jobs").stdout
    assert len(forge.json("outbox", "list", "jobs", "--limit", "1")["records"]) == 1

    assert "2 jobs are relayed." in forge("outbox", "relay").output
    assert stored(forge) == sorted(good)
    assert "1 job is relayed again." in forge("outbox", "retry", "jobs", "--all").output
    relayed = forge.json("outbox", "relay")
    assert (relayed["relayed"], relayed["set_aside"]) == (1, 0)
    assert stored(forge) == sorted([bad, *good])

    forge("outbox", "list", "jobs", code=1)


def test_a_job_that_was_not_relayed_yet_is_explained(forge: CommandLine, database: str) -> None:
    bad, good = written(database, 2, "Conflict: the id is taken")
    shown = forge("explain", bad).stdout
    assert "set aside in the outbox for 'jobs': Conflict: the id is taken" in shown
    assert f"forge-jobs outbox retry jobs {bad}" in shown
    assert forge.json("explain", good)["reason"] == "not_relayed"
    forge("outbox", "relay")
    assert forge.json("explain", good)["reason"] == "no_pod"
    forge("explain", str(new_job_id()), code=1)


def test_a_discard_is_for_good_and_in_the_audit_of_the_database(
    forge: CommandLine, database: str
) -> None:
    bad, good = written(database, 2, "Conflict: the id is taken")
    assert forge.json("outbox", "discard", "jobs", good)["jobs"] == []
    assert "1 job is removed." in forge("outbox", "discard", "jobs", bad).output
    forge("outbox", "relay")
    assert stored(forge) == [good]

    newest, _ = forge.json("actions", "list", "--storage", database)["actions"]
    assert (newest["verb"], newest["target"], newest["state"]) == ("discard_outbox", "jobs", "done")
    assert bad in newest["after"]


def test_without_a_second_database_the_store_itself_is_looked_at(forge: CommandLine) -> None:
    [job_id] = written(forge.url, 1, "refused on purpose")
    assert forge.json("outbox", "retry", "jobs", job_id)["jobs"] == [job_id]
    assert "FORGE_OUTBOX: is not set" in forge("outbox", "relay", code=2).output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("retry", "jobs"), "give ids, or else --all"),
        (("retry", "jobs", "--all", "x"), "give ids, or else --all"),
        (("retry", "jobs", "x"), "ids: "),
        (("list", "jobs", "--limit", "0"), "'--limit': 0 is not in the range 1<=x<=1000"),
        (("list", "elsewhere"), "has no outbox 'elsewhere' with records"),
        (("list", "a,b"), "name: "),
    ],
)
def test_bad_input_is_said_in_a_line(forge: CommandLine, words: tuple[str, ...], said: str) -> None:
    written(forge.url, 1)
    refused = forge.run("outbox", *words)
    assert refused.exit_code
    assert said in refused.output.replace("\n", " ")


def test_the_doctor_looks_into_the_database_of_the_outbox(
    forge: CommandLine, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def finding(code: int = 0) -> dict[str, str]:
        document = forge.json("doctor", code=code)
        [found] = [each for each in document["findings"] if each["check"] == "outbox"]
        return {name: str(found[name]) for name in ("state", "text", "help")}

    assert (finding()["state"], finding()["text"]) == ("ok", "no job waits")
    written(database, 3, "Conflict: the id is taken")
    found = finding()
    assert (found["state"], found["help"]) == ("warn", "forge-jobs outbox list jobs")
    assert "2 wait" in found["text"]
    assert "1 set aside" in found["text"]
    monkeypatch.setenv("FORGE_OUTBOX", f"sqlite:///{tmp_path}/none/missing.db")
    assert finding(code=1)["state"] == "fail"
    monkeypatch.delenv("FORGE_OUTBOX")
    assert "outbox" not in [each["check"] for each in forge.json("doctor")["findings"]]


def test_while_the_store_is_away_a_job_that_waits_is_explained_and_the_outbox_examined(
    forge: CommandLine, database: str
) -> None:
    bad, good = written(database, 2, "Conflict: the id is taken")
    with free_ports() as port:
        away = ("--storage", f"redis://127.0.0.1:{port}")
        explained = forge.json("explain", good, *away)
        assert (explained["reason"], explained["job_id"]) == ("not_relayed", good)
        assert "the store of the queues does not answer now: the server at" in explained["text"]
        assert "set aside in the outbox" in forge("explain", bad, *away).stdout
        # Of a job in neither place only the outage can be said.
        refused = forge.refuse("explain", str(new_job_id()), *away, code=1)
        assert "cannot be reached" in refused
        findings = forge.json("doctor", *away, code=1)["findings"]
    states = {each["check"]: each["state"] for each in findings}
    assert (states["store"], states["outbox"]) == ("fail", "warn")
