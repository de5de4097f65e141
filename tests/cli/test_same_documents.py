"""Commands print by ``--json`` the documents that the HTTP API answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from forge_jobs import EnqueueRequest, JobClient, Workflow, open_storage
from forge_jobs.model.ids import HostId
from forge_jobs.operating.access import ALL, Actor, Right
from forge_jobs.operating.operations import API, BY_NAME, OPERATIONS
from forge_jobs.web import dashboard
from tests.cli.conftest import CommandLine
from tests.support.factories import register
from tests.support.outboxes import write_down
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


def store_workflow(url: str) -> str:
    async def store() -> str:
        async with await open_storage(url) as storage, JobClient(storage) as client:
            workflow = Workflow("nightly")
            workflow.step("first", EnqueueRequest(KIND, {}, queue="q", delay=3600))
            workflow.step("last", EnqueueRequest(KIND, {}, queue="q"), after=["first"])
            return (await client.enqueue_workflow(workflow)).id

    return anyio.run(store)


def write_record(url: str) -> None:
    async def write() -> None:
        async with await open_storage(url) as storage:
            await write_down(storage, "jobs", 1, "refused on purpose")

    anyio.run(write)


@pytest.mark.long
def test_the_command_and_the_route_of_a_read_give_one_document(
    forge: CommandLine, tmp_path: Path
) -> None:
    job_id = forge("enqueue", KIND, "--queue", "q", "--payload", "{}").stdout.strip()
    forge("cron", "add", "nightly", KIND, "@daily", "--queue", "q")
    forge("limits", "set", "smtp", "5/1m")
    forge("limits", "set-concurrency", "q", "hosts", "2")
    forge("strikes", "add", "big", "--kind", "k", "--where", "amount > 5")
    write_record(forge.url)
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
        "workflow_id": store_workflow(forge.url),
    }  # fmt: skip
    more = {
        "what_if": ("--max-workers", "4"),
        "list_kinds": ("--stored",),
        "preview_strike": ("s", "--kind", "k", "--preview"),
    }
    asked = {"what_if": "?max_workers=4", "preview_strike": "?kind=k"}
    reads = [each for each in OPERATIONS if each.right is not Right.ACTIONS]
    paths, commands = {}, {}
    for each in reads:
        if each.name in OTHERWISE:
            continue
        given = names | ({"name": "nightly"} if "schedules" in each.http else {})
        given |= {"name": "jobs"} if "outbox" in each.http else {}
        given |= {"queue": "q", "name": "hosts"} if "concurrency" in each.http else {}
        route = each.http.partition(" ")[2]
        words = [given[part[1:-1]] for part in route.split("/") if part.startswith("{")]
        paths[each.name] = route.format(**given) + asked.get(each.name, "")
        commands[each.name] = (*each.command.split(), *words, *more.get(each.name, ()))
    answers = read_over_http(forge.url, paths)
    for name, command in commands.items():
        printed = forge.json(*command)
        printed = printed[PARTS[name]] if name in PARTS else printed
        assert shape(printed) == shape(answers[name]), name


ASKED_OF_PODS = {"quiet_pod", "resume_pod", "stop_pod", "show_stacks"}
"""Wait for a pod, which tests/cluster has. Their command prints what the operator returns."""

JOB = "01KB0000000000000000000000"
SCHEDULE = {"kind": KIND, "expression": "@hourly", "queue": "q", "payload": {}}
CHANGES: dict[str, tuple[dict[str, str], tuple[str, ...], Any]] = {
    "enqueue": ({}, (KIND, "--queue", "q", "--payload", "{}"), {"kind": KIND, "queue": "q"}),
    "cancel_jobs": ({}, (JOB,), {"ids": [JOB]}),
    "requeue_jobs": ({}, (JOB,), {"ids": [JOB]}),
    "restore_jobs": ({}, (JOB,), {"ids": [JOB]}),
    "delete_jobs": ({}, (JOB,), {"ids": [JOB]}),
    "release_held_jobs": ({}, (JOB,), {"ids": [JOB]}),
    "run_jobs_now": ({}, (JOB,), {"ids": [JOB]}),
    "reveal_job": ({"job_id": JOB}, (JOB,), {}),
    "edit_job": ({"job_id": JOB}, (JOB, "--priority", "5"), {"priority": 5}),
    "set_queue": ({"name": "q"}, ("q", "--max-workers", "4"), {"max_workers": 4}),
    "delete_queue": ({"name": "idle"}, ("idle",), None),
    "pause_queue": ({"name": "q"}, ("q",), None),
    "resume_queue": ({"name": "q"}, ("q",), None),
    "clean_up_queue": ({"name": "q"}, ("q",), None),
    "end_cooldown": ({"name": "q"}, ("q",), None),
    "add_schedule": (
        {"name": "new"}, ("new", KIND, "@hourly", "--queue", "q", "--payload", "{}"), SCHEDULE,
    ),
    "set_schedule": (
        {"name": "nightly"}, ("nightly", "--expression", "@hourly"), {"expression": "@hourly"},
    ),
    "pause_schedule": ({"name": "nightly"}, ("nightly",), None),
    "resume_schedule": ({"name": "nightly"}, ("nightly",), None),
    "delete_schedule": ({"name": "nightly"}, ("nightly",), None),
    "trigger_schedule": ({"name": "nightly"}, ("nightly",), None),
    "set_limit": ({"name": "smtp"}, ("smtp", "7/1m"), {"capacity": 7, "per": 60}),
    "delete_limit": ({"name": "smtp"}, ("smtp",), None),
    "drain_limit": ({"name": "smtp"}, ("smtp",), None),
    "set_concurrency": (
        {"queue": "q", "name": "hosts"}, ("q", "hosts", "3"), {"at_most": 3},
    ),
    "delete_concurrency": ({"queue": "q", "name": "hosts"}, ("q", "hosts"), None),
    "add_strike": ({"name": "new"}, ("new", "--kind", "k"), {"kind": "k"}),
    "lift_strike": ({"name": "big"}, ("big",), None),
    "retry_outbox": ({"name": "jobs"}, ("jobs", JOB), {"ids": [JOB]}),
    "discard_outbox": ({"name": "jobs"}, ("jobs", JOB), {"ids": [JOB]}),
    "cancel_workflow": ({"workflow_id": "?"}, ("?",), {}),
    "resume_workflow": ({"workflow_id": "?"}, ("?",), {}),
    "undo_action": ({"action_id": "?"}, ("?",), None),
    "continue_action": ({"action_id": "?"}, ("?",), None),
    "abort_action": ({"action_id": "?"}, ("?",), None),
}  # fmt: skip
"""Of each change: names in the route, words of the command, and the body of the request."""


def change_over_http(url: str, operation: str, names: Mapping[str, str], body: Any) -> Any:
    async def change() -> Any:
        async with await open_storage(url) as storage:
            app = dashboard(storage, authorize=lambda _: Actor(name="ada", access=ALL))
            method, _, route = BY_NAME[operation].http.partition(" ")
            async with client_of(app) as caller:
                answer = await caller.request(method, API + route.format(**names), json=body)
        assert answer.status_code == 200, (operation, answer.text)
        return answer.json()

    return anyio.run(change)


def test_all_changes_are_compared() -> None:
    changes = {each.name for each in OPERATIONS if each.right is Right.ACTIONS}
    previewed = {"apply_action"}  # jobs cancel shows a preview before, and prints the record
    assert set(CHANGES) == changes - ASKED_OF_PODS - previewed


@pytest.mark.long
@pytest.mark.parametrize("operation", CHANGES)
def test_the_command_and_the_route_of_a_change_give_one_document(
    operation: str, forge: CommandLine, tmp_path: Path
) -> None:
    forge("enqueue", KIND, "--queue", "q", "--payload", "{}", "--id", JOB)
    forge("queues", "set", "q", "--max-workers", "3")
    forge("queues", "set", "idle", "--max-workers", "3")
    forge("cron", "add", "nightly", KIND, "@daily", "--queue", "q")
    forge("limits", "set", "smtp", "5/1m")
    forge("limits", "set-concurrency", "q", "hosts", "2")
    forge("strikes", "add", "big", "--kind", "k", "--where", "amount > 5")
    write_record(forge.url)
    names, words, body = CHANGES[operation]
    if "action_id" in names:
        [newest, *_] = forge.json("actions", "list")["actions"]
        names, words = {"action_id": newest["id"]}, (newest["id"],)
    if "workflow_id" in names:
        workflow = store_workflow(forge.url)
        names, words = {"workflow_id": workflow}, (workflow,)
    other = tmp_path / "other.db"
    forge("backup", str(other))
    answer = change_over_http(f"sqlite:///{other}", operation, names, body)
    # Exits with 1 where the job refuses the change, which the answer of the route says too.
    done = forge.run(*BY_NAME[operation].command.split(), *words, "--json")
    assert shape(msgspec.json.decode(done.stdout)) == shape(answer), done.output


def test_several_queues_are_a_document_each(forge: CommandLine) -> None:
    for name in ("a", "b"):
        forge("queues", "set", name, "--max-workers", "3")
    for verb in ("pause", "resume", "end-cooldown"):
        lines = forge("queues", verb, "a", "b", "--json").stdout.splitlines()
        assert [msgspec.json.decode(line)["name"] for line in lines] == ["a", "b"]
