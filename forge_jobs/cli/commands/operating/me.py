"""``forge-jobs me``: whose name is in the records of commands."""

import click

from forge_jobs.cli.options import deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_fields, emit_json
from forge_jobs.config import Deployment


@click.command()
@json_option
@deployment_options
def me(deployment: Deployment, as_json: bool) -> None:
    """Show whose name is in the records of commands, and what that one may do."""
    found = with_operator(deployment, lambda operator: operator.me())
    if as_json:
        emit_json(found)
        return
    rights = [right for right in ("read", "actions", "payloads") if getattr(found, right)]
    emit_fields([("name", found.name), ("rights", ", ".join(rights))])
