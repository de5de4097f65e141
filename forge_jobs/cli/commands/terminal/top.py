"""``forge-jobs top``: problems, queues, pods, limits and running jobs, live."""

from collections.abc import Sequence
from datetime import timedelta

import click

from forge_jobs.cli.commands.terminal.screen.reading import Reading
from forge_jobs.cli.options import DURATION, deployment_options, json_option, with_operator
from forge_jobs.cli.output import can_draw, emit_json, emit_table, printable
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.operating.operator import Operator
from forge_jobs.policy.judgement.problems.problem import few_of_each

_AT_MOST_EVERY = timedelta(seconds=1)


@click.command()
@click.option(
    "--every",
    type=DURATION,
    default="2s",
    show_default=True,
    envvar="FORGE_TOP_EVERY",
    help="Read the store so often, at most once a second (FORGE_TOP_EVERY).",
)
@click.option("--once", is_flag=True, help="Print plain lines once, as without a terminal.")
@json_option
@deployment_options
def top(deployment: Deployment, every: timedelta, once: bool, as_json: bool) -> None:
    """Show problems, queues, pods, limits and running jobs, read again and again.

    Keys: q quits, / filters, ? lists all keys, enter shows a running job. The capitals P, C and R
    pause a queue, cancel a job and requeue dead jobs, and ask before. Without a terminal, plain
    lines are printed once. While the store is away, the screen says so and goes on.
    """
    if every < _AT_MOST_EVERY:
        raise InvalidInput("every", "is less than 1 s", "give 1s or more")
    if as_json or once or not can_draw():
        reading = with_operator(deployment, _read)
        if as_json:
            emit_json(reading)
        else:
            _print(reading)
        return
    from forge_jobs.cli.commands.terminal.screen.program import Top

    code = with_operator(deployment, lambda operator: Top(operator, every).run())
    if code:
        raise click.exceptions.Exit(code)


async def _read(operator: Operator) -> Reading:
    return await Reading.of(operator)


def _print(reading: Reading) -> None:
    from forge_jobs.cli.commands.terminal.screen import drawing
    from forge_jobs.cli.commands.terminal.screen.limits import LIMIT_COLUMNS, limit_cells

    view = reading.view()
    click.echo(drawing.header(view))
    told, more = few_of_each(reading.problems)
    for problem in told:
        click.echo(printable(drawing.problem_line(problem)))
    for code, count in more.items():
        click.echo(f"and {count:,} more of {code}: forge-jobs problems --all")
    if not told:
        click.echo("Nothing is wrong.")
    queues = [drawing.queue_cells(each, view.rates.get(each.name)) for each in view.queues()]
    limits = [limit_cells(each, reading.board.at) for each in view.limits()]
    parts: list[tuple[Sequence[str], Sequence[Sequence[str]], str]] = [
        (drawing.QUEUE_COLUMNS, queues, "No queue is known."),
        (drawing.POD_COLUMNS, [*map(drawing.pod_cells, reading.board.pods)], "No pod is known."),
        *([(LIMIT_COLUMNS, limits, "")] if limits else []),
        (drawing.RUN_COLUMNS, [*map(drawing.run_cells, view.runs())], "No job is in work."),
    ]
    for columns, rows, none in parts:
        click.echo()
        emit_table(columns, rows, none=none)
