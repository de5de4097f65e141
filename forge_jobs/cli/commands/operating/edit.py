"""``forge-jobs jobs edit``: another content for a job that waits."""

from typing import Any

import click
import msgspec

from forge_jobs.cli.commands.enqueue import read_payload
from forge_jobs.cli.loading import load_handlers
from forge_jobs.cli.options import (
    ATTEMPTS,
    DURATION_OR_NONE,
    INSTANT,
    INSTANT_OR_NONE,
    deployment_options,
    json_option,
    with_operator,
    without,
)
from forge_jobs.cli.output import emit_json, printable, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.model.jobs import MAX_PRIORITY, MIN_PRIORITY
from forge_jobs.operating.actions.editing import JobEdit


@click.command("edit")
@click.argument("job_id")
@click.option("--payload", metavar="JSON", help="A JSON object; - reads stdin. *** keeps a secret.")
@click.option("--priority", type=click.IntRange(MIN_PRIORITY, MAX_PRIORITY), help="Lower first.")
@click.option("--due-at", type=INSTANT, help="Due from this instant, with its time zone.")
@click.option(
    "--expires-at", type=INSTANT_OR_NONE, help="Cancelled when not started by then. none: never."
)
@click.option("--max-attempts", type=ATTEMPTS, help="A number, or 'unlimited'.")
@click.option("--timeout", type=DURATION_OR_NONE, help="Limit of one run, or none.")
@click.option("--tag", "tags", multiple=True, help="All tags, one by one. An empty one: no tags.")
@click.option("--metadata", metavar="JSON", help="An object of texts: all of the metadata.")
@click.option("--version", default="", help="Refuse when the job is not this version any more.")
@click.option("--reason", default="", help="Kept with the record of the action.")
@click.option("--handlers", metavar="MODULE:ATTR", help="Checks the payload.")
@json_option
@deployment_options
def edit(
    deployment: Deployment, job_id: str, handlers: str | None, as_json: bool, **options: Any
) -> None:
    """Give JOB_ID, which waits, another content. Undone by 'actions undo'."""
    wanted = _edit(options)
    registry = load_handlers(handlers, deployment) if handlers or deployment.handlers else None
    done = with_operator(
        deployment, lambda operator: operator.edit_job(job_id, wanted), handlers=registry
    )
    if as_json:
        emit_json(done)
        return
    click.echo(f"before: {printable(done.before)}")
    click.echo(f"after:  {printable(done.after)}")
    talk(f"Undo: forge-jobs actions undo {done.id}")


def _edit(options: dict[str, Any]) -> JobEdit:
    given = without({name: value for name, value in options.items() if value not in (None, ())})
    if "payload" in given:
        given["payload"] = msgspec.Raw(read_payload(given["payload"]).encode())
    if "metadata" in given:
        given["metadata"] = _texts(given["metadata"])
    return JobEdit(**given)


def _texts(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        raise InvalidInput("metadata", "is no object of texts", 'give {"key":"text"}') from None
