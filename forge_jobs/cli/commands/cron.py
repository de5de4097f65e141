"""``forge-jobs cron``: schedules."""

from typing import Any

import click

from forge_jobs.cli.loading import load_router
from forge_jobs.cli.options import (
    ATTEMPTS,
    DURATION,
    DURATION_OR_NONE,
    deployment_options,
    json_option,
    with_operator,
    without,
)
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.model.jobs import MAX_PRIORITY, MIN_PRIORITY
from forge_jobs.operating.settings.documents import ScheduleView
from forge_jobs.operating.settings.specs import ScheduleEdit, checked_spec
from forge_jobs.operating.words import instant


@click.group()
def cron() -> None:
    """Schedules: jobs that recur."""


@cron.command("list")
@json_option
@deployment_options
def list_schedules(deployment: Deployment, as_json: bool) -> None:
    """List schedules and when they fire next, those that were deleted too."""
    found = with_operator(deployment, lambda operator: operator.list_schedules())
    if as_json:
        emit_json(found)
        return
    columns = ["name", "kind", "queue", "expression", "zone", "state", "next", "fired", "skipped"]
    emit_table(columns, [_line(each) for each in found.schedules], none="No schedule is known.")


def _line(stored: ScheduleView) -> list[object]:
    spec = stored.spec
    return [
        spec.name,
        spec.kind,
        spec.queue,
        spec.expression,
        spec.timezone,
        stored.standing,
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
    click.option("--timeout", type=DURATION_OR_NONE, help="Limit of one run, or none."),
    click.option("--tag", "tags", multiple=True, help="All tags, one by one. An empty one: none."),
    click.option("--sequence-key", metavar="KEY", help="Jobs of KEY run in order. Empty: none."),
)


def _spec_options(command: Any) -> Any:
    for option in reversed(_SPEC_OPTIONS):
        command = option(command)
    return command


def _given(options: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in options.items() if value not in (None, ())}
    return without(given)


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
    edit = ScheduleEdit(kind=kind, expression=expression, **_given(options))
    checked_spec(name, edit)
    router = load_router(deployment)
    added = with_operator(
        deployment, lambda operator: operator.add_schedule(name, edit), create=True, router=router
    )
    _tell(added, as_json)


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
    edit = ScheduleEdit(**given)
    _tell(with_operator(deployment, lambda operator: operator.set_schedule(name, edit)), as_json)


def _tell(stored: ScheduleView, as_json: bool) -> None:
    if as_json:
        emit_json(stored)
        return
    fires = f"fires next at {instant(stored.next_at)}" if stored.next_at else "does not fire"
    talk(f"{stored.spec.name}: {stored.standing}, {fires}")


@cron.command()
@click.argument("name")
@json_option
@deployment_options
def pause(deployment: Deployment, name: str, as_json: bool) -> None:
    """Stop a schedule from firing."""
    _tell(with_operator(deployment, lambda operator: operator.pause_schedule(name)), as_json)


@cron.command()
@click.argument("name")
@json_option
@deployment_options
def resume(deployment: Deployment, name: str, as_json: bool) -> None:
    """Let a paused schedule fire again, from the next occurrence on."""
    _tell(with_operator(deployment, lambda operator: operator.resume_schedule(name)), as_json)


@cron.command()
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 100), default=5, show_default=True)
@json_option
@deployment_options
def fires(deployment: Deployment, name: str, count: int, as_json: bool) -> None:
    """Show when a schedule fires next."""
    found = with_operator(deployment, lambda operator: operator.schedule_fires(name, count=count))
    if as_json:
        emit_json(found)
        return
    for at in found.fires:
        click.echo(instant(at))
    if not found.fires:
        talk(f"{name} does not fire.")


@cron.command()
@click.argument("name")
@json_option
@deployment_options
def trigger(deployment: Deployment, name: str, as_json: bool) -> None:
    """Enqueue the job of a schedule now, and print the job's id."""
    outcome = with_operator(deployment, lambda operator: operator.trigger_schedule(name))
    if as_json:
        emit_json(outcome)
        return
    click.echo(outcome.job_id)
    if outcome.deduplicated:
        talk("Nothing was enqueued: this job of the schedule is still active.")


@cron.command()
@click.argument("name")
@json_option
@deployment_options
def delete(deployment: Deployment, name: str, as_json: bool) -> None:
    """Remove a schedule. A deploy does not bring it back."""
    gone = with_operator(deployment, lambda operator: operator.delete_schedule(name))
    if as_json:
        emit_json(gone)
        return
    talk(f"{name}: deleted")
