"""``forge-jobs watch``: one job until the end, which the exit code tells."""

from typing import cast

import click

from forge_jobs.cli.commands.terminal.signals import until_signal
from forge_jobs.cli.commands.terminal.telling import Telling, TellingJson, TellingOnATerminal
from forge_jobs.cli.logs import tell_outages
from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import is_terminal, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import NotFound
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.progress import JobState
from forge_jobs.operating.jobs.documents import JobView
from forge_jobs.operating.operator import Operator

EXIT_CODES = {JobStatus.DONE: 0, JobStatus.DEAD: 3, JobStatus.CANCELLED: 4}
"""Exit codes of ``watch``. 1 is that of a job that is not there, or was removed meanwhile."""

_TOLD = frozenset({JobStatus.FAILED, JobStatus.DEAD})


@click.command()
@click.argument("job_id")
@json_option
@deployment_options
def watch(deployment: Deployment, job_id: str, as_json: bool) -> None:
    """Show progress and log lines of a job until the job ends.

    The exit code tells the end: 0 done, 3 dead, 4 cancelled. 1: there is no such job, or the job
    was removed meanwhile. 130: stopped by Ctrl-C, which leaves the job alone. A job that is retried
    is watched on. While the store is away, the command waits. --json prints one document a line.
    """
    wanted = check_job_id(job_id, "job-id")
    watcher = _Watcher(wanted, as_json=as_json)
    code = with_operator(deployment, watcher.run)
    if code > max(EXIT_CODES.values()):
        talk(f"Stopped. The job goes on: forge-jobs watch {wanted}")
    if code:
        raise click.exceptions.Exit(code)


class _Watcher:
    """A watch of one job."""

    def __init__(self, job_id: JobId, *, as_json: bool) -> None:
        self._job_id = job_id
        if as_json:
            self._telling: Telling = TellingJson()
        else:
            self._telling = TellingOnATerminal() if is_terminal() else Telling()
        self._code = 0

    async def run(self, operator: Operator) -> int:
        """Watch until the job ends, and return the exit code."""
        await operator.job_progress(self._job_id)
        tell_outages()
        with self._telling:
            away = self._telling.away
            return await until_signal(lambda: self._watch(operator), away=away) or self._code

    async def _watch(self, operator: Operator) -> None:
        import anyio

        last: JobState | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._follow, operator)
                async with operator.client.watch(self._job_id) as states:
                    async for last in states:
                        if not last.is_final:
                            self._telling.state(last, await self._failed(operator, last))
        except* NotFound as gone:
            raise cast(NotFound, gone.exceptions[0]) from None
        if last is not None:
            job = await self._failed(operator, last)
            self._code = EXIT_CODES[last.status]
            self._telling.outcome(last, job, self._code)

    async def _follow(self, operator: Operator) -> None:
        """Tell the lines of the log. The last ones come before the end."""
        try:
            async for page in operator.client.follow_log(self._job_id):
                self._telling.lines(page)
        except NotFound:
            return  # the watch of the states tells

    async def _failed(self, operator: Operator, state: JobState) -> JobView | None:
        """All of the job, when an error matters. None when the store does not say now."""
        if state.status not in _TOLD:
            return None
        try:
            return await operator.get_job(self._job_id)
        except Exception:  # the state is known: the error alone is left out
            return None
