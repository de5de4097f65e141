"""``forge-jobs jobs logs``: lines that handlers have logged."""

import logging

import click

from forge_jobs.cli.failures import Refused
from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, printable, talk
from forge_jobs.config import Deployment
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.progress import LogPage
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.words import instant


@click.command()
@click.argument("job_id")
@click.option("--attempt", type=click.IntRange(min=1), help="The last one by default.")
@click.option("--follow", is_flag=True, help="Go on until the job has ended.")
@json_option
@deployment_options
def logs(
    deployment: Deployment, job_id: str, attempt: int | None, follow: bool, as_json: bool
) -> None:
    """Show what the handler has logged with ctx.log in one attempt."""
    wanted = check_job_id(job_id, "job-id")
    if follow and as_json:
        raise Refused("--follow writes lines as they come: leave out --json")

    if follow:
        with_operator(deployment, lambda operator: _follow(operator, wanted, attempt))
        return
    page = with_operator(deployment, lambda operator: operator.job_log(wanted, attempt=attempt))
    if as_json:
        emit_json(page)
        return
    _show(page, 0)
    if not page.lines:
        talk(f"No line is stored of {'this' if attempt else 'any'} attempt.")
    if others := [str(each) for each in page.attempts if each != page.attempt]:
        talk(f"Attempt {page.attempt}. Others with lines: --attempt {', '.join(others)}.")


async def _follow(operator: Operator, job_id: JobId, attempt: int | None) -> None:
    await operator.job_progress(job_id)
    shown: dict[int, int] = {}
    async for page in operator.client.follow_log(job_id, attempt=attempt):
        shown[page.attempt] = _show(page, shown.get(page.attempt, 0))
    talk(f"The job is {(await operator.job_progress(job_id)).status.in_words}.")


def _show(page: LogPage, shown: int) -> int:
    """Write the lines behind number ``shown``, and return the number of the last."""
    for line in page.lines:
        if line.number <= shown:
            continue
        if (missing := line.number - shown - 1) > 0:
            click.echo(f"... {missing} lines are not kept ...")
        level = logging.getLevelName(line.level)
        first, *more = line.text.splitlines() or [""]
        click.echo(f"{instant(line.at)} {level} {printable(first)}")
        for each in more:
            click.echo(f"  {printable(each)}")
        shown = line.number
    return shown
