"""The table of operations: each surface that exists has each operation, and none of its own."""

import inspect
import re
from typing import cast

import click
import pytest

from forge_jobs.cli.main import cli
from forge_jobs.operating.access import Right
from forge_jobs.operating.operations import BY_NAME, OPERATIONS, Operation
from forge_jobs.operating.operator import Operator
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.pages.routes import page_routes
from forge_jobs.web.source import Source
from tests.browser.addresses import pages_of

OF_A_MACHINE = {
    "worker": "runs jobs",
    "migrate status": "changes the schema, before there is a store to operate",
    "migrate up": "as above",
    "migrate down": "as above",
    "migrate sql": "as above",
    "outbox relay": "brings jobs from one store to another, as a worker does",
    "backup": "copies a file of this machine",
    "bench": "measures a store by work of its own",
    "demo": "makes a store of its own",
    "completion": "concerns the shell",
    "web user add": "writes a file of this machine",
    "web user remove": "as above",
    "web user list": "reads a file of this machine",
}
"""Commands that are no operations of an installation, and why."""

HELPERS = {"aclose", "check_queues"}
"""Public methods of the operator that are no operations."""

OF_NO_OPERATION = {"/act/{operation}": "previews of all actions", "/static/{name}": "files"}
"""Pages that show no operation of their own, and why."""

each_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)


def _commands(group: click.Group, above: str = "") -> set[str]:
    found: set[str] = set()
    for name, command in group.commands.items():
        words = f"{above} {name}".strip()
        found |= _commands(command, words) if isinstance(command, click.Group) else {words}
    return found


def test_the_command_line_has_the_operations_and_no_other() -> None:
    assert {each.command for each in OPERATIONS} == _commands(cli) - set(OF_A_MACHINE)


def test_the_operator_has_the_operations_and_no_other() -> None:
    methods = {
        name
        for name, method in inspect.getmembers(Operator, inspect.isfunction)
        if not name.startswith("_")
    }
    assert set(BY_NAME) == methods - HELPERS


@each_operation
def test_an_operation_is_one_documented_coroutine_with_typed_answers(operation: Operation) -> None:
    method = getattr(Operator, operation.name)

    assert inspect.iscoroutinefunction(method)
    assert method.__doc__
    assert inspect.signature(method).return_annotation is not inspect.Signature.empty


@each_operation
def test_a_read_is_a_get_and_nothing_else_is(operation: Operation) -> None:
    method, _, route = operation.http.partition(" ")

    assert (method == "GET") == (operation.right is not Right.ACTIONS)
    assert method in {"GET", "POST", "PUT", "PATCH", "DELETE"}
    assert re.fullmatch(r"(/[a-z-]+|/\{[a-z_]+\})+", route)
    arguments = inspect.signature(getattr(Operator, operation.name)).parameters
    assert set(re.findall(r"\{(\w+)\}", route)) <= set(arguments)


def test_no_two_operations_share_a_name_or_a_route() -> None:
    assert len(BY_NAME) == len(OPERATIONS)
    assert len({each.http for each in OPERATIONS}) == len(OPERATIONS)


def _page_paths() -> set[str]:
    return {route.path for route in page_routes(Source(cast("Storage", object())))}


def test_the_pages_have_the_operations_and_no_other() -> None:
    pages = {each.page for each in OPERATIONS}
    assert pages == _page_paths() - set(OF_NO_OPERATION)


def test_chromium_opens_every_page() -> None:
    kinds = ("done", "scheduled", "workflow")
    opened = pages_of({kind: kind for kind in kinds}, "p", {"set_queue": "a"}, {"gh": "g"})
    # /jobs/new is no job.
    paths = sorted(_page_paths(), key=lambda path: path.count("{"))
    routes = {path: re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in paths}
    found = {
        next(path for path, form in routes.items() if form.fullmatch(address.partition("?")[0]))
        for address in opened.values()
    }
    assert found == _page_paths() - {"/static/{name}"}


@each_operation
def test_an_inverse_is_an_action_of_the_table(operation: Operation) -> None:
    assert not operation.inverse or BY_NAME[operation.inverse].right is Right.ACTIONS
