"""``forge-jobs errors``: failures in groups, and one group whole."""

from datetime import timedelta

import click

from forge_jobs.cli.options import DURATION, deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_fields, emit_json, emit_table, printable, talk
from forge_jobs.config import Deployment
from forge_jobs.model.failures import ErrorGroup
from forge_jobs.model.names import command_line
from forge_jobs.model.queries.terms import Choice, JobQuery
from forge_jobs.model.queries.writing import format_query
from forge_jobs.operating.words import instant

_over = click.option(
    "--over", type=DURATION, default="1h", show_default=True, help="How far to look back."
)


@click.group()
def errors() -> None:
    """Failures in groups: one kind, type of error, and message without numbers."""


@errors.command("list")
@click.option("--queue", help="Of this queue.")
@_over
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--cursor", help="Continue where an earlier page ended.")
@json_option
@deployment_options
def list_errors(
    deployment: Deployment,
    *,
    queue: str | None,
    over: timedelta,
    limit: int,
    cursor: str | None,
    as_json: bool,
) -> None:
    """List groups of failures, the one that failed last first."""
    page = with_operator(
        deployment,
        lambda operator: operator.list_errors(over=over, queue=queue, cursor=cursor, limit=limit),
    )
    if as_json:
        emit_json(page)
        return
    columns = ["group", "queue", "kind", "retried", "dead", "first", "last", "error"]
    emit_table(columns, [_line(group) for group in page.groups], none="No job has failed.")
    if page.silent:
        talk(f"Left out, as their server does not answer: {', '.join(page.silent)}.")
    if page.cursor:
        talk(f"More: --cursor {page.cursor}")


def _line(group: ErrorGroup) -> list[object]:
    return [
        group.id,
        group.queue,
        group.kind,
        group.retried,
        group.dead,
        instant(group.first_at),
        instant(group.last_at),
        f"{group.type}: {group.message}"[:60],
    ]


@errors.command()
@click.argument("queue")
@click.argument("group")
@_over
@json_option
@deployment_options
def show(deployment: Deployment, queue: str, group: str, over: timedelta, as_json: bool) -> None:
    """Show one group: the newest failure whole, and what became of the jobs."""
    found = with_operator(deployment, lambda operator: operator.get_error(queue, group, over=over))
    if as_json:
        emit_json(found)
        return
    counted = (("jobs", found.statuses), ("pods", found.pods), ("pod versions", found.pod_versions))
    emit_fields(
        [
            ("group", found.id),
            ("queue", found.queue),
            ("kind", found.kind),
            ("error", f"{found.type}: {found.whole_message or found.message}"),
            ("retried", str(found.retried)),
            ("dead", str(found.dead)),
            ("first", instant(found.first_at)),
            ("last", instant(found.last_at)),
            ("newest job", found.newest),
            *(
                (name, ", ".join(f"{n} {what}" for what, n in dict(of).items()))
                for name, of in counted
            ),
        ]
    )
    for line in found.traceback.splitlines():
        click.echo(f"  {printable(line)}")
    terms = (Choice("queue", (found.queue,)), Choice("group", (found.id,)))
    where = format_query(JobQuery(terms))
    talk(f"Its jobs: {command_line('jobs list', options=('--where', where))}")
