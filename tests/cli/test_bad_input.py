"""Bad input is one clear line on stderr and exit code 2, whatever the command."""

import importlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from forge_jobs.cli.main import cli
from tests.cli.conftest import CommandLine

UNKNOWN_ID = "01J00000000000000000000000"


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["jobs", "lsit"], "No such command 'lsit'."),
        (["jobs", "list", "--nonsense"], "No such option '--nonsense'."),
        (["jobs", "list", "--limit", "0"], "Invalid value for '--limit'"),
        (["jobs", "list", "--status", "asleep"], "Invalid value for '--status'"),
        (["jobs", "list", "--queue", "a,b"], "queue: contains a comma; give 1 to 200"),
        (["jobs", "list", "--enqueued-after", "monday"], "enqueued-after: is 'monday', not an"),
        (["jobs", "list", "--enqueued-after", "2026-01-01T00:00"], "enqueued-after: has no time"),
        (["jobs", "list", "--cursor", "x"], "cursor: "),
        (["jobs", "show", "7"], "job-id: is not a ULID; give 26 characters"),
        (["jobs", "cancel"], "job-id: is missing; give job ids, or a filter and --all-matching"),
        (["jobs", "cancel", "--queue", "a"], "job-id: is missing; give job ids, or a filter"),
        (["jobs", "delete", UNKNOWN_ID, "--all-matching"], "job-id: is given together"),
        (["jobs", "requeue", UNKNOWN_ID, "--queue", "a"], "job-id: is given together"),
        (["enqueue"], "Missing argument 'KIND'."),
        (["enqueue", "a", "--payload", "{x"], "payload: is not valid JSON ("),
        (["enqueue", "a", "--payload", "7"], "payload: "),
        (["enqueue", "a", "--payload", '"\\u0000"'], "payload: contains a NUL character"),
        (["enqueue", "a,b"], "kind: contains a comma"),
        (["enqueue", "a", "--delay", "soon"], "delay: 'soon' is not a duration; give seconds"),
        (["enqueue", "a", "--max-attempts", "0"], "max-attempts: is '0'; give a number from 1"),
        (["enqueue", "a", "--id", "7"], "id: is not a ULID"),
        (["enqueue", "a", "--delay", "1", "--run-at", "2026-01-01T00:00Z"], "run_at: "),
        (["enqueue", "a", "--handlers", "nowhere.at:all"], "'nowhere.at:all'"),
        (["queues", "set", "a"], "queue: is given no setting; give one, as --max-workers 4"),
        (["queues", "set", "a", "--max-workers", "-1"], "Invalid value for '--max-workers'"),
        (["queues", "set", "a,b", "--max-workers", "1"], "queue: contains a comma"),
        (["queues", "set", "a", "--dead-letter", "b c"], "dead_letter: is 'b c', which contains"),
        (["cron", "add", "n", "k", "61 * * * *"], "expression: "),
        (["cron", "add", "n", "k", "@daily", "--timezone", "Mars/Base"], "timezone: "),
        (["cron", "add", "n", "k", "@daily", "--payload", "["], "payload: is not valid JSON"),
        (["cron", "set", "n"], "schedule: is given no change"),
        (["kinds"], "FORGE_HANDLERS is not set; set it, or name the registry"),
        (["kinds", "nonsense"], "'nonsense' is not of the form package.module:attribute"),
        (["kinds", "..up:handlers"], "'..up:handlers' is not of the form package.module:"),
        (["queues", "set", "a", "--keep-done", "x"], "keep-done: 'x' is not a duration"),
        (["explain", "x"], "job-id: is not a ULID"),
        (["worker"], "FORGE_QUEUES is not set; set it, or give --queues gh,slack=2"),
        (["worker", "--queues", "a=x"], "queues: 'x' is not a whole number; give one like 3"),
        (["worker", "--queues", "a", "--once", "--until-empty"], "--once and --until-empty"),
        (["demo", "/nowhere/at/all"], "folder: 'all' is not a folder; give one that exists"),
        (["demo", "--pace", "9"], "Invalid value for '--pace'"),
        (["completion", "tcsh"], "Invalid value for '{bash|zsh|fish}'"),
        (["jobs", "list", "--storage", "mysql://me:hunter2@db/x"], "url: has the unknown scheme"),
        (["jobs", "list", "--storage", "jobs.db"], "url: has no scheme"),
        (["migrate", "status", "--storage", "jobs.db"], "url: has no scheme"),
        (["jobs", "list", "--settings", "/nowhere/x.toml"], "settings file x.toml: cannot be"),
    ],
)
def test_bad_input_is_one_line_that_names_the_field(
    forge: CommandLine, args: list[str], line: str
) -> None:
    text = forge.refuse(*args)

    assert text.startswith(line)
    assert "hunter2" not in text


