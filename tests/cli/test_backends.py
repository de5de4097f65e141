"""Commands on a store of each kind, and the findings of ``doctor``."""

import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import anyio
import psycopg
import pytest
from msgspec import structs

from forge_jobs.policy.judgement.problems import judging
from forge_jobs.policy.judgement.problems.problem import Code
from tests.cli.conftest import CommandLine
from tests.support import backends, servers
from tests.support.redis_databases import with_options

BACKENDS = ["sqlite", "postgres", "redis", "redis-cluster"]


@pytest.fixture(params=BACKENDS)
def forge(request: pytest.FixtureRequest, tmp_path: Path) -> CommandLine:
    """The command line on an empty store."""

    async def make() -> str:
        return await backends.url_of(request.param, tmp_path)

    command_line = CommandLine(anyio.run(make))
    command_line("migrate", "up")
    return command_line


def findings(forge: CommandLine, **options: str) -> dict[str, dict[str, str]]:
    url = with_options(forge.url, **options) if options else forge.url
    return {each["check"]: each for each in CommandLine(url).json("doctor")["findings"]}


def test_an_operators_day(forge: CommandLine) -> None:
    forge("migrate", "status")
    assert forge("migrate", "sql").stdout == ""

    first = forge("enqueue", "shop.mail", "--queue", "mail", "--tag", "t").stdout.strip()
    forge("enqueue", "shop.mail", "--queue", "other")
    assert [job["id"] for job in forge.json("jobs", "list", "--tag", "t")["jobs"]] == [first]
    assert forge.json("explain", first)["reason"] == "no_pod"
    forge("jobs", "cancel", first)
    forge("jobs", "requeue", first)
    assert forge.json("jobs", "show", first)["status"] == "pending"

    forge("queues", "set", "mail", "--max-workers", "4")
    forge("queues", "pause", "--all")
    shown = {each["name"]: each["standing"] for each in forge.json("queues", "list")["queues"]}
    assert shown == {"mail": "paused", "other": "paused"}
    told = forge.json("explain", first)
    assert (told["reason"], told["help"]) == ("paused", "forge-jobs queues resume mail")
    assert forge.json("problems") == {"ok": True, "problems": []}
    assert forge("problems").stdout == "Nothing is wrong.\n"
    forge("queues", "resume", "--all")

    forge("cron", "add", "nightly", "shop.report", "30 2 * * *", "--queue", "mail")
    made = forge("cron", "trigger", "nightly").stdout.strip()
    assert forge.json("jobs", "list", "--schedule", "nightly")["jobs"][0]["id"] == made
    forge("cron", "delete", "nightly")
    assert [each["deleted"] for each in forge.json("cron", "list")["schedules"]] == [True]
    assert forge("jobs", "delete", "--queue", "mail", "--all-matching", "--yes").stdout == (
        "2 deleted\n"
    )
    assert forge.json("pods")["pods"] == []


@pytest.mark.processes
def test_a_worker_empties_its_queue(forge: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "backend_handlers.py").write_text(
        "from forge_jobs import HandlerRegistry\n"
        "handlers = HandlerRegistry()\n"
        "@handlers.job('t.double')\n"
        "def double(n: int) -> int:\n"
        "    return 2 * n\n"
    )
    job_id = forge("enqueue", "t.double", "--payload", '{"n": 21}').stdout.strip()
    environ = {name: text for name, text in os.environ.items() if not name.startswith("FORGE_")}
    command = ["worker", "backend_handlers:handlers", "--queues", "default", "--until-empty"]

    subprocess.run(
        [sys.executable, "-m", "forge_jobs", *command, "--storage", forge.url],
        cwd=tmp_path,
        env=environ | {"PYTHONPATH": str(Path.cwd())},
        timeout=100,
        check=True,
    )

    job = forge.json("jobs", "show", job_id)
    assert (job["status"], job["result"]) == ("done", 42)


def test_doctor_names_server_durability_and_wakeups(forge: CommandLine) -> None:
    found = findings(forge)

    assert re.search(r"(SQLite|PostgreSQL|Redis|Valkey) \d+\.\d", found["store"]["text"])
    assert found["wake-ups"]["state"] == "ok"
    # Servers of tests sync nothing to the disk. A real server must not be set up so by accident.
    assert found["durability"]["state"] == "warn"
    assert "power" in found["durability"]["text"] or "crash" in found["durability"]["text"]


@pytest.mark.parametrize(
    "forge", ["postgres", pytest.param("redis", marks=pytest.mark.long)], indirect=True
)
def test_doctor_warns_of_polling_and_of_a_pool_smaller_than_the_queues(
    forge: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_QUEUES", "a,b,c")

    found = findings(forge, wake="poll", pool_size="4")

    assert found["wake-ups"]["state"] == "warn"
    assert (found["pool"]["state"], found["pool"]["text"].endswith("pool_size=5")) == ("warn", True)


@pytest.mark.parametrize("forge", ["postgres"], indirect=True)
def test_a_transaction_that_stays_open_is_a_problem_since_its_begin(
    forge: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(forge.url) as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        [begun] = reader.execute("SELECT now() FROM forge_jobs RIGHT JOIN (SELECT 1) one ON true")
        assert forge.json("problems")["problems"] == []
        rules = [
            structs.replace(rule, after=timedelta(0)) if rule.code is Code.OLD_TRANSACTION else rule
            for rule in judging.RULES
        ]
        monkeypatch.setattr(judging, "RULES", rules)
        [problem] = forge.json("problems")["problems"]
        assert findings(forge)["old_transaction"]["state"] == "warn"
    assert problem["code"] == "old_transaction"
    since = datetime.fromisoformat(problem["since"])
    # The store's time is read before the age of the transaction, and a loaded machine is slow.
    assert begun[0] - timedelta(minutes=1) < since <= begun[0]
    assert forge.json("problems")["problems"] == []


@pytest.mark.long
def test_doctor_is_content_with_servers_that_sync(tmp_path: Path) -> None:
    with (
        servers.a_postgres(durable=True, folder=tmp_path) as postgres,
        servers.a_redis(durable=True, folder=tmp_path) as redis,
    ):
        for url in (postgres.url, redis.url):
            forge = CommandLine(url)
            forge("migrate", "up")
            found = findings(forge)
            assert found["durability"]["state"] == "ok"
            assert "survives a crash and a loss of power" in found["durability"]["text"]


def test_doctor_fails_on_a_server_that_drops_keys() -> None:
    with servers.a_redis(settings={"maxmemory-policy": "allkeys-lru"}) as redis:
        document = CommandLine(redis.url).json("doctor", code=1)

    assert document["ok"] is False
    assert "maxmemory-policy noeviction" in document["findings"][-1]["text"]
