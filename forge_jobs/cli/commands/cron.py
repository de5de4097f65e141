"""``forge-jobs cron``: schedules."""

from contextlib import suppress
from typing import Any

import click
import msgspec

from forge_jobs.cli.loading import load_router
from forge_jobs.cli.options import ATTEMPTS, DURATION, deployment_options, json_option, with_store
from forge_jobs.cli.output import emit_json, emit_table, instant, plain, talk
from forge_jobs.clients.client import JobClient
from forge_jobs.config import Deployment
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import MAX_PRIORITY, MIN_PRIORITY, EnqueueOutcome
from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.runtime.passes.cron import trigger_now
from forge_jobs.runtime.shared.schedules import (
    SCHEDULE_OPTIONS,
    pause_schedule,
    put_schedule,
    resume_schedule,
    schedule,
)
from forge_jobs.storage.protocols import Storage


@click.group()
def cron() -> None:
    """Schedules: jobs that recur."""


@cron.command("list")
@json_option
@deployment_options
def list_schedules(deployment: Deployment, as_json: bool) -> None:
    """List schedules and when they fire next, those that were deleted too."""
    schedules = with_store(deployment, lambda store: store.cron.schedules(with_deleted=True))
    if as_json:
        emit_json({"schedules": [_document(each) for each in schedules]})
        return
    columns = ["name", "kind", "queue", "expression", "zone", "state", "next", "fired", "skipped"]
    emit_table(columns, [_line(each) for each in schedules], none="No schedule is known.")


def _document(stored: Schedule) -> dict[str, Any]:
    document: dict[str, Any] = plain(stored)
    for name in ("payload", "metadata"):
        with suppress(msgspec.DecodeError):
            document["spec"][name] = msgspec.json.decode(document["spec"][name])
    return {**document, "standing": _standing(stored)}


def _standing(stored: Schedule) -> str:
    if stored.deleted:
        return "deleted by an operator; 'cron add' brings it back"
    if stored.unreadable:
        return f"cannot be read: {stored.unreadable}"
    if stored.error:
        return f"disabled: {stored.error}"
    return "paused" if stored.paused else "on"


def _line(stored: Schedule) -> list[object]:
    spec = stored.spec
    return [
        spec.name,
        spec.kind,
        spec.queue,
        spec.expression,
        spec.timezone,
        _standing(stored),
        instant(stored.next_at),
        stored.fired,
        stored.skipped,
    ]


_SPEC_OPTIONS = (
    click.option("--queue", help="Of the jobs; else what workers name for KIND, or 'default'."),
    click.option("--payload", metavar="JSON", help="Of the jobs: a JSON object."),
    click.option("--timezone", metavar="ZONE", help="IANA name, as Europe/Berlin; else UTC."),
    click.option("--jitter", type=DURATION, help="Delay each occurrence by a random part of it."),
    click.option(
        "--catch-up",
        type=click.Choice(["skip", "latest", "all"]),
        help="What of the occurrences missed while nothing ran.",
    ),
    click.option("--window", type=DURATION, help="How far back --catch-up all goes."),
    click.option(
        "--overlap",
        type=click.Choice(["allow", "skip"]),
        help="Skip an occurrence while a job of the schedule is active.",
    ),
    click.option("--priority", type=click.IntRange(MIN_PRIORITY, MAX_PRIORITY)),
    click.option("--max-attempts", type=ATTEMPTS, help="A number, or 'unlimited'."),
    click.option("--timeout", type=DURATION, help="Limit of one run."),
    click.option("--tag", "tags", multiple=True, help="May be given several times."),
)


def _spec_options(command: Any) -> Any:
    for option in reversed(_SPEC_OPTIONS):
        command = option(command)
    return command


def _given(options: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value not in (None, ())}
    if given.get("max_attempts") == 0:
        given["max_attempts"] = None
    return given


@cron.command()
@click.argument("name")
@click.argument("kind")
@click.argument("expression")
@_spec_options
@json_option
@deployment_options
def add(
    deployment: Deployment, name: str, kind: str, expression: str, as_json: bool, **options: Any
) -> None:
    """Add a schedule that enqueues a job of KIND by EXPRESSION.

    EXPRESSION has five cron fields, or six with seconds last, or is @daily, @every 90s.
    """
    spec = _spec(name, kind=kind, expression=expression, **_given(options))
    router = load_router(deployment)

    async def create(store: Storage) -> Schedule:
        if await store.cron.get_schedule(name) is not None:
            raise Conflict(f"a schedule is named {name!r}; change it with 'cron set'")
        queue = options["queue"] or await JobClient(store, router=router).queue_of(kind)
        return await put_schedule(store.cron, msgspec.structs.replace(spec, queue=queue))

    _tell(with_store(deployment, create, create=True), as_json)


def _spec(name: str, *, kind: str, expression: str, **parts: Any) -> ScheduleSpec:
    """The checked spec. Parts that are left out have their defaults."""
    payload = parts.pop("payload", "{}")
    options = {option: parts.pop(option) for option in SCHEDULE_OPTIONS & parts.keys()}
    return schedule(name, EnqueueRequest(kind, payload, **options), expression, **parts)


@cron.command("set")
@click.argument("name")
@click.option("--kind")
@click.option("--expression")
@_spec_options
@json_option
@deployment_options
def set_schedule(deployment: Deployment, name: str, as_json: bool, **options: Any) -> None:
    """Change a schedule. Options left out stay as they are. Later deploys leave all alone."""
    given = _given(options)
    if not given:
        raise InvalidInput("schedule", "is given no change", "give one, as --expression @daily")

    async def change(store: Storage) -> Schedule:
        stored = await store.cron.get_schedule(name)
        if stored is None:
            raise NotFound(f"no schedule is named {name!r}")
        return await put_schedule(store.cron, _spec(**(_parts(stored.spec) | given)))

    _tell(with_store(deployment, change), as_json)


def _parts(spec: ScheduleSpec) -> dict[str, Any]:
    return msgspec.structs.asdict(spec) | {"metadata": msgspec.json.decode(spec.metadata)}


def _tell(stored: Schedule, as_json: bool) -> None:
    if as_json:
        emit_json(_document(stored))
        return
    fires = f"fires next at {instant(stored.next_at)}" if stored.next_at else "does not fire"
    talk(f"{stored.spec.name}: {_standing(stored)}, {fires}")


@cron.command()
@click.argument("name")
@deployment_options
def pause(deployment: Deployment, name: str) -> None:
    """Stop a schedule from firing."""
    _tell(with_store(deployment, lambda store: pause_schedule(store.cron, name)), False)


@cron.command()
@click.argument("name")
@deployment_options
def resume(deployment: Deployment, name: str) -> None:
    """Let a paused schedule fire again, from the next occurrence on."""
    _tell(with_store(deployment, lambda store: resume_schedule(store.cron, name)), False)


@cron.command()
@click.argument("name")
@json_option
@deployment_options
def trigger(deployment: Deployment, name: str, as_json: bool) -> None:
    """Enqueue the job of a schedule now, and print the job's id."""
    outcome: EnqueueOutcome = with_store(deployment, lambda store: trigger_now(store, name))
    if as_json:
        emit_json(outcome)
        return
    click.echo(outcome.job_id)
    if outcome.deduplicated:
        talk("Nothing was enqueued: this job of the schedule is still active.")


@cron.command()
@click.argument("name")
@deployment_options
def delete(deployment: Deployment, name: str) -> None:
    """Remove a schedule. A deploy does not bring it back."""
    with_store(deployment, lambda store: store.cron.delete_schedule(name))
    talk(f"{name}: deleted")
