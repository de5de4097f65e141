"""All commands have alike ``--json``, and a variable of the environment for each option."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import click
import msgspec
import pytest

from forge_jobs import open_storage
from forge_jobs.cli.main import cli
from forge_jobs.cli.variables import ELSEWHERE, TYPED_ONLY
from forge_jobs.config import Deployment, variable_of
from tests.cli.conftest import CommandLine

OTHER_FORMS = {
    "worker": "writes a log, in JSON by FORGE_LOG_FORMAT",
    "export": "writes a document a line anyway",
    "migrate sql": "prints SQL",
    "completion": "prints a program for a shell",
    "web": "serves until a signal",
}
"""Commands that print no document, and why."""

OF_THE_PROGRAM = {"--traceback", "--version"}
NAMED = {"--storage": "storage_url", "--settings": "settings"}


def commands(
    group: click.Command, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(group, click.Group) or group.invoke_without_command:
        yield " ".join(words), group
    if isinstance(group, click.Group):
        for name, each in group.commands.items():
            yield from commands(each, (*words, name))


COMMANDS = dict(commands(cli))
OPTIONS = [
    (words, option)
    for words, command in COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option) and not option.hidden
]


def test_each_command_prints_json_or_says_why_not() -> None:
    without = {
        words
        for words, command in COMMANDS.items()
        if not any("--json" in each.opts for each in command.params)
    }
    assert without == set(OTHER_FORMS)


def test_each_option_has_a_variable_called_after_command_and_option() -> None:
    seen: dict[str, str] = {}
    for words, option in OPTIONS:
        longest = max(option.opts, key=len)
        if longest in TYPED_ONLY | ELSEWHERE and option.envvar is None:
            continue
        name = "_".join((words, longest[2:])).replace(" ", "_").replace("-", "_").upper()
        kept = {"FORGE_HEALTH_PORT", "FORGE_HEALTH_HOST", "FORGE_WEB_USERS", "FORGE_WEB_PORT"}
        assert option.envvar == f"FORGE_{name}" or option.envvar in kept, (words, longest)
        if option.envvar not in kept:
            assert seen.setdefault(option.envvar, words) == words


def test_what_has_no_variable_of_its_own_is_a_setting_or_is_typed() -> None:
    settings = {option for option in ELSEWHERE if option not in ("--storage", "--settings")}
    fields = {name.replace("_", "-") for name in Deployment.__struct_fields__}
    assert {option[2:] for option in settings} <= fields
    assert {max(option.opts, key=len) for _, option in OPTIONS} >= TYPED_ONLY | ELSEWHERE


def test_no_variable_of_an_option_is_taken_for_a_setting_misspelt() -> None:
    known = {variable_of(name) for name in (*Deployment.__struct_fields__, "settings")}
    variables = {str(option.envvar) for _, option in OPTIONS if option.envvar} - known
    given = Deployment.from_environment(dict.fromkeys(variables, "x"))
    assert given == Deployment.from_environment({})


def test_a_variable_is_read_and_what_is_typed_wins(
    forge: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        forge("enqueue", "mail.send", "--queue", "q", "--payload", "{}")
    monkeypatch.setenv("FORGE_JOBS_LIST_JSON", "1")
    monkeypatch.setenv("FORGE_JOBS_LIST_LIMIT", "2")

    def listed(*more: str) -> int:
        return len(msgspec.json.decode(forge("jobs", "list", *more).stdout)["jobs"])

    assert (listed(), listed("--limit", "1")) == (2, 1)
    monkeypatch.setenv("FORGE_JOBS_LIST_LIMIT", "many")
    assert "many" in forge.refuse("jobs", "list")
    monkeypatch.setenv("FORGE_ENQUEUE_TAG", "a b")
    job_id = forge("enqueue", "mail.send", "--queue", "q", "--payload", "{}").stdout.strip()
    assert forge.json("jobs", "show", job_id)["tags"] == ["a", "b"]


def test_no_variable_makes_a_command_act_on_all_or_without_a_question(
    forge: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge("enqueue", "mail.send", "--queue", "q", "--payload", "{}")
    for option in ("ALL", "ALL_MATCHING", "YES"):
        monkeypatch.setenv(f"FORGE_JOBS_DELETE_{option}", "1")
    monkeypatch.setenv("FORGE_QUEUES_DELETE_WITH_JOBS", "1")
    assert "is missing" in forge.refuse("jobs", "delete")
    assert forge.run("queues", "delete", "q").exit_code != 0
    assert len(forge.json("jobs", "list")["jobs"]) == 1


def test_commands_of_the_machine_print_documents(
    forge: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert forge.json("migrate", "up") == {"applied": []}
    assert forge.json("migrate", "down", "--to", "99") == {"undone": []}
    copy = tmp_path / "copy.db"
    assert forge.json("backup", str(copy)) == {"target": str(copy), "bytes": copy.stat().st_size}

    async def look() -> None:
        async with await open_storage(f"sqlite:///{copy}"):
            pass

    anyio.run(look)
    monkeypatch.setenv("FORGE_WEB_USERS", str(tmp_path / "users"))
    added = forge.json("web", "user", "add", "ada", "--token", "--no-password", "--action", "*")
    assert added["token"].startswith("ada.")
    [ada] = forge.json("web", "user", "list")["users"]
    assert ada == {
        "name": "ada", "signs_in_by": ["token"], "actions": ["*"], "queues": None,
        "payloads": False,
    }  # fmt: skip
    assert forge.json("web", "user", "remove", "ada") == {"name": "ada"}
