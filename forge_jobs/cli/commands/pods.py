"""``forge-jobs pods``: the running workers."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table
from forge_jobs.config import Deployment
from forge_jobs.operating.health.documents import PodView
from forge_jobs.operating.words import duration, instant


@click.command()
@json_option
@deployment_options
def pods(deployment: Deployment, as_json: bool) -> None:
    """List pods with their slots per queue."""
    found = with_operator(deployment, lambda operator: operator.list_pods())
    if as_json:
        emit_json(found)
        return
    columns = ["pod", "label", "state", "beat due in", "slots", "in progress", "started"]
    emit_table(columns, [_line(state) for state in found.pods], none="No pod is known.")


def _line(state: PodView) -> list[object]:
    return [
        state.pod.host_id,
        state.pod.label,
        state.standing,
        duration(state.lease_remaining),
        state.slots_in_words,
        sum(state.in_progress.values()),
        instant(state.started_at),
    ]
