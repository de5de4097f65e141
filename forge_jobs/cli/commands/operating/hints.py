"""``forge-jobs jobs hints``: words that complete a filter."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, is_terminal, printable
from forge_jobs.config import Deployment
from forge_jobs.operating.jobs.hints import MOST_HINTS


@click.command("hints")
@click.argument("line", default="")
@click.option("--limit", type=click.IntRange(1, MOST_HINTS), default=20, help="At most so many.")
@json_option
@deployment_options
def hints(deployment: Deployment, line: str, limit: int, as_json: bool) -> None:
    """Print how LINE of the filter language may go on, a line each."""
    found = with_operator(deployment, lambda operator: operator.job_hints(line, limit=limit))
    if as_json:
        emit_json(found)
        return
    for word in found.words:
        text = found.start + word
        click.echo(printable(text) if is_terminal() else text)
