"""``forge-jobs actions``: what operators did, how far it has come, and how to take it back."""

from collections.abc import Callable, Coroutine
from typing import Any

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_fields, emit_json, emit_table, printable, talk
from forge_jobs.config import Deployment
from forge_jobs.operating.actions.documents import ActionView
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.words import instant


@click.group()
def actions() -> None:
    """Records of what operators did: look, abort, undo."""


@actions.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--cursor", help="Continue where an earlier page ended.")
@json_option
@deployment_options
def list_actions(deployment: Deployment, limit: int, cursor: str | None, as_json: bool) -> None:
    """List actions of all operators, newest first. They are kept for 400 days."""
    page = with_operator(
        deployment, lambda operator: operator.list_actions(cursor=cursor, limit=limit)
    )
    if as_json:
        emit_json(page)
        return
    columns = ["id", "at", "by", "from", "action", "on", "state", "changed", "refused", "reason"]
    emit_table(columns, [_line(each) for each in page.actions], none="No action is known.")
    if page.cursor:
        talk(f"More: --cursor {page.cursor}")


def _line(each: ActionView) -> list[object]:
    return [
        each.id,
        instant(each.at),
        each.actor,
        each.surface,
        each.verb.replace("_", " "),
        each.target or ", ".join(each.queues),
        each.state,
        each.changed + each.requested,
        each.refused,
        each.reason[:60],
    ]


@actions.command()
@click.argument("action_id")
@click.option("--limit", type=click.IntRange(1, 1000), default=1000, show_default=True)
@click.option("--cursor", help="Continue where an earlier page ended.")
@json_option
@deployment_options
def jobs(
    deployment: Deployment, action_id: str, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List the jobs that an action has changed. They are known for seven days."""
    page = with_operator(
        deployment, lambda operator: operator.action_jobs(action_id, cursor=cursor, limit=limit)
    )
    if as_json:
        emit_json(page)
        return
    for job_id in page.job_ids:
        click.echo(job_id)
    if page.cursor:
        talk(f"More: --cursor {page.cursor}")


def _on_one(
    step: str, call: Callable[[Operator, str], Coroutine[Any, Any, ActionView]], help: str
) -> None:
    """Add a command that takes the id of an action."""

    @actions.command(step, help=help)
    @click.argument("action_id")
    @json_option
    @deployment_options
    def command(deployment: Deployment, action_id: str, as_json: bool) -> None:
        _tell(with_operator(deployment, lambda operator: call(operator, action_id)), as_json)


_on_one("show", Operator.get_action, "Show an action, and how far it has come in each queue.")
_on_one(
    "continue",
    Operator.continue_action,
    "Go on with an action whose program has died. Each job is changed once.",
)
_on_one(
    "abort",
    Operator.abort_action,
    "End a running action between two steps. What it has changed stays.",
)
_on_one(
    "undo",
    Operator.undo_action,
    "Write back the old value of a setting, pause or limit, or restore the jobs of a cancel.",
)


def _tell(action: ActionView, as_json: bool) -> None:
    if as_json:
        emit_json(action)
        return
    emit_fields(
        [
            ("action", f"{action.id} {action.verb.replace('_', ' ')}"),
            ("on", action.target or ", ".join(action.queues)),
            ("at", instant(action.at)),
            ("by", f"{action.actor} ({action.surface})"),
            ("reason", action.reason),
            ("undoes", action.undoes),
            ("state", action.state),
            ("changed", action.changed),
            ("asked to stop", action.requested),
            ("refused", action.refused),
            ("before", action.before),
            ("after", action.after),
        ]
    )
    for part in action.parts:
        refused = ", ".join(f"{name} {number}" for name, number in sorted(part.refused.items()))
        outcome = f"{part.state}, {part.changed} changed, refused: {refused or 0}"
        click.echo(f"{printable(part.queue)}: {outcome}")
