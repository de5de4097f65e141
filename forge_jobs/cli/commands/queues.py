"""``forge-jobs queues``: how queues stand, and their settings."""

from datetime import timedelta
from typing import Any

import click
from msgspec import Struct

from forge_jobs.cli.commands.judging.series import history
from forge_jobs.cli.options import DURATION, RETRY, deployment_options, json_option, with_operator
from forge_jobs.cli.output import emit_json, emit_table, talk
from forge_jobs.config import Deployment
from forge_jobs.durations import format_duration
from forge_jobs.errors import InvalidInput
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.names import check_name, check_queue
from forge_jobs.model.queues import MAX_WORKERS_LIMIT, QueueState
from forge_jobs.model.retries import Retry, retry_text
from forge_jobs.operating.metrics.latencies import shown
from forge_jobs.operating.operator import Operator
from forge_jobs.operating.settings.documents import QueueView
from forge_jobs.operating.settings.lines import SettingLine
from forge_jobs.operating.settings.queues import CooldownEdit, QueueEdit, RetentionEdit
from forge_jobs.operating.snapshots.objectives import ObjectiveView
from forge_jobs.operating.words import counted, duration, instant
from forge_jobs.storage.protocols import Storage

_LOOK_AGAIN = 0.2
_COUNTED = tuple(JobStatus)


@click.group()
def queues() -> None:
    """How queues stand, and their settings."""


@queues.command("list")
@json_option
@deployment_options
def list_queues(deployment: Deployment, as_json: bool) -> None:
    """List queues with their jobs, slots, pauses, and how long jobs took in the last hour."""
    found = with_operator(deployment, lambda operator: operator.list_queues())
    if as_json:
        emit_json(found)
        return
    columns = ["queue", "state", "granted", "max", "due", "oldest"]
    columns += [status.in_words for status in _COUNTED]
    columns += ["run p50", "run p95", "total p95"]
    emit_table(columns, [_line(each) for each in found.queues], none="No queue is known.")


def _line(queue: QueueView) -> list[object]:
    since = f" since {instant(queue.paused_since)}" if queue.paused_since else ""
    return [
        queue.name,
        queue.standing + since,
        queue.granted,
        queue.settings.max_workers,
        queue.counts.due,
        duration(queue.counts.oldest_due_for),
        *(counted([queue.counts], status) for status in _COUNTED),
        shown(queue.run.p50),
        shown(queue.run.p95),
        shown(queue.total.p95),
    ]


@queues.command("objectives")
@json_option
@deployment_options
def list_objectives(deployment: Deployment, as_json: bool) -> None:
    """List queues with an objective: the share met, what is left of the budget, the burn, pods."""
    found = with_operator(deployment, lambda operator: operator.list_objectives())
    if as_json:
        emit_json(found)
        return
    columns = ["queue", "objective", "1 h", "24 h", "30 d", "budget left", "burn 5 m", "burn 1 h"]
    columns.append("pods wanted")
    lines = [_standing(each) for each in found.objectives]
    emit_table(columns, lines, none="No queue has an objective.")


def _standing(each: ObjectiveView) -> list[object]:
    shares = [each.met_1h, each.met_24h, each.met_30d]
    return [
        each.queue,
        each.objective,
        *("-" if share is None else f"{share:.2%}" for share in shares),
        f"{each.budget_left:.0%}",
        f"{each.burn_5m:.3g}",
        f"{each.burn_1h:.3g}",
        each.desired.pods,
    ]


