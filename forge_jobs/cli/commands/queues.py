"""``forge-jobs queues``: how queues stand, and their settings."""

from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from forge_jobs.cli.latencies import LAST_HOUR, QueueStats, read_stats, shown
from forge_jobs.cli.options import DURATION, RETRY, deployment_options, json_option, with_store
from forge_jobs.cli.output import duration, emit_json, emit_table, instant, plain, talk
from forge_jobs.clients.bulk import in_batches
from forge_jobs.config import Deployment
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.names import check_name, check_queue
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
from forge_jobs.model.schedules import Schedule
from forge_jobs.storage.protocols import Storage

_NO_COUNTS = QueueCounts(by_status={}, due=0, held=0, running=0, oldest_due_for=None)
_LOOK_AGAIN = 0.2
_COUNTED = tuple(JobStatus)


@click.group()
def queues() -> None:
    """How queues stand, and their settings."""


_Reading = tuple[list[QueueState], dict[str, QueueCounts], list[Allocation], list[QueueStats]]


@queues.command("list")
@json_option
@deployment_options
def list_queues(deployment: Deployment, as_json: bool) -> None:
    """List queues with their jobs, slots, pauses, and how long jobs took in the last hour."""

    async def read(store: Storage) -> _Reading:
        states = await store.config.queues()
        stats = await read_stats(store, [state.name for state in states], LAST_HOUR)
        return states, await store.jobs.counts(), await store.procs.allocations(), stats

    states, counts, allocations, stats = with_store(deployment, read)
    slots = {allocation.queue: allocation for allocation in allocations}
    documents = [
        {
            **_document(state, counts.get(state.name, _NO_COUNTS), slots.get(state.name)),
            "run": plain(each.run),
            "total": plain(each.total),
        }
        for state, each in zip(states, stats, strict=True)
    ]
    if as_json:
        emit_json({"queues": documents})
        return
    columns = ["queue", "state", "granted", "max", "due", "oldest"]
    columns += [status.in_words for status in _COUNTED]
    columns += ["run p50", "run p95", "total p95"]
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
    if state.unreadable:
        return f"cannot be read: {state.unreadable}"
    if state.paused:
        return "paused"
    if state.cooldown_remaining > timedelta(0):
        return f"cooling down for {duration(state.cooldown_remaining)}"
    return "unserved: no live pod serves it" if unserved else "open"


def _line(document: dict[str, Any]) -> list[object]:
    counts = document["counts"]
    oldest = counts["oldest_due_for"]
    since = document["paused_since"]
    paused = f" since {instant(datetime.fromisoformat(since))}" if since else ""
    return [
        document["name"],
        document["standing"] + paused,
        document["granted"],
        document["settings"]["max_workers"],
        counts["due"],
        duration(None if oldest is None else timedelta(seconds=oldest)),
        *(counts["by_status"].get(status, 0) for status in _COUNTED),
        shown(document["run"]["p50"]),
        shown(document["run"]["p95"]),
        shown(document["total"]["p95"]),
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
    """Change settings of a queue. They stay over later deploys. Creates the queue."""
    check_queue("queue", name)
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
        retry=given.get("retry"),
        dead_letter=given.get("dead_letter"),
    )


_which = (
    click.argument("names", nargs=-1, metavar="NAME..."),
    click.option("--all", "every", is_flag=True, help="Every known queue."),
)


def _which_queues(command: Any) -> Any:
    for option in reversed(_which):
        command = option(command)
    return command


@queues.command()
@_which_queues
@click.option("--wait", is_flag=True, help="Return when their running jobs have finished.")
@deployment_options
def pause(deployment: Deployment, names: tuple[str, ...], every: bool, wait: bool) -> None:
    """Stop claiming from queues. Running jobs finish."""

    async def stop_claims(store: Storage) -> list[str]:
        chosen = await _chosen(store, names, every)
        for name in chosen:
            await store.config.set_paused(name, True)
        if wait:
            await _until_idle(store, chosen)
        return chosen

    for name in with_store(deployment, stop_claims):
        talk(f"{name}: paused")


@queues.command()
@_which_queues
@deployment_options
def resume(deployment: Deployment, names: tuple[str, ...], every: bool) -> None:
    """Claim from paused queues again. Ends a cool-down too."""

    async def reopen(store: Storage) -> list[str]:
        chosen = await _chosen(store, names, every)
        for name in chosen:
            await store.config.set_paused(name, False)
            await store.config.clear_cooldown(name)
        return chosen

    for name in with_store(deployment, reopen):
        talk(f"{name}: open")


@queues.command()
@click.argument("name")
@click.option("--with-jobs", is_flag=True, help="Delete its jobs first; running ones are refused.")
@deployment_options
def delete(deployment: Deployment, name: str, with_jobs: bool) -> None:
    """Delete a queue that has no jobs and that no live pod serves."""
    check_name("queue", name)

    async def forget(store: Storage) -> tuple[int, list[str]]:
        await _chosen(store, (name,), every=False)
        gone = 0
        if with_jobs:
            gone = (await in_batches(store.jobs.delete, JobFilter(queues=(name,)))).changed
        await store.config.delete_queue(name)
        return gone, [each.spec.name for each in await store.cron.schedules() if _is_of(each, name)]

    gone, schedules = with_store(deployment, forget)
    talk(f"{name}: deleted" + (f", with {gone:,} jobs" if gone else ""))
    for schedule in schedules:
        talk(f"The schedule {schedule!r} enqueues there: when it fires, the queue is made again.")


def _is_of(schedule: Schedule, queue: str) -> bool:
    return schedule.spec.queue == queue


async def _chosen(store: Storage, names: tuple[str, ...], every: bool) -> list[str]:
    """The queues that are meant. Each must exist before any is touched."""
    if every == bool(names):
        problem = "is given beside --all" if every else "is missing"
        raise InvalidInput("name", problem, "give queue names, or --all")
    known = [state.name for state in await store.config.queues()]
    for name in names:
        check_name("queue", name)
        if name not in known:
            raise NotFound(f"there is no queue {name!r}")
    return known if every else list(dict.fromkeys(names))


async def _until_idle(store: Storage, names: list[str]) -> None:
    import anyio

    while await _running(store, names):  # noqa: ASYNC110 - other processes' jobs ring nothing here
        await anyio.sleep(_LOOK_AGAIN)


async def _running(store: Storage, names: list[str]) -> int:
    counts = await store.jobs.counts(names)
    return sum(each.by_status.get(JobStatus.IN_PROGRESS.value, 0) for each in counts.values())
