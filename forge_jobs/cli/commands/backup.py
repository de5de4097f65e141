"""``forge-jobs backup``: a copy of a SQLite store."""

from pathlib import Path

import click

from forge_jobs.cli.options import deployment_options, json_option, storage_url
from forge_jobs.cli.output import emit_json, talk
from forge_jobs.config import Deployment
from forge_jobs.storage.opening import back_up


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@json_option
@deployment_options
def backup(deployment: Deployment, target: Path, as_json: bool) -> None:
    """Copy a SQLite store to the new file TARGET, while programs use the store.

    TARGET holds everything committed before the copy began. A plain copy of the file misses its
    log. PostgreSQL and Redis have tools of their own.
    """
    import anyio

    anyio.run(back_up, storage_url(deployment), target)
    if as_json:
        emit_json({"target": str(target), "bytes": target.stat().st_size})
        return
    talk(f"Copied to {target}, {target.stat().st_size} bytes.")
