"""Reads print by ``--json`` the documents that the HTTP API answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from forge_jobs import open_storage
from forge_jobs.model.ids import HostId
from forge_jobs.operating.access import ALL, Actor, Right
from forge_jobs.operating.operations import API, OPERATIONS
from forge_jobs.web import dashboard
from tests.cli.conftest import CommandLine
from tests.support.factories import register
from tests.web.conftest import client_of

HANDLERS = "forge_jobs.demo.handlers:handlers"
KIND = "demo.echo"

OTHERWISE = {
    "job_progress": "watch prints lines of its own while the job goes on",
    "job_result": "a part of what jobs show prints",
    "job_log": "jobs logs prints a line of JSON for each line of the log",
    "export_jobs": "export writes a job a line into a file",
    "preview_action": "a preview is shown before a question",
    "board": "top is a screen, and without a terminal lines",
    "doctor": "needs no operator to look at a store that cannot be opened",
    "desired_pods": "a part of what what-if prints",
    "get_kind": "kinds --stored lists them all",
    "get_error": "needs a group of failures, which tests/cli/test_problems.py has",
}
"""Reads whose command prints another form, and why."""

PARTS = {"what_if": "outlook"}
"""Commands that print two documents, each under a name."""


def shape(value: Any) -> Any:
    """The names of a document. Times and counts go on between two readings."""
    if isinstance(value, Mapping):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return None


def read_over_http(url: str, paths: Mapping[str, str]) -> dict[str, Any]:
    async def read() -> dict[str, Any]:
        async with await open_storage(url) as storage:
            app = dashboard(storage, authorize=lambda _: Actor(name="ada", access=ALL))
            async with client_of(app) as caller:
                return {name: (await caller.get(API + path)).json() for name, path in paths.items()}

    return anyio.run(read)


@pytest.mark.long
def test_the_command_and_the_route_of_a_read_give_one_document(
    forge: CommandLine, tmp_path: Path
) -> None:
    job_id = forge("enqueue", KIND, "--queue", "q", "--payload", "{}").stdout.strip()
    forge("cron", "add", "nightly", KIND, "@daily", "--queue", "q")
    forge("limits", "set", "smtp", "5/1m")
    forge("queues", "set", "q", "--max-workers", "3", "--objective", "95% within 30s")
    forge("jobs", "cancel", job_id)
    forge("worker", HANDLERS, "--queues", "q", "--once")

    async def admit() -> HostId:
        async with await open_storage(forge.url) as storage:
            return (await register(storage, queues=("q",))).host_id

    host = anyio.run(admit)
    [action, *_] = forge.json("actions", "list")["actions"]
    names = {
        "job_id": job_id, "name": "q", "host_id": str(host), "action_id": action["id"],
    }  # fmt: skip
    more = {"what_if": ("--max-workers", "4"), "list_kinds": ("--stored",)}
    asked = {"what_if": "?max_workers=4"}
    reads = [each for each in OPERATIONS if each.right is not Right.ACTIONS]
    paths, commands = {}, {}
    for each in reads:
        if each.name in OTHERWISE:
            continue
        given = names | ({"name": "nightly"} if "schedules" in each.http else {})
        route = each.http.partition(" ")[2]
        words = [given[part[1:-1]] for part in route.split("/") if part.startswith("{")]
        paths[each.name] = route.format(**given) + asked.get(each.name, "")
        commands[each.name] = (*each.command.split(), *words, *more.get(each.name, ()))
    answers = read_over_http(forge.url, paths)
    for name, command in commands.items():
        printed = forge.json(*command)
        printed = printed[PARTS[name]] if name in PARTS else printed
        assert shape(printed) == shape(answers[name]), name
