"""``forge-jobs queues``: how queues stand, and their settings."""

from datetime import timedelta
from typing import Any

import click
import msgspec

from forge_jobs.cli.options import DURATION, deployment_options, json_option, with_store
from forge_jobs.cli.output import duration, emit_json, emit_table, plain, talk
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput
from forge_jobs.model.names import check_name
from forge_jobs.model.processes import Allocation
from forge_jobs.model.queues import (
    MAX_WORKERS_LIMIT,
    CooldownPolicy,
    QueueChange,
    QueueCounts,
    QueueSettings,
    QueueState,
    Retention,
)
from forge_jobs.storage.protocols import Storage

_NO_COUNTS = QueueCounts(by_status={}, due=0, held=0, running=0, oldest_due_for=None)
_COUNTED = ("blocked", "pending", "in_progress", "failed", "done", "dead", "cancelled")


@click.group()
def queues() -> None:
    """How queues stand, and their settings."""


_Reading = tuple[list[QueueState], dict[str, QueueCounts], list[Allocation]]


@queues.command("list")
@json_option
@deployment_options
def list_queues(deployment: Deployment, as_json: bool) -> None:
    """List queues with their jobs, slots and pauses."""

    async def read(store: Storage) -> _Reading:
        states = await store.config.queues()
        return states, await store.jobs.counts(), await store.procs.allocations()

    states, counts, allocations = with_store(deployment, read)
    slots = {allocation.queue: allocation for allocation in allocations}
    documents = [
        _document(state, counts.get(state.name, _NO_COUNTS), slots.get(state.name))
        for state in states
    ]
    if as_json:
        emit_json({"queues": documents})
        return
    columns = ["queue", "state", "granted", "max", "due", "oldest", *_COUNTED]
    emit_table(columns, [_line(document) for document in documents], none="No queue is known.")


def _document(
    state: QueueState, counts: QueueCounts, allocation: Allocation | None
) -> dict[str, Any]:
    pods = allocation.pods if allocation else {}
    waits = counts.due or counts.by_status.get("pending")
    return {
        **plain(state),
        "counts": plain(counts),
        "granted": sum(slots.grant for slots in pods.values()),
        "pods": len(pods),
        "unserved": bool(waits and not pods),
        "standing": _standing(state, unserved=bool(waits and not pods)),
    }


def _standing(state: QueueState, *, unserved: bool) -> str:
    if state.paused:
        return "paused"
    if state.cooldown_remaining > timedelta(0):
        return f"cooling down for {duration(state.cooldown_remaining)}"
    return "unserved: no live pod declares it" if unserved else "open"


def _line(document: dict[str, Any]) -> list[object]:
    counts = document["counts"]
    oldest = counts["oldest_due_for"]
    return [
        document["name"],
        document["standing"],
        document["granted"],
        document["settings"]["max_workers"],
        counts["due"],
        duration(None if oldest is None else timedelta(seconds=oldest)),
        *(counts["by_status"].get(status, 0) for status in _COUNTED),
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
@json_option
@deployment_options
def set_queue(deployment: Deployment, name: str, as_json: bool, **options: Any) -> None:
    """Change settings of a queue; they stay over later deploys. Creates the queue."""
    check_name("queue", name)
    given = {key: value for key, value in options.items() if value is not None}
    if not given:
        raise InvalidInput("queue", "is given no setting", "give one, as --max-workers 4")

    async def change(store: Storage) -> QueueState:
        states = {state.name: state for state in await store.config.queues()}
        settings = states[name].settings if name in states else QueueSettings()
        return await store.config.set_queue(name, _changed(settings, given))

    state = with_store(deployment, change, create=True)
    if as_json:
        emit_json(state)
    else:
        talk(f"{name}: max_workers {state.settings.max_workers}, set: {_names(state)}")


def _names(state: QueueState) -> str:
    return ", ".join(sorted(state.overridden)) or "nothing"


def _changed(settings: QueueSettings, given: dict[str, Any]) -> QueueChange:
    cooldown = {
        key: value for key, value in given.items() if key in CooldownPolicy.__struct_fields__
    }
    retention = {key: value for key, value in given.items() if key in Retention.__struct_fields__}
    return QueueChange(
        max_workers=given.get("max_workers"),
        cooldown=msgspec.structs.replace(settings.cooldown, **cooldown) if cooldown else None,
        retention=msgspec.structs.replace(settings.retention, **retention) if retention else None,
    )


@queues.command()
@click.argument("name")
@deployment_options
def pause(deployment: Deployment, name: str) -> None:
    """Stop claiming from a queue; running jobs finish."""
    check_name("queue", name)
    with_store(deployment, lambda store: store.config.set_paused(name, True))
    talk(f"{name}: paused")


@queues.command()
@click.argument("name")
@deployment_options
def resume(deployment: Deployment, name: str) -> None:
    """Claim from a paused queue again; ends a cool-down too."""
    check_name("queue", name)

    async def reopen(store: Storage) -> QueueState:
        await store.config.set_paused(name, False)
        return await store.config.clear_cooldown(name)

    with_store(deployment, reopen)
    talk(f"{name}: open")
