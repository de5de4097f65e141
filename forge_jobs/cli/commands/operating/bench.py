"""``forge-jobs bench``: measure the store."""

from typing import TYPE_CHECKING

import click

from forge_jobs.cli.commands.terminal.signals import until_signal
from forge_jobs.cli.options import deployment_options, json_option, with_store
from forge_jobs.cli.output import emit_json, talk
from forge_jobs.config import Deployment

if TYPE_CHECKING:
    from forge_jobs.bench.measuring import Report
    from forge_jobs.storage.protocols import Storage

_QUEUE = "forge-bench"


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(1, 600),
    default=10,
    show_default=True,
    envvar="FORGE_BENCH_SECONDS",
    help="For all parts together (FORGE_BENCH_SECONDS).",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 1_000),
    default=8,
    show_default=True,
    envvar="FORGE_BENCH_WORKERS",
    help="Jobs that run at once (FORGE_BENCH_WORKERS).",
)
@click.option(
    "--queue",
    default=_QUEUE,
    show_default=True,
    envvar="FORGE_BENCH_QUEUE",
    metavar="NAME",
    help=f"A queue of its own, whose name begins with {_QUEUE} (FORGE_BENCH_QUEUE).",
)
@json_option
@deployment_options
def bench(
    deployment: Deployment, *, seconds: float, workers: int, queue: str, as_json: bool
) -> None:
    """Measure how fast the store takes, gives and runs jobs.

    Jobs that do nothing are stored, run by a pod in this process, and removed, in a queue that
    belongs to the bench. Beside other work the bench takes its share of the store, and measures
    what is left. Ctrl-C removes the jobs too. At most 20,000 jobs are stored.
    """
    from forge_jobs.bench.measuring import Plan, measure, sentences

    plan = Plan(seconds=seconds, workers=workers, queue=queue)
    found: list[Report] = []

    async def work(storage: "Storage") -> int:
        async def run() -> None:
            found.append(await measure(storage, plan, talk))

        return await until_signal(run)

    code = with_store(deployment, work)
    if not found:
        raise click.exceptions.Exit(code)
    if as_json:
        emit_json(found[0])
    else:
        click.echo("\n".join(sentences(found[0])))
