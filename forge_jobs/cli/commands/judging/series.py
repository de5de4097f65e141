"""``forge-jobs series`` and ``queues history``: flow, delays and depth over time."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import click

from forge_jobs.cli.options import DURATION, INSTANT, deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table, printable
from forge_jobs.config import Deployment
from forge_jobs.operating.metrics.latencies import shown
from forge_jobs.operating.metrics.series import StepView
from forge_jobs.operating.words import duration, instant

_SPAN = (
    click.option(
        "--over", type=DURATION, default="1h", show_default=True, help="How far to look back."
    ),
    click.option(
        "--step", type=DURATION, default="1m", show_default=True, help="Whole minutes or hours."
    ),
    click.option("--until", type=INSTANT, help="The end of the span, with its time zone."),
)
_ENDS = ("succeeded", "failed", "dead", "cancelled")


def _span(command: Any) -> Any:
    for option in reversed(_SPAN):
        command = option(command)
    return command


@click.command()
@click.option("--queue", help="Of this queue; else of the whole store.")
@click.option("--kind", help="Of this kind of the queue.")
@_span
@json_option
@deployment_options
def series(
    deployment: Deployment,
    *,
    queue: str | None,
    kind: str | None,
    over: timedelta,
    step: timedelta,
    until: datetime | None,
    as_json: bool,
) -> None:
    """Show flow, delays, runs and depth over time."""
    found = with_operator(
        deployment,
        lambda operator: operator.series(queue=queue, kind=kind, over=over, step=step, until=until),
    )
    if as_json:
        emit_json(found)
        return
    _emit(found.steps)


@click.command()
@click.argument("name")
@_span
@json_option
@deployment_options
def history(
    deployment: Deployment,
    *,
    name: str,
    over: timedelta,
    step: timedelta,
    until: datetime | None,
    as_json: bool,
) -> None:
    """Show flow, delays and depth of a queue over time, and what operators did."""
    found = with_operator(
        deployment,
        lambda operator: operator.queue_history(name, over=over, step=step, until=until),
    )
    if as_json:
        emit_json(found)
        return
    _emit(found.steps)
    for each in found.actions:
        said = f"{instant(each.at)}  {each.actor}: {each.verb}  {each.reason}"
        click.echo(printable(said).rstrip())


def _emit(steps: Iterable[StepView]) -> None:
    columns = ["from", "in", "started", *_ENDS, "delay p95", "run p95", "due", "oldest"]
    emit_table(columns, [_line(each) for each in steps], none="Nothing in this span.")


def _line(step: StepView) -> list[object]:
    depth = step.depth
    return [
        instant(step.at),
        step.counts.get("enqueued", 0),
        step.counts.get("claimed", 0),
        *(step.counts.get(name, 0) for name in _ENDS),
        shown(step.delay.p95),
        shown(step.run.p95),
        "-" if depth is None else depth.due,
        "-" if depth is None else duration(depth.oldest_due_for),
    ]
