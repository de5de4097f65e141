"""``forge-jobs migrate``: the schema of the store."""

from typing import TYPE_CHECKING

import click

from forge_jobs.cli.failures import FAILED
from forge_jobs.cli.options import deployment_options, json_option, storage_url
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.config import Deployment
from forge_jobs.operating.words import instant
from forge_jobs.storage.opening import open_migrator

if TYPE_CHECKING:
    from forge_jobs.storage.backend import MigrationStatus


@click.group()
def migrate() -> None:
    """The schema of the store."""


@migrate.command()
@json_option
@deployment_options
def up(deployment: Deployment, as_json: bool) -> None:
    """Bring the schema up to date. Any number may do that at once."""
    import anyio

    applied = anyio.run(open_migrator(storage_url(deployment)).up)
    if as_json:
        emit_json({"applied": [_document(each) for each in applied]})
        return
    names = ", ".join(f"{each.version:04} {each.name}" for each in applied)
    talk(f"Applied {names}" if applied else "The schema is up to date.")


@migrate.command()
@click.option("--to", type=click.IntRange(min=0), required=True, help="The version to go back to.")
@json_option
@deployment_options
def down(deployment: Deployment, to: int, as_json: bool) -> None:
    """Go back to an older schema, unless that loses data.

    After a rollback of a deployment this is seldom needed: 'status' says which programs work with
    the present schema. Stop all workers first.
    """
    import anyio

    undone = anyio.run(open_migrator(storage_url(deployment)).down, to)
    if as_json:
        emit_json({"undone": [_document(each) for each in undone]})
        return
    names = ", ".join(f"{each.version:04} {each.name}" for each in undone)
    talk(f"Undid {names}" if undone else f"The schema is at version {to} or older already.")


@migrate.command()
@json_option
@deployment_options
def status(deployment: Deployment, as_json: bool) -> None:
    """List migrations. Exit code 1 when some are missing."""
    import anyio

    entries = anyio.run(open_migrator(storage_url(deployment)).status)
    if as_json:
        emit_json({"migrations": [_document(each) for each in entries]})
    else:
        rows = [
            [f"{each.version:04}", each.name, f"{each.works_from:04}", _applied(each)]
            for each in entries
        ]
        columns = ["version", "name", "works with programs from", "applied"]
        emit_table(columns, rows, none="There are no migrations.")
    if any(each.applied_at is None for each in entries):
        raise click.exceptions.Exit(FAILED)


def _document(entry: "MigrationStatus") -> dict[str, object]:
    return {
        "version": entry.version,
        "name": entry.name,
        "applied_at": entry.applied_at,
        "known": entry.known,
        "works_from": entry.works_from,
    }


def _applied(entry: "MigrationStatus") -> str:
    if entry.applied_at is None:
        return "missing: run 'forge-jobs migrate up'"
    return instant(entry.applied_at) + ("" if entry.known else " by a newer program")


@migrate.command()
@deployment_options
def sql(deployment: Deployment) -> None:
    """Print the statements that 'up' would run."""
    import anyio

    click.echo(anyio.run(open_migrator(storage_url(deployment)).sql), nl=False)
