"""``queues``, ``cron``, ``pods``, ``kinds``, ``migrate``, ``doctor`` and the rest."""

import sqlite3
from pathlib import Path

import pytest

from forge_jobs.cli.main import cli
from tests.cli.conftest import CommandLine

HANDLERS = "forge_jobs.demo.handlers:handlers"


def test_queues_show_settings_counts_and_what_is_unserved(forge: CommandLine) -> None:
    forge("enqueue", "a", "--queue", "x")

    [queue] = forge.json("queues", "list")["queues"]

    assert queue["name"] == "x"
    assert queue["counts"]["by_status"]["pending"] == 1
    assert queue["counts"]["due"] == 1
    assert (queue["granted"], queue["pods"], queue["unserved"]) == (0, 0, True)
    assert "unserved" in forge("queues", "list").stdout


def test_settings_of_a_queue_change_one_by_one(forge: CommandLine) -> None:
    forge("queues", "set", "x", "--max-workers", "4", "--cooldown", "exponential")
    forge("queues", "set", "x", "--keep-done", "1h30m", "--max-dead", "5")

    [queue] = forge.json("queues", "list")["queues"]
    assert queue["settings"]["max_workers"] == 4
    assert queue["settings"]["cooldown"]["mode"] == "exponential"
    assert queue["settings"]["cooldown"]["base"] == 60
    assert queue["settings"]["retention"]["done"] == 5400
    assert queue["settings"]["retention"]["max_dead"] == 5
    assert queue["overridden"] == ["cooldown", "max_workers", "retention"]


def test_a_queue_names_the_queue_for_letters_and_names_none_again(forge: CommandLine) -> None:
    state = forge.json("queues", "set", "x", "--dead-letter", "broken")
    assert (state["settings"]["dead_letter"], state["overridden"]) == ("broken", ["dead_letter"])
    forge("queues", "set", "x", "--max-workers", "2")
    assert forge.json("queues", "list")["queues"][0]["settings"]["dead_letter"] == "broken"
    assert forge.json("queues", "set", "x", "--dead-letter", "")["settings"]["dead_letter"] == ""


def test_a_queue_gets_an_objective_and_loses_the_objective_again(forge: CommandLine) -> None:
    state = forge.json("queues", "set", "x", "--objective", "95 % start within 30 s")
    assert (state["settings"]["objective"], state["overridden"]) == (
        "95% within 30s",
        ["objective"],
    )
    refused = forge("queues", "set", "x", "--objective", "soon", code=2)
    assert "objective: is 'soon'; give one like 95% within 30s" in refused.output
    assert forge.json("queues", "set", "x", "--objective", "")["settings"]["objective"] == ""


def test_objectives_are_listed_with_how_queues_stand(forge: CommandLine) -> None:
    forge("queues", "set", "x", "--max-workers", "1")
    assert "No queue has an objective." in forge("queues", "objectives").output
    forge("queues", "set", "x", "--objective", "95% within 30s")
    [stands] = forge.json("queues", "objectives")["objectives"]
    assert (stands["queue"], stands["objective"], stands["met_30d"]) == (
        "x",
        "95% within 30s",
        None,
    )
    assert "100%" in forge("queues", "objectives").stdout


def test_a_queue_is_paused_and_resumed(forge: CommandLine) -> None:
    forge("queues", "set", "x", "--max-workers", "1")

    forge("queues", "pause", "x")
    assert forge.json("queues", "list")["queues"][0]["standing"] == "paused"
    assert "paused since 20" in forge("queues", "list").stdout

    forge("queues", "resume", "x")
    assert forge.json("queues", "list")["queues"][0]["standing"] == "open"


def test_all_queues_are_paused_and_resumed_at_once(forge: CommandLine) -> None:
    for name in ("x", "y"):
        forge("queues", "set", name, "--max-workers", "1")

    assert forge("queues", "pause", "--all", "--wait").stderr == "x: paused\ny: paused\n"
    assert {each["paused"] for each in forge.json("queues", "list")["queues"]} == {True}
    forge("queues", "resume", "y", "x")
    assert {each["paused"] for each in forge.json("queues", "list")["queues"]} == {False}

    assert "--all" in forge.refuse("queues", "pause")
    assert "--all" in forge.refuse("queues", "pause", "x", "--all")
    assert "nowhere" in forge.refuse("queues", "pause", "x", "nowhere", code=1)
    assert {each["paused"] for each in forge.json("queues", "list")["queues"]} == {False}


