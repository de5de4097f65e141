"""``forge-jobs kinds``: what the handlers of a registry accept."""

import click

from forge_jobs.cli.loading import load_handlers
from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table
from forge_jobs.config import Deployment
from forge_jobs.handlers.schema import KindEntry, manifest
from forge_jobs.operating.words import duration


@click.command()
@click.argument("handlers", metavar="[MODULE:ATTR]", required=False)
@click.option("--stored", is_flag=True, help="As pods have described the kinds in the store.")
@json_option
@deployment_options
def kinds(deployment: Deployment, handlers: str | None, stored: bool, as_json: bool) -> None:
    """List the kinds of a registry, or those in the store. With --json also their JSON Schemas.

    MODULE:ATTR is the registry, as myapp.jobs:handlers. FORGE_HANDLERS when left out.
    """
    columns = ["kind", "queue", "priority", "attempts", "timeout", "arguments", "description"]
    if stored:
        if handlers:
            raise click.UsageError("give either MODULE:ATTR or --stored")
        found = with_operator(deployment, lambda operator: operator.list_kinds())
        if as_json:
            emit_json(found)
            return
        rows = [[*_line(each), each.pods] for each in found.kinds]
        emit_table([*columns, "pods"], rows, none="No pod has described a kind yet.")
        return
    entries = manifest(load_handlers(handlers, deployment))
    if as_json:
        emit_json({"kinds": entries})
        return
    emit_table(columns, [_line(entry) for entry in entries], none="The registry has no handlers.")


def _line(entry: KindEntry) -> list[object]:
    required = entry.payload_schema.get("required", ())
    arguments = (
        name if name in required else f"[{name}]"
        for name in entry.payload_schema.get("properties", {})
    )
    return [
        entry.kind + "".join(f", {alias}" for alias in entry.aliases),
        entry.queue or "-",
        entry.priority,
        "unlimited" if entry.max_attempts is None else entry.max_attempts,
        duration(entry.timeout),
        " ".join(arguments),
        entry.description,
    ]
