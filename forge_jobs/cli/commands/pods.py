"""``forge-jobs pods``: the running workers."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_store
from forge_jobs.cli.output import duration, emit_json, emit_table, instant
from forge_jobs.config import Deployment
from forge_jobs.model.processes import PodState


@click.command()
@json_option
@deployment_options
def pods(deployment: Deployment, as_json: bool) -> None:
    """List pods with their slots per queue."""
    states = with_store(deployment, lambda store: store.procs.pods())
    if as_json:
        emit_json({"pods": [{**_fields(state), "standing": state.standing} for state in states]})
        return
    columns = ["pod", "label", "state", "beat due in", "slots", "in progress", "started"]
    emit_table(columns, [_line(state) for state in states], none="No pod is known.")


def _fields(state: PodState) -> dict[str, object]:
    return {name: getattr(state, name) for name in state.__struct_fields__}


def _line(state: PodState) -> list[object]:
    return [
        state.pod.host_id,
        state.pod.label,
        state.standing,
        duration(state.lease_remaining),
        state.slots_in_words,
        sum(state.in_progress.values()),
        instant(state.started_at),
    ]
