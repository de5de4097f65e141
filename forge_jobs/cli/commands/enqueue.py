"""``forge-jobs enqueue``: one job from the shell."""

import sys
from typing import Any

import click

from forge_jobs.cli.loading import load_handlers, load_router
from forge_jobs.cli.options import (
    ATTEMPTS,
    DURATION,
    INSTANT,
    deployment_options,
    json_option,
    with_operator,
)
from forge_jobs.cli.output import emit_json, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import MAX_PRIORITY, MIN_PRIORITY, Unique
from forge_jobs.model.payloads import MAX_PAYLOAD_BYTES, check_json_text
from forge_jobs.model.unique.keys import MODES


@click.command()
@click.argument("kind")
@click.option("--payload", default="{}", metavar="JSON", help="A JSON object; - reads stdin.")
@click.option("--queue", help="Else the handler's, the router's, or 'default'.")
@click.option("--priority", type=click.IntRange(MIN_PRIORITY, MAX_PRIORITY), help="Lower first.")
@click.option("--delay", type=DURATION, help="Due this much later, as 90 or 1h30m.")
@click.option("--spread", type=DURATION, help="Later by a part of this window, by the job's id.")
@click.option("--run-at", type=INSTANT, help="Due from this instant, with its time zone.")
@click.option("--expires-at", type=INSTANT, help="Cancelled when not started by then.")
@click.option("--unique-key", help="At most one active job of the queue per key.")
@click.option("--unique-by", help="Derive the key from these payload fields, as customer,day.")
@click.option("--unique-mode", type=click.Choice(MODES), help="While the key is held; else keep.")
@click.option("--unique-window", type=DURATION, help="Of the modes cooldown and debounce.")
@click.option("--unique-at-most", type=DURATION, help="Of debounce: the longest delay.")
@click.option("--max-attempts", type=ATTEMPTS, help="A number, or 'unlimited'.")
@click.option("--after", multiple=True, metavar="JOB_ID", help="Jobs that must end first.")
@click.option("--tag", "tags", multiple=True, help="May be given several times.")
@click.option("--timeout", type=DURATION, help="Limit of one run.")
@click.option("--id", help="A ULID; makes a repeat of this command enqueue one job.")
@click.option("--handlers", metavar="MODULE:ATTR", help="Checks the payload, gives defaults.")
@json_option
@deployment_options
def enqueue(
    deployment: Deployment,
    kind: str,
    payload: str,
    handlers: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Enqueue a job of KIND and print the id of the job."""
    given = {key: value for key, value in options.items() if value not in (None, ())}
    if given.get("max_attempts") == 0:
        given["max_attempts"] = None
    _set_unique(given)
    request = EnqueueRequest(kind, read_payload(payload), **given)
    registry = load_handlers(handlers, deployment) if handlers or deployment.handlers else None
    router = load_router(deployment)
    outcome = with_operator(
        deployment,
        lambda operator: operator.enqueue(request),
        create=True,
        handlers=registry,
        router=router,
    )
    if as_json:
        emit_json(outcome)
        return
    click.echo(outcome.job_id)
    if outcome.deduplicated:
        talk("Nothing was enqueued: this job holds the unique key.")
    elif outcome.replaced:
        talk("This job, which had the unique key and waits, has the new payload and options now.")
    elif outcome.follow_up:
        talk("The job waits for the end of the running job that holds the unique key.")


def _set_unique(given: dict[str, Any]) -> None:
    """Turn the options about the key into one."""
    asked = {name: given.pop(f"unique_{name}", None) for name in ("mode", "window", "at_most")}
    by = given.pop("unique_by", None)
    if by is None and not any(asked.values()):
        return
    values = {name: value for name, value in asked.items() if value is not None}
    fields = tuple(each.strip() for each in by.split(",")) if by else ()
    given["unique"] = Unique(given.pop("unique_key", ""), by=fields, **values)


def read_payload(given: str) -> str:
    """Return the payload of an option, or the one on standard input.

    :raises InvalidInput: the text is no JSON object
    """
    if given != "-":
        return check_json_text("payload", given)
    content = sys.stdin.buffer.read(MAX_PAYLOAD_BYTES + 1)
    try:
        return check_json_text("payload", content.decode())
    except UnicodeDecodeError:
        raise InvalidInput("payload", "is not UTF-8", "give one JSON value") from None
