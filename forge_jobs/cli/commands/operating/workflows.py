"""``forge-jobs workflows``: how far they have come, and what operators do about a failed step."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.clients.flows.workflows import StepState
from forge_jobs.config import Deployment
from forge_jobs.operating.jobs.documents import Changed
from forge_jobs.operating.jobs.workflows import WorkflowLine, WorkflowView


@click.group()
def workflows() -> None:
    """Workflows: their steps, resume after a failed one, cancel."""


@workflows.command("list")
@click.option("--limit", type=click.IntRange(1, 100), default=50, show_default=True)
@click.option("--cursor", help="Go on behind an earlier page.")
@json_option
@deployment_options
def list_workflows(deployment: Deployment, limit: int, cursor: str | None, as_json: bool) -> None:
    """List workflows, the newest first."""
    found = with_operator(
        deployment, lambda operator: operator.list_workflows(cursor=cursor, limit=limit)
    )
    if as_json:
        emit_json(found)
        return
    columns = ["id", "name", "queue", "status", "done", "waiting", "held"]
    emit_table(columns, [_line(each) for each in found.workflows], none="There is no workflow.")
    if found.cursor is not None:
        talk(f"There are more: --cursor {found.cursor}")


def _line(each: WorkflowLine) -> list[object]:
    counts = [each.done, each.waiting, each.held]
    return [each.id, " ".join(each.tags), each.queue, each.status.in_words, *counts]


@workflows.command("show")
@click.argument("workflow_id")
@json_option
@deployment_options
def show(deployment: Deployment, workflow_id: str, as_json: bool) -> None:
    """Show the steps of WORKFLOW_ID, their states, and what holds them."""
    found = with_operator(deployment, lambda operator: operator.get_workflow(workflow_id))
    if as_json:
        emit_json(found)
        return
    columns = ["step", "id", "queue", "kind", "status", "after", "held by"]
    emit_table(columns, [_step(each) for each in found.steps], none="No step is open to you.")
    if found.unreadable:
        talk(f"Ids stand for the names of steps: {found.unreadable}")
    talk(_sentence(found))


def _step(each: StepState) -> list[object]:
    status = "gone" if each.status is None else each.status.in_words
    after = " ".join(each.after)
    return [each.name, each.job_id, each.queue, each.kind, status, after, " ".join(each.held_by)]


def _sentence(found: WorkflowView) -> str:
    said = f"{found.done} of {found.total} steps are done"
    if not found.held_by:
        return f"{said}."
    names = ", ".join(found.held_by[:5]) + (" and more" if len(found.held_by) > 5 else "")
    return f"{said}. Held by {names}: forge-jobs workflows resume {found.id}"


@workflows.command("resume")
@click.argument("workflow_id")
@click.option("--reason", default="", help="Why, kept in the record of the action.")
@json_option
@deployment_options
def resume(deployment: Deployment, workflow_id: str, reason: str, as_json: bool) -> None:
    """Requeue the steps of WORKFLOW_ID that failed, so that the rest goes on."""
    total = with_operator(
        deployment, lambda operator: operator.resume_workflow(workflow_id, reason=reason)
    )
    _tell(total, "requeued", as_json=as_json)


@workflows.command("cancel")
@click.argument("workflow_id")
@click.option("--reason", default="", help="Why, kept in the record of the action.")
@json_option
@deployment_options
def cancel(deployment: Deployment, workflow_id: str, reason: str, as_json: bool) -> None:
    """Cancel the steps of WORKFLOW_ID that have not ended, and the whole."""
    total = with_operator(
        deployment, lambda operator: operator.cancel_workflow(workflow_id, reason=reason)
    )
    _tell(total, "cancelled", as_json=as_json)


def _tell(total: Changed, done: str, *, as_json: bool) -> None:
    if as_json:
        emit_json(total)
        return
    asked = f", {len(total.requested)} asked to stop" if total.requested else ""
    left = f", {len(total.refused)} left as they were" if total.refused else ""
    talk(f"{len(total.changed)} jobs {done}{asked}{left}")
