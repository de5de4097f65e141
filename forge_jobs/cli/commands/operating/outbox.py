"""``forge-jobs outbox``: jobs of transactions in one database, for queues on another store."""

import click
import msgspec

from forge_jobs.cli.options import deployment_options, json_option, storage_url, with_operator
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.model.letters.outbox import OutboxRecord
from forge_jobs.operating.words import duration


@click.group()
def outbox() -> None:
    """Jobs that wait in a database for queues on another store (FORGE_OUTBOX)."""


def _of_database(deployment: Deployment) -> Deployment:
    """Return the deployment with the database of the outbox as the store."""
    if deployment.outbox:
        return msgspec.structs.replace(deployment, storage_url=deployment.outbox)
    return deployment


@outbox.command()
@json_option
@deployment_options
def state(deployment: Deployment, as_json: bool) -> None:
    """Show how many jobs wait and are set aside, for each destination."""
    found = with_operator(_of_database(deployment), lambda operator: operator.outbox_state())
    if as_json:
        emit_json(found)
        return
    rows = [
        [
            each.name,
            each.waiting,
            "" if each.oldest is None else duration(each.oldest),
            each.set_aside,
        ]
        for each in found.outboxes
    ]
    emit_table(["destination", "waiting", "oldest", "set aside"], rows, none="No job waits.")


@outbox.command("list")
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@json_option
@deployment_options
def list_outbox(deployment: Deployment, name: str, limit: int, as_json: bool) -> None:
    """List jobs of one destination, those set aside first."""
    found = with_operator(
        _of_database(deployment), lambda operator: operator.list_outbox(name, limit)
    )
    if as_json:
        emit_json(found)
        return
    columns = ["job", "queue", "kind", "age", "problem"]
    emit_table(columns, [_line(each) for each in found.records], none="No job waits.")


def _line(record: OutboxRecord) -> list[object]:
    return [record.job_id, record.queue, record.kind, duration(record.age), record.problem]


@outbox.command()
@click.argument("name")
@click.argument("ids", metavar="[JOB_ID]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that are set aside.")
@json_option
@deployment_options
def retry(
    deployment: Deployment, name: str, ids: tuple[str, ...], everything: bool, as_json: bool
) -> None:
    """Relay jobs again that were set aside."""
    if everything == bool(ids):
        raise InvalidInput("ids", "are missing or beside the point", "give ids, or else --all")
    wanted = None if everything else ids
    found = with_operator(
        _of_database(deployment), lambda operator: operator.retry_outbox(name, wanted)
    )
    if as_json:
        emit_json(found)
        return
    talk(f"{name}: {_jobs(len(found.jobs))} relayed again.")


@outbox.command()
@click.argument("name")
@click.argument("ids", metavar="JOB_ID...", nargs=-1, required=True)
@json_option
@deployment_options
def discard(deployment: Deployment, name: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Remove jobs for good that were set aside. They are never stored."""
    found = with_operator(
        _of_database(deployment), lambda operator: operator.discard_outbox(name, ids)
    )
    if as_json:
        emit_json(found)
        return
    talk(f"{name}: {_jobs(len(found.jobs))} removed.")


def _jobs(count: int) -> str:
    return "1 job is" if count == 1 else f"{count:,} jobs are"


@outbox.command()
@click.argument("name", default="")
@json_option
@deployment_options
def relay(deployment: Deployment, name: str, as_json: bool) -> None:
    """Store the jobs that wait in FORGE_OUTBOX in the store, once, and end.

    NAME is the destination, FORGE_OUTBOX_NAME or jobs when left out. Workers with FORGE_OUTBOX
    relay all the time.
    """
    from forge_jobs.cli.outboxes import relay_all

    if not deployment.outbox:
        raise InvalidInput("FORGE_OUTBOX", "is not set", "give the URL of the database")
    report = relay_all(deployment, storage_url(deployment), name or deployment.outbox_name)
    if as_json:
        emit_json(report)
        return
    aside = f", {_jobs(report.set_aside)} set aside" if report.set_aside else ""
    talk(f"{_jobs(report.relayed)} relayed{aside}.")