@pytest.mark.parametrize(
    ("word", "stored"),
    [
        ("exponential", {"type": "exponential", "base": 1, "factor": 2, "cap": 3600}),
        ("exponential:2s:1m", {"type": "exponential", "base": 2, "cap": 60}),
        ("linear:5s", {"type": "linear", "step": 5, "cap": 3600}),
        ("fixed:30s", {"type": "fixed", "delay": 30}),
        ("delays:1s,1m", {"type": "delays", "delays": [1, 60]}),
    ],
)
def test_a_queue_is_given_a_retry_policy(
    forge: CommandLine, word: str, stored: dict[str, object]
) -> None:
    state = forge.json("queues", "set", "x", "--retry", word)

    retry = state["settings"]["retry"]
    assert {name: retry[name] for name in stored} == stored


@pytest.mark.parametrize("word", ["", "never", "fixed", "linear:x", "delays:", "fixed:1s:2s"])
def test_a_retry_policy_that_is_none_is_refused(forge: CommandLine, word: str) -> None:
    assert forge.refuse("queues", "set", "x", "--retry", word).startswith("retry: ")


def test_a_schedule_is_added_changed_paused_triggered_and_deleted(forge: CommandLine) -> None:
    added = forge.json(
        *("cron", "add", "nightly", "shop.report", "30 2 * * *", "--queue", "reports"),
        *("--timezone", "Europe/Berlin", "--payload", '{"all": true}', "--overlap", "skip"),
    )
    assert added["spec"]["payload"] == {"all": True}
    assert added["spec"]["timezone"] == "Europe/Berlin"
    assert added["next_at"] is not None
    assert "change it with 'cron set'" in forge.refuse(
        *("cron", "add", "nightly", "a", "@daily"), code=1
    )

    changed = forge.json("cron", "set", "nightly", "--expression", "@every 90s", "--tag", "t")
    assert changed["spec"] == added["spec"] | {"expression": "@every 90s", "tags": ["t"]}

    assert added["spec"]["sequence"] is None
    for key, line in (("-all", {"key": "-all", "on_failure": "wait"}), ("", None)):
        changed = forge.json("cron", "set", "nightly", "--sequence-key", key)
        assert changed["spec"]["sequence"] == line
    assert "sequence_key: contains a comma" in forge.refuse(
        "cron", "set", "nightly", "--sequence-key", "a,b"
    )

    forge("cron", "pause", "nightly")
    [paused] = forge.json("cron", "list")["schedules"]
    assert (paused["standing"], paused["next_at"]) == ("paused", None)
    forge("cron", "resume", "nightly")
    [resumed] = forge.json("cron", "list")["schedules"]
    assert resumed["standing"] == "on"
    assert resumed["next_at"] is not None

    job_id = forge("cron", "trigger", "nightly").stdout.strip()
    again = forge("cron", "trigger", "nightly")
    job = forge.json("jobs", "show", job_id)
    assert (job["kind"], job["queue"], job["schedule"]) == ("shop.report", "reports", "nightly")
    assert job["payload"] == {"all": True}
    assert again.stdout.strip() == job_id
    assert "still active" in again.stderr

    forge("cron", "delete", "nightly")
    [deleted] = forge.json("cron", "list")["schedules"]
    assert (deleted["deleted"], deleted["next_at"]) == (True, None)
    assert "'cron add' brings it back" in forge("cron", "list").stdout
    forge("cron", "add", "nightly", "shop.report", "@daily")
    [back] = forge.json("cron", "list")["schedules"]
    assert (back["deleted"], back["standing"]) == (False, "on")


def test_no_pods_is_said(forge: CommandLine) -> None:
    assert forge.json("pods") == {"pods": []}
    assert forge("pods").stderr == "No pod is known.\n"


def test_kinds_are_listed_with_their_schemas(forge: CommandLine) -> None:
    kinds = {entry["kind"]: entry for entry in forge.json("kinds", HANDLERS)["kinds"]}

    assert set(kinds) == {"demo.count_file", "demo.report", "demo.ping", "demo.tick"}
    assert kinds["demo.ping"]["payload_schema"]["properties"]["ledger"]["type"] == "string"
    assert "ledger" in forge("kinds", HANDLERS).stdout


