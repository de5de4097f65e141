"""``forge-jobs jobs kin``: the jobs before and after a job."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.config import Deployment
from forge_jobs.model.edges import MOST_OF_ONE, Relative


@click.command("kin")
@click.argument("job_id")
@click.option(
    "--limit",
    type=click.IntRange(1, MOST_OF_ONE),
    default=100,
    show_default=True,
    help="In each direction, at most.",
)
@json_option
@deployment_options
def kin(deployment: Deployment, job_id: str, limit: int, as_json: bool) -> None:
    """Show the jobs that JOB_ID comes after, and those that come after it."""
    found = with_operator(deployment, lambda operator: operator.job_kin(job_id, limit=limit))
    if as_json:
        emit_json(found)
        return
    lines = [_line("parent", each) for each in found.parents]
    lines += [_line("child", each) for each in found.children]
    columns = ["is", "id", "queue", "kind", "status", "edge", "on failure"]
    emit_table(columns, lines, none="No job comes before or after.")
    if found.more_parents or found.more_children:
        talk(f"There are more. --limit {MOST_OF_ONE} shows the most.")


def _line(what: str, each: Relative) -> list[object]:
    status = "gone" if each.status is None else each.status.in_words
    return [what, each.id, each.queue, each.kind, status, each.edge.value, each.on_failure]
