"""How many things a list may be asked for: the documented bound is checked on each surface."""

import inspect
import re

import click
import httpx
import pytest

from forge_jobs.cli.main import cli
from forge_jobs.operating.operations import API, BY_NAME, OPERATIONS
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from tests.support.factories import new_job

pytestmark = pytest.mark.anyio

BOUNDS = {
    "list_jobs": 1000,
    "export_jobs": 1000,
    "job_hints": 100,
    "job_kin": 10_000,
    "job_log": 1000,
    "list_actions": 1000,
    "action_jobs": 1000,
    "list_workflows": 100,
    "list_errors": 1000,
    "get_concurrency": 500,
    "list_outbox": 1000,
}
"""By operation: the highest ``limit``."""

WITHOUT_OPTION = ("export_jobs", "job_log")
"""Their commands read page after page."""


def test_each_operation_with_a_limit_is_tried() -> None:
    limited = {
        each.name
        for each in OPERATIONS
        if "limit" in inspect.signature(getattr(Operator, each.name)).parameters
        and each.http.startswith("GET")
    }
    assert {*BOUNDS} == limited


async def test_a_list_is_as_long_as_asked_or_refused(
    storage: Storage, caller: httpx.AsyncClient
) -> None:
    [job] = await storage.jobs.enqueue([new_job(queue="mail")])
    await storage.config.ensure_limits("mail", {"hosts": 2})
    await caller.post(f"{API}/queues/mail/pause", headers={"Sec-Fetch-Site": "same-origin"})
    [action] = (await caller.get(f"{API}/actions")).json()["actions"]
    names = {"job_id": job.job_id, "action_id": action["id"], "queue": "mail", "name": "hosts"}
    for operation, most in BOUNDS.items():
        path = API + BY_NAME[operation].http.removeprefix("GET ").format(**names)
        for wrong in (0, most + 1, 100_000):
            refused = await caller.get(path, params={"limit": wrong})
            assert (refused.status_code, refused.json()["field"]) == (400, "limit"), operation
            assert refused.json()["fix"] == f"give 1 to {most}", operation
        taken = await caller.get(path, params={"limit": most})
        # An outbox without records is none.
        assert taken.status_code == (404 if operation == "list_outbox" else 200), taken.text


def test_the_option_of_the_command_has_the_same_bound() -> None:
    found = {}
    for operation in BOUNDS:
        command: click.Command = cli
        for word in BY_NAME[operation].command.split():
            assert isinstance(command, click.Group)
            command = command.commands[word]
        for each in command.params:
            if each.name == "limit" and isinstance(each.type, click.IntRange):
                found[operation] = (each.type.min, each.type.max)
    of_commands = {name: (1, most) for name, most in BOUNDS.items() if name not in WITHOUT_OPTION}
    assert found == of_commands


@pytest.mark.parametrize("operation", BOUNDS)
def test_the_manual_names_the_bound(operation: str) -> None:
    said = inspect.getdoc(getattr(Operator, operation)) or ""
    assert re.search(rf":param limit: 1 to {BOUNDS[operation]:,}\b(?!,)", said), said
