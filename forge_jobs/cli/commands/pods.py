"""``forge-jobs pods``: the running workers."""

from collections.abc import Mapping
from datetime import timedelta

import click

from forge_jobs.cli.options import deployment_options, json_option, with_store
from forge_jobs.cli.output import duration, emit_json, emit_table, instant
from forge_jobs.config import Deployment
from forge_jobs.model.processes import PodState, Slots


@click.command()
@json_option
@deployment_options
def pods(deployment: Deployment, as_json: bool) -> None:
    """List pods with their slots per queue."""
    states = with_store(deployment, lambda store: store.procs.pods())
    if as_json:
        emit_json({"pods": [{**_fields(state), "standing": standing(state)} for state in states]})
        return
    columns = ["pod", "label", "state", "beat due in", "slots", "in progress", "started"]
    emit_table(columns, [_line(state) for state in states], none="No pod is known.")


def standing(state: PodState) -> str:
    """One word for how a pod stands."""
    if state.lease_remaining <= timedelta(0):
        return "lost"
    return "draining" if state.draining else "live"


def slots_text(slots: Mapping[str, Slots]) -> str:
    """Granted slots per queue, with the target where it differs: ``gh 2, slack 1 of 3``."""
    return ", ".join(
        f"{queue} {each.grant}" + (f" of {each.target}" if each.target != each.grant else "")
        for queue, each in sorted(slots.items())
    )


def _fields(state: PodState) -> dict[str, object]:
    return {name: getattr(state, name) for name in state.__struct_fields__}


def _line(state: PodState) -> list[object]:
    return [
        state.pod.host_id,
        state.pod.label,
        standing(state),
        duration(state.lease_remaining),
        slots_text(state.slots),
        sum(state.in_progress.values()),
        instant(state.started_at),
    ]