def test_handlers_may_come_from_the_environment(
    forge: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_HANDLERS", HANDLERS)

    assert len(forge.json("kinds")["kinds"]) == 4


def test_migrations_are_applied_once_and_their_state_is_shown(tmp_path: Path) -> None:
    forge = CommandLine(f"sqlite:///{tmp_path / 'nobody-opened-it.db'}")
    missing = forge.json("migrate", "status", code=1)["migrations"]
    assert missing
    assert all(each["applied_at"] is None for each in missing)
    assert "CREATE TABLE" in forge("migrate", "sql").stdout.upper()

    assert "Applied 0001" in forge("migrate", "up").stderr
    assert forge("migrate", "up").stderr == "The schema is up to date.\n"

    applied = forge.json("migrate", "status")["migrations"]
    assert all(each["applied_at"] for each in applied)
    assert all(1 <= each["works_from"] <= each["version"] for each in applied)
    assert forge("migrate", "sql").stdout == ""


def test_a_schema_is_not_undone_where_that_would_lose_data(forge: CommandLine) -> None:
    forge("enqueue", "a")
    newest = forge.json("migrate", "status")["migrations"][-1]["version"]

    assert "at version" in forge("migrate", "down", "--to", str(newest)).stderr
    refused = forge("migrate", "down", "--to", "0", code=1).stderr
    assert "cannot be undone without losing data" in refused
    assert forge.json("jobs", "list")["jobs"]


def test_a_schema_of_a_newer_program_is_refused_with_the_fix(
    forge: CommandLine, tmp_path: Path
) -> None:
    forge("migrate", "up")
    connection = sqlite3.connect(tmp_path / "jobs.db")
    with connection:
        connection.execute("insert into forge_migrations values (9999, 'later', 'x', 0, 9999)")
    connection.close()

    assert "upgrade forge-jobs" in forge.refuse("jobs", "list", code=1)
    doctor = forge.json("doctor", code=1)
    assert doctor["ok"] is False
    assert {each["check"]: each["state"] for each in doctor["findings"]}["store"] == "fail"


def test_doctor_is_content_with_an_empty_store_but_warns_that_nothing_runs(
    forge: CommandLine,
) -> None:
    document = forge.json("doctor")

    states = {each["check"]: each["state"] for each in document["findings"]}
    assert document["ok"] is True
    assert states == {
        "python": "ok",
        "packages": "ok",
        "store": "ok",
        "pool": "ok",
        "durability": "ok",
        "rights": "ok",
        "wake-ups": "ok",
        "clock": "ok",
        "pods": "warn",
        "rate limits": "ok",
        "limits": "ok",
        "strikes": "ok",
        "retention": "ok",
        "settings": "ok",
        "schedules": "ok",
        "problems": "ok",
        "max-workers": "ok",
        "held": "ok",
        "dead": "ok",
        "oldest due": "ok",
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_complete_this_command(forge: CommandLine, shell: str) -> None:
    assert f"_FORGE_JOBS_COMPLETE={shell}_complete" in forge("completion", shell).stdout


def test_the_version_is_that_of_the_package(forge: CommandLine) -> None:
    assert forge("--version").stdout.startswith("forge-jobs 0.")


def test_every_command_has_a_help_text_of_its_own(forge: CommandLine) -> None:
    for name, command in cli.commands.items():
        assert command.help, name
        assert forge(name, "--help").stdout.startswith("Usage: ")


def test_kinds_of_the_store_are_listed_without_the_handlers(forge: CommandLine) -> None:
    assert "No pod has described a kind" in forge("kinds", "--stored").output
    forge("worker", HANDLERS, "--queues", "demo", "--once")
    [first, *_] = forge.json("kinds", "--stored")["kinds"]
    assert first["payload_schema"]["type"] == "object"
    assert first["pods"] == 0
    assert first["kind"] in forge("kinds", "--stored").stdout
    assert "either MODULE:ATTR or --stored" in forge.refuse("kinds", HANDLERS, "--stored")


def test_settings_of_a_queue_are_shown_as_they_are_typed(forge: CommandLine) -> None:
    forge("queues", "set", "x", "--retry", "fixed:30s", "--keep-done", "90m", "--max-done", "7")
    shown = forge("queues", "settings", "x").stdout
    assert "fixed:30s" in shown
    assert "done=1h30m" in shown
    assert "max_done=7" in shown
    assert "base=1m cap=30m quiet=2m" in shown
