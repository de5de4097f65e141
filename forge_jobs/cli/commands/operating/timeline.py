"""``forge-jobs jobs timeline``: the life of a job."""

from datetime import datetime

import click

from forge_jobs.cli.options import INSTANT, deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table
from forge_jobs.config import Deployment
from forge_jobs.durations import format_duration
from forge_jobs.operating.jobs.documents import JobDeed
from forge_jobs.operating.words import instant
from forge_jobs.policy.timelines import Span


@click.command("timeline")
@click.argument("job_id")
@click.option("--at", type=INSTANT, help="Print the state at this instant alone.")
@json_option
@deployment_options
def timeline(deployment: Deployment, job_id: str, at: datetime | None, as_json: bool) -> None:
    """Show each state of JOB_ID with its length, the runs, and what operators did."""
    life = with_operator(deployment, lambda operator: operator.job_timeline(job_id, at=at))
    if as_json:
        emit_json(life)
        return
    if at is not None:
        click.echo("not enqueued yet" if life.asked is None else _words(life.asked))
        return
    columns = ["at", "state", "for", "pod"]
    lines: list[tuple[datetime, list[object]]] = [(each.at, _span(each)) for each in life.spans]
    lines += [(each.at, _deed(each)) for each in life.deeds]
    emit_table(columns, [line for _, line in sorted(lines, key=lambda each: each[0])], none="")


def _words(span: Span) -> str:
    attempt = f" attempt {span.attempt}" if span.attempt else ""
    return f"{span.stage}{attempt}{f' ({span.cause})' if span.cause else ''}"


def _span(span: Span) -> list[object]:
    length = span.length
    lasts = "" if length is None else format_duration(length)
    return [instant(span.at), _words(span), lasts, span.host_id]


def _deed(deed: JobDeed) -> list[object]:
    reason = f": {deed.reason}" if deed.reason else ""
    return [instant(deed.at), f"  {deed.actor} {deed.verb.replace('_', ' ')}{reason}", "", ""]
