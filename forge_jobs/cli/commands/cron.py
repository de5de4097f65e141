"""``forge-jobs cron``: schedules."""

from typing import Any

import click
import msgspec

from forge_jobs.cli.options import ATTEMPTS, DURATION, deployment_options, json_option, with_store
from forge_jobs.cli.output import emit_json, emit_table, instant, plain, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import Conflict, InvalidInput, NotFound
from forge_jobs.model.jobs import MAX_PRIORITY, MIN_PRIORITY, EnqueueOutcome
from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.policy.cron import first_occurrence
from forge_jobs.runtime.cron import check_schedule, trigger_now
from forge_jobs.storage.protocols import Storage


@click.group()
def cron() -> None:
    """Schedules: jobs that recur."""


@cron.command("list")
@json_option
@deployment_options
def list_schedules(deployment: Deployment, as_json: bool) -> None:
    """List schedules and when they fire next."""
    schedules = with_store(deployment, lambda store: store.cron.schedules())
    if as_json:
        emit_json({"schedules": [_document(schedule) for schedule in schedules]})
        return
    columns = ["name", "kind", "queue", "expression", "zone", "state", "next", "fired", "skipped"]
    emit_table(columns, [_line(schedule) for schedule in schedules], none="No schedule is known.")


def _document(schedule: Schedule) -> dict[str, Any]:
    document: dict[str, Any] = plain(schedule)
    for name in ("payload", "metadata"):
        document["spec"][name] = msgspec.json.decode(document["spec"][name])
    return {**document, "standing": _standing(schedule)}


def _standing(schedule: Schedule) -> str:
    if schedule.error:
        return f"disabled: {schedule.error}"
    return "paused" if schedule.paused else "on"


def _line(schedule: Schedule) -> list[object]:
    spec = schedule.spec
    return [
        spec.name,
        spec.kind,
        spec.queue,
        spec.expression,
        spec.timezone,
        _standing(schedule),
        instant(schedule.next_at),
        schedule.fired,
        schedule.skipped,
    ]


_SPEC_OPTIONS = (
    click.option("--queue", help="Of the jobs; 'default' when left out."),
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
    given = {"queue": "default", **_given(options)}
    spec = check_schedule(ScheduleSpec(name=name, kind=kind, expression=expression, **given))

    async def create(store: Storage) -> Schedule:
        if await store.cron.get_schedule(name) is not None:
            raise Conflict(f"a schedule is named {name!r}; change it with 'cron set'")
        return await _put(store, spec)

    _tell(with_store(deployment, create), as_json)


@cron.command("set")
@click.argument("name")
@click.option("--kind")
@click.option("--expression")
@_spec_options
@json_option
@deployment_options
def set_schedule(deployment: Deployment, name: str, as_json: bool, **options: Any) -> None:
    """Change a schedule; what is not given stays. Later deploys leave it alone."""
    given = _given(options)
    if not given:
        raise InvalidInput("schedule", "is given no change", "give one, as --expression @daily")

    async def change(store: Storage) -> Schedule:
        schedule = await _existing(store, name)
        return await _put(store, check_schedule(msgspec.structs.replace(schedule.spec, **given)))

    _tell(with_store(deployment, change), as_json)


async def _put(store: Storage, spec: ScheduleSpec) -> Schedule:
    return await store.cron.put_schedule(spec, first_occurrence(spec, await store.cron.now()))


async def _existing(store: Storage, name: str) -> Schedule:
    schedule = await store.cron.get_schedule(name)
    if schedule is None:
        raise NotFound(f"no schedule is named {name!r}")
    return schedule


def _tell(schedule: Schedule, as_json: bool) -> None:
    if as_json:
        emit_json(_document(schedule))
        return
    fires = f"fires next at {instant(schedule.next_at)}" if schedule.next_at else "does not fire"
    talk(f"{schedule.spec.name}: {_standing(schedule)}, {fires}")


@cron.command()
@click.argument("name")
@deployment_options
def pause(deployment: Deployment, name: str) -> None:
    """Stop a schedule from firing."""
    _tell(with_store(deployment, lambda store: store.cron.pause_schedule(name, True, None)), False)


@cron.command()
@click.argument("name")
@deployment_options
def resume(deployment: Deployment, name: str) -> None:
    """Let a paused schedule fire again, from its next occurrence on."""

    async def restart(store: Storage) -> Schedule:
        spec = (await _existing(store, name)).spec
        next_at = first_occurrence(spec, await store.cron.now())
        return await store.cron.pause_schedule(name, False, next_at)

    _tell(with_store(deployment, restart), False)


@cron.command()
@click.argument("name")
@json_option
@deployment_options
def trigger(deployment: Deployment, name: str, as_json: bool) -> None:
    """Enqueue the job of a schedule now, out of turn, and print its id."""
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
    """Remove a schedule; a deploy does not bring it back."""
    with_store(deployment, lambda store: store.cron.delete_schedule(name))
    talk(f"{name}: deleted")