_POLICY_OPTIONS = (
    click.option("--max-workers", type=click.IntRange(0, MAX_WORKERS_LIMIT)),
    click.option(
        "--cooldown",
        "mode",
        type=click.Choice(["flat", "exponential"]),
        help="How pauses after throttling grow.",
    ),
    click.option("--cooldown-base", "base", type=DURATION, help="Length of the first pause."),
    click.option("--cooldown-cap", "cap", type=DURATION, help="Length of the longest pause."),
    click.option(
        "--cooldown-quiet", "quiet", type=DURATION, help="Time without throttles that ends it."
    ),
    click.option(
        "--retry",
        type=RETRY,
        help="Of handlers without a policy: exponential[:BASE[:CAP]], linear:STEP[:CAP], "
        "fixed:DELAY, or delays:1s,5s,1m.",
    ),
    click.option(
        "--dead-letter",
        metavar="QUEUE",
        help="The queue that gets a letter of each job that dies. '' for none.",
    ),
    click.option(
        "--objective",
        metavar="TEXT",
        help="How many jobs should start in time, as '95% within 30s'. '' for none.",
    ),
    click.option("--keep-done", "done", type=DURATION, help="How long done jobs stay."),
    click.option("--keep-dead", "dead", type=DURATION, help="How long dead jobs stay."),
    click.option("--keep-cancelled", "cancelled", type=DURATION, help="The same of cancelled."),
    click.option("--max-done", type=click.IntRange(0), help="How many done jobs stay at most."),
    click.option("--max-dead", type=click.IntRange(0), help="The same of dead ones."),
    click.option("--max-cancelled", type=click.IntRange(0), help="The same of cancelled ones."),
)


def _policy_options(command: Any) -> Any:
    for option in reversed(_POLICY_OPTIONS):
        command = option(command)
    return command


@queues.command("set")
@click.argument("name")
@_policy_options
@click.option(
    "--from-code",
    multiple=True,
    metavar="SETTING",
    help="Take the value of code again, as max_workers. Repeatable.",
)
@json_option
@deployment_options
def set_queue(deployment: Deployment, name: str, as_json: bool, **options: Any) -> None:
    """Change settings of a queue. They stay over later deploys. Creates the queue."""
    check_queue("queue", name)
    given = {key: value for key, value in options.items() if value not in (None, ())}
    if not given:
        raise InvalidInput("queue", "is given no setting", "give one, as --max-workers 4")
    state = with_operator(
        deployment, lambda operator: operator.set_queue(name, _edit(given)), create=True
    )
    if as_json:
        emit_json(state)
    else:
        talk(f"{name}: max_workers {state.settings.max_workers}, set: {_names(state)}")


@queues.command("settings")
@click.argument("name")
@json_option
@deployment_options
def queue_settings(deployment: Deployment, name: str, as_json: bool) -> None:
    """Show each setting of a queue: in force, from code, and who has set the value."""
    found = with_operator(deployment, lambda operator: operator.queue_settings(name))
    if as_json:
        emit_json(found)
        return
    rows = [
        [each.name, _said(each.value), _said(each.of_code), _setter(each)]
        for each in found.settings
    ]
    emit_table(["setting", "in force", "from code", "set by"], rows, none="")
    if not found.is_declared:
        talk("No program has declared this queue: from code stands the default.")


def _said(value: Any) -> str:
    if isinstance(value, Retry):
        return retry_text(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, Struct):
        parts = ((name, getattr(value, name)) for name in value.__struct_fields__)
        return " ".join(f"{name}={_said(part)}" for name, part in parts if part is not None)
    return str(value) if value not in (None, "") else "-"


def _setter(line: SettingLine) -> str:
    if not line.is_overridden:
        return "code"
    if line.at is None:
        return "an operator"
    return f"{line.actor}, {line.at:%Y-%m-%d %H:%M} UTC"


def _names(state: QueueState) -> str:
    return ", ".join(sorted(state.overridden)) or "nothing"


def _edit(given: dict[str, Any]) -> QueueEdit:
    cooldown = {key: given.pop(key) for key in CooldownEdit.__struct_fields__ if key in given}
    retention = {key: given.pop(key) for key in RetentionEdit.__struct_fields__ if key in given}
    return QueueEdit(
        cooldown=CooldownEdit(**cooldown) if cooldown else None,
        retention=RetentionEdit(**retention) if retention else None,
        **given,
    )


_which = (
    click.argument("names", nargs=-1, metavar="NAME..."),
    click.option("--all", "every", is_flag=True, help="Every known queue."),
    click.option("--json", "as_json", is_flag=True, help="Print a JSON document for each queue."),
)


