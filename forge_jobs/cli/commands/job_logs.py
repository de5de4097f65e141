"""``forge-jobs jobs logs``: lines that handlers have logged."""

import logging

import click

from forge_jobs.cli.failures import Refused
from forge_jobs.cli.options import deployment_options, json_option, with_store
from forge_jobs.cli.output import emit_json, instant, printable, talk
from forge_jobs.clients.following import LogFollower
from forge_jobs.config import Deployment
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.progress import JobState, LogPage
from forge_jobs.storage.protocols import Storage


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

    async def read(store: Storage) -> LogPage:
        await _state(store, wanted)
        return await store.jobs.job_log(wanted, attempt=attempt)

    if follow:
        with_store(deployment, lambda store: _follow(store, wanted, attempt))
        return
    page = with_store(deployment, read)
    if as_json:
        emit_json(page)
        return
    _show(page, 0)
    if not page.lines:
        talk(f"No line is stored of {'this' if attempt else 'any'} attempt.")
    if others := [str(each) for each in page.attempts if each != page.attempt]:
        talk(f"Attempt {page.attempt}. Others with lines: --attempt {', '.join(others)}.")


async def _state(store: Storage, job_id: JobId) -> JobState:
    state = (await store.jobs.states([job_id])).get(job_id)
    if state is None:
        raise Refused(f"no job has the id {job_id}; its retention is over, or the store is another")
    return state


async def _follow(store: Storage, job_id: JobId, attempt: int | None) -> None:
    await _state(store, job_id)
    shown: dict[int, int] = {}
    async for page in LogFollower(store.jobs, job_id, attempt):
        shown[page.attempt] = _show(page, shown.get(page.attempt, 0))
    talk(f"The job is {(await _state(store, job_id)).status.in_words}.")


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