def test_payload_from_stdin_is_checked_like_any_other(forge: CommandLine) -> None:
    assert forge.refuse("enqueue", "a", "--payload", "-", stdin="{").startswith("payload: is not")
    assert forge.refuse("enqueue", "a", "--payload", "-", stdin=b"\xff").startswith(
        "payload: is not UTF-8"
    )


def test_a_payload_above_the_limit_is_refused(forge: CommandLine) -> None:
    payload = '{"a": "' + "x" * 1024 * 1024 + '"}'

    assert "give at most 1048576" in forge.refuse("enqueue", "a", "--payload", "-", stdin=payload)


def test_without_a_store_every_command_says_how_to_name_one() -> None:
    result = CliRunner().invoke(cli, ["pods"])

    assert result.exit_code == 2
    assert result.stderr == (
        "Error: FORGE_STORAGE_URL is not set; set it, or give --storage sqlite:///jobs.db\n"
    )


def test_a_misspelt_variable_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGE_STORAGE_ULR", "sqlite:///x.db")

    result = CliRunner().invoke(cli, ["pods"])

    assert result.exit_code == 2
    assert result.stderr == (
        "Error: FORGE_STORAGE_ULR is not known; did you mean FORGE_STORAGE_URL?\n"
    )


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise ValueError('hunter2')", "ValueError in broken_handlers.py line 3"),
        ("hunter2 = (", "SyntaxError in broken_handlers.py line 3"),
        ("raise SystemExit('hunter2')", "SystemExit in broken_handlers.py line 3"),
    ],
)
def test_handlers_that_cannot_be_imported_are_located_and_nothing_of_them_is_shown(
    forge: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    problem: str,
) -> None:
    (tmp_path / "broken_handlers.py").write_text(f"\n\n{source}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()

    text = forge.refuse("kinds", "broken_handlers:handlers")

    assert problem in text
    assert "hunter2" not in text


@pytest.mark.long
def test_a_full_disk_under_the_output_is_told_as_such(forge: CommandLine) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "forge_jobs", "queues", "list", "--json"],
            env=os.environ | {"FORGE_STORAGE_URL": forge.url, "PYTHONUNBUFFERED": ""},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == "Error: the output cannot be written: No space left on device\n"


def test_a_closed_output_is_no_defect(forge: CommandLine) -> None:
    forge("queues", "set", "mail", "--max-workers", "1")
    command = f"{shlex.quote(sys.executable)} -m forge_jobs queues list >&-"
    done = subprocess.run(
        command,
        shell=True,
        env=os.environ | {"FORGE_STORAGE_URL": forge.url},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_is_no_database_is_one_line_without_its_path(
    forge: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to look like one" * 100)

    text = forge.refuse("jobs", "list", "--storage", f"sqlite:///{file}", code=1)

    assert str(tmp_path) not in text


def test_the_text_of_an_unexpected_error_is_not_shown_unless_asked_for(
    forge: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise RuntimeError("postgresql://me:hunter2@db/app")

    monkeypatch.setattr("forge_jobs.cli.commands.pods.with_operator", break_down)

    assert forge.refuse("pods", code=1) == (
        "unexpected RuntimeError; this is a defect, please report it"
    )
    with pytest.raises(RuntimeError, match="hunter2"):
        CliRunner().invoke(cli, ["--traceback", "pods"], catch_exceptions=False)


@pytest.mark.parametrize(
    "args",
    [
        ["jobs", "show", UNKNOWN_ID],
        ["explain", UNKNOWN_ID],
        ["queues", "pause", "nowhere"],
        ["queues", "resume", "nowhere"],
        ["cron", "pause", "nowhere"],
        ["cron", "resume", "nowhere"],
        ["cron", "trigger", "nowhere"],
        ["cron", "delete", "nowhere"],
        ["cron", "set", "nowhere", "--expression", "@daily"],
    ],
)
def test_what_does_not_exist_is_exit_code_1(forge: CommandLine, args: list[str]) -> None:
    text = forge.refuse(*args, code=1)

    assert "nowhere" in text or UNKNOWN_ID in text


def test_a_mistyped_url_makes_no_database(tmp_path: Path) -> None:
    there_is_none = CommandLine(f"sqlite:///{tmp_path / 'nowhere.db'}")

    for command in (("queues", "list"), ("jobs", "list"), ("pods",), ("cron", "pause", "x")):
        assert "forge-jobs migrate up" in there_is_none.refuse(*command, code=1)
    there_is_none("doctor", code=1)
    assert "missing" in there_is_none("migrate", "status", code=1).stdout
    assert "CREATE TABLE forge_jobs" in there_is_none("migrate", "sql").stdout

    assert list(tmp_path.iterdir()) == []