def _which_queues(command: Any) -> Any:
    for option in reversed(_which):
        command = option(command)
    return command


@queues.command()
@_which_queues
@click.option("--wait", is_flag=True, help="Return when their running jobs have finished.")
@deployment_options
def pause(
    deployment: Deployment, names: tuple[str, ...], every: bool, wait: bool, as_json: bool
) -> None:
    """Stop claiming from queues. Running jobs finish."""

    async def stop_claims(operator: Operator) -> list[QueueState]:
        chosen = await _chosen(operator, names, every)
        paused = [await operator.pause_queue(name) for name in chosen]
        if wait:
            await _until_idle(operator.storage, chosen)
        return paused

    _tell(with_operator(deployment, stop_claims), "paused", as_json)


def _tell(states: list[QueueState], became: str, as_json: bool) -> None:
    for state in states:
        if as_json:
            emit_json(state)
        else:
            talk(f"{state.name}: {became}")


@queues.command()
@_which_queues
@deployment_options
def resume(deployment: Deployment, names: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Claim from paused queues again. Ends a cool-down too."""

    async def reopen(operator: Operator) -> list[QueueState]:
        chosen = await _chosen(operator, names, every)
        return [await operator.resume_queue(name) for name in chosen]

    _tell(with_operator(deployment, reopen), "open", as_json)


@queues.command("end-cooldown")
@_which_queues
@deployment_options
def end_cooldown(
    deployment: Deployment, names: tuple[str, ...], every: bool, as_json: bool
) -> None:
    """End cool-downs and forget the throttles before. Pauses stay."""

    async def end(operator: Operator) -> list[QueueState]:
        chosen = await _chosen(operator, names, every)
        return [await operator.end_cooldown(name) for name in chosen]

    _tell(with_operator(deployment, end), "does not cool down", as_json)


@queues.command("clean-up")
@click.argument("name")
@click.option("--keep", type=DURATION, default="0s", help="Jobs that ended within this stay.")
@json_option
@deployment_options
def clean_up(deployment: Deployment, name: str, keep: timedelta, as_json: bool) -> None:
    """Remove done and cancelled jobs of a queue now. Dead ones stay. There is no undo."""
    found = with_operator(deployment, lambda operator: operator.clean_up_queue(name, keep=keep))
    if as_json:
        emit_json(found)
        return
    talk(f"{name}: {found.jobs:,} jobs removed, {found.refused:,} left alone")


queues.add_command(history)


@queues.command()
@click.argument("name")
@click.option("--with-jobs", is_flag=True, help="Delete its jobs first; running ones are refused.")
@json_option
@deployment_options
def delete(deployment: Deployment, name: str, with_jobs: bool, as_json: bool) -> None:
    """Delete a queue that has no jobs and that no live pod serves."""
    check_name("queue", name)
    gone = with_operator(
        deployment, lambda operator: operator.delete_queue(name, with_jobs=with_jobs)
    )
    if as_json:
        emit_json(gone)
        return
    talk(f"{name}: deleted" + (f", with {gone.jobs:,} jobs" if gone.jobs else ""))
    for schedule in gone.schedules:
        talk(f"The schedule {schedule!r} enqueues there: when it fires, the queue is made again.")


async def _chosen(operator: Operator, names: tuple[str, ...], every: bool) -> list[str]:
    """The queues that are meant. Each must exist before any is touched."""
    if every == bool(names):
        problem = "is given beside --all" if every else "is missing"
        raise InvalidInput("name", problem, "give queue names, or --all")
    if every:
        return [queue.name for queue in (await operator.list_queues()).queues]
    await operator.check_queues(names)
    return list(dict.fromkeys(names))


async def _until_idle(store: Storage, names: list[str]) -> None:
    import anyio

    while await _running(store, names):  # noqa: ASYNC110 - other processes' jobs ring nothing here
        await anyio.sleep(_LOOK_AGAIN)


async def _running(store: Storage, names: list[str]) -> int:
    counts = await store.jobs.counts(names, ended_at_most=1)
    return sum(each.by_status.get(JobStatus.IN_PROGRESS.value, 0) for each in counts.values())
