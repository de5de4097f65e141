"""``forge-jobs store``: how the store is, and how long pods wait for it."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_fields, emit_json, emit_table
from forge_jobs.config import Deployment
from forge_jobs.operating.health.stores import facts_of


@click.command()
@json_option
@deployment_options
def store(deployment: Deployment, as_json: bool) -> None:
    """Show the store: durability, size, memory, connections, and the calls of pods by name."""
    found = with_operator(deployment, lambda operator: operator.store())
    if as_json:
        emit_json(found)
        return
    emit_fields([("store", found.name), *facts_of(found)])
    columns = ["call", "a minute", "errors", "p50 ms", "p99 ms", "slowest pod"]
    rows: list[list[object]] = [
        [each.name, each.count, each.errors, each.p50_ms, each.p99_ms, each.slowest_pod]
        for each in found.calls
    ]
    emit_table(columns, rows, none="No live pod has counted its calls of the store yet.")
