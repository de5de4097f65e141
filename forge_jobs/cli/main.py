"""The command ``forge-jobs``."""

import click

from forge_jobs.cli.commands.backup import backup
from forge_jobs.cli.commands.completion import completion
from forge_jobs.cli.commands.cron import cron
from forge_jobs.cli.commands.demo import demo
from forge_jobs.cli.commands.doctor import doctor
from forge_jobs.cli.commands.enqueue import enqueue
from forge_jobs.cli.commands.explain import explain
from forge_jobs.cli.commands.jobs import jobs
from forge_jobs.cli.commands.judging.errors import errors
from forge_jobs.cli.commands.judging.problems import problems
from forge_jobs.cli.commands.judging.series import series
from forge_jobs.cli.commands.judging.what_if import what_if
from forge_jobs.cli.commands.kinds import kinds
from forge_jobs.cli.commands.limits import limits
from forge_jobs.cli.commands.migrate import migrate
from forge_jobs.cli.commands.operating.actions import actions
from forge_jobs.cli.commands.operating.bench import bench
from forge_jobs.cli.commands.operating.export import export
from forge_jobs.cli.commands.operating.me import me
from forge_jobs.cli.commands.operating.outbox import outbox
from forge_jobs.cli.commands.operating.store import store
from forge_jobs.cli.commands.operating.strikes import strikes
from forge_jobs.cli.commands.operating.workflows import workflows
from forge_jobs.cli.commands.pods import pods
from forge_jobs.cli.commands.queues import queues
from forge_jobs.cli.commands.terminal.names import offer_names
from forge_jobs.cli.commands.terminal.top import top
from forge_jobs.cli.commands.terminal.watch import watch
from forge_jobs.cli.commands.worker import worker
from forge_jobs.cli.dashboard.web import web
from forge_jobs.cli.failures import CommandLine
from forge_jobs.cli.options import OWN_PROCESS
from forge_jobs.cli.variables import read_from_environment


@click.group(
    cls=CommandLine,
    commands=(
        worker,
        enqueue,
        jobs,
        watch,
        top,
        queues,
        limits,
        strikes,
        outbox,
        workflows,
        cron,
        pods,
        kinds,
        explain,
        problems,
        errors,
        export,
        what_if,
        series,
        migrate,
        backup,
        doctor,
        store,
        bench,
        actions,
        me,
        demo,
        web,
        completion,
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)
@click.option("--traceback", is_flag=True, help="Show where in the code an error arose.")
@click.version_option(
    package_name="forge-jobs", prog_name="forge-jobs", message="%(prog)s %(version)s"
)
@click.pass_context
def cli(context: click.Context, traceback: bool) -> None:
    """Run, watch and steer a job queue.

    Give the store by FORGE_STORAGE_URL or --storage.
    """
    assert isinstance(context.command, CommandLine)
    context.command.shows_traceback = traceback


offer_names(cli)
read_from_environment(cli)


def main() -> None:
    """Run the command line. Exits with 0, 1 or 2."""
    cli(prog_name="forge-jobs", obj=OWN_PROCESS)
