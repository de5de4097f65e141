"""``forge-jobs doctor``: what is wrong with this installation, and what to do."""

import platform
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import timedelta
from importlib.metadata import version
from typing import Literal

import anyio
import click
from msgspec import Struct

from forge_jobs.cli.failures import FAILED
from forge_jobs.cli.options import deployment_options, json_option, storage_url
from forge_jobs.cli.output import duration, emit_json, emit_table
from forge_jobs.clock import SystemClock, from_us
from forge_jobs.config import Deployment
from forge_jobs.errors import ForgeJobsError
from forge_jobs.model.processes import PodState
from forge_jobs.runtime.startup import connections_wanted
from forge_jobs.storage.protocols import Storage

_PACKAGES = (
    "forge-jobs",
    "anyio",
    "SQLAlchemy",
    "aiosqlite",
    "asyncpg",
    "redis",
    "msgspec",
    "croniter",
    "click",
)
_State = Literal["ok", "warn", "fail"]
_Result = tuple[_State, str]

_TOLERATED_SKEW = timedelta(seconds=2)
_TO_LISTEN = 3.0
_MOMENT = timedelta(milliseconds=50)
_TOLERATED_OPEN = timedelta(minutes=5)
_ZERO = timedelta(0)


class Finding(Struct, frozen=True, kw_only=True):
    """The outcome of one check.

    :param state: ``fail`` is what must be put right; ``warn`` may be meant so
    """

    check: str
    state: _State
    text: str


@click.command()
@json_option
@deployment_options
def doctor(deployment: Deployment, as_json: bool) -> None:
    """Check this installation and its store; exit code 1 when something must be put right."""
    findings = [_check_python(), _check_packages()]
    findings += anyio.run(_examine, deployment)
    if as_json:
        emit_json({"ok": _is_well(findings), "findings": findings})
    else:
        rows = [[each.state, each.check, each.text] for each in findings]
        emit_table(["state", "check", "finding"], rows, none="")
    if not _is_well(findings):
        raise click.exceptions.Exit(FAILED)


def _is_well(findings: list[Finding]) -> bool:
    return all(finding.state != "fail" for finding in findings)


def _check_python() -> Finding:
    text = f"{platform.python_implementation()} {platform.python_version()}"
    return Finding(check="python", state="ok", text=text)


def _check_packages() -> Finding:
    installed = [f"{name} {version(name)}" for name in _PACKAGES]
    text = ", ".join([*installed, f"SQLite {sqlite3.sqlite_version}"])
    return Finding(check="packages", state="ok", text=text)


async def _examine(deployment: Deployment) -> list[Finding]:
    from forge_jobs.storage.opening import open_storage

    try:
        storage = await open_storage(storage_url(deployment), create=False)
    except ForgeJobsError as error:
        return [Finding(check="store", state="fail", text=str(error))]
    async with storage:
        findings = [
            Finding(check="store", state="ok", text=_about(storage)),
            _check_pool(storage, deployment),
        ]
        for name, examine in _CHECKS.items():
            try:
                result = await examine(storage)
            except ForgeJobsError as error:
                result = "fail", str(error)
            if result is not None:
                findings.append(Finding(check=name, state=result[0], text=result[1]))
        return findings


def _about(storage: Storage) -> str:
    server = f", {storage.server}" if storage.server else ""
    return f"reachable, schema current: {storage.name}{server}"


async def _check_durability(storage: Storage) -> _Result:
    return "ok" if storage.is_durable else "warn", storage.durability


async def _check_wakeups(storage: Storage) -> _Result:
    # Nobody listens before somebody waits.
    with anyio.move_on_after(_TO_LISTEN):
        while not storage.health().wakes:
            await storage.jobs.wait_for_work(frozenset(), _MOMENT)
    if storage.health().wakes:
        return "ok", "new work is heard of at once"
    return "warn", (
        "new work is found by polling, up to a second late: listening is not possible, or the "
        "URL says wake=poll, or it leads to a pooler and gives no direct=host:port"
    )


def _check_pool(storage: Storage, deployment: Deployment) -> Finding:
    size, wanted = storage.pool_size, connections_wanted(len(deployment.queues))
    if size is None:
        return Finding(check="pool", state="ok", text="one writer, one reader")
    if size >= wanted:
        return Finding(check="pool", state="ok", text=f"{size} connections, {wanted} wanted")
    text = (
        f"{size} connections for {len(deployment.queues)} queues; give the URL pool_size={wanted}"
    )
    return Finding(check="pool", state="warn", text=text)


async def _check_clock(storage: Storage) -> _Result:
    skew = await storage.cron.now() - from_us(SystemClock().time_us())
    ahead = "ahead of" if skew > _ZERO else "behind"
    if abs(skew) > _TOLERATED_SKEW:
        text = f"the store is {duration(abs(skew))} {ahead} this machine; times a user gives matter"
        return "warn", text
    return "ok", "the store and this machine agree within two seconds"


async def _check_transactions(storage: Storage) -> _Result | None:
    if storage.open_transactions is None:
        return None
    found = await storage.open_transactions()
    if found.oldest > _TOLERATED_OPEN:
        return "warn", (
            f"a transaction has been open for {duration(found.oldest)}: until it ends no dead row "
            "is removed and every claim and beat gets slower; find it in pg_stat_activity by "
            "xact_start, and end it"
        )
    if found.hidden:
        return "ok", (
            f"none known to be open for long; the ages of {found.hidden} of other roles are "
            "hidden from this one (GRANT pg_read_all_stats shows them)"
        )
    return "ok", f"none has been open for longer than {duration(_TOLERATED_OPEN)}"


async def _live_pods(storage: Storage) -> list[PodState]:
    return [pod for pod in await storage.procs.pods() if pod.lease_remaining > _ZERO]


async def _check_pods(storage: Storage) -> _Result:
    pods = await storage.procs.pods()
    live = [pod for pod in pods if pod.lease_remaining > _ZERO]
    lost = f", {len(pods) - len(live)} lost" if len(pods) > len(live) else ""
    if not live:
        return "warn", f"no live pod{lost}: nothing runs until 'forge-jobs worker' does"
    return "ok", f"{len(live)} live{lost}"


async def _check_queues(storage: Storage) -> _Result:
    allocations = await storage.procs.allocations()
    unserved = [each.queue for each in allocations if not each.pods]
    if unserved:
        # Without any pod this is nothing new: the check of pods has said it.
        state: _State = "fail" if await _live_pods(storage) else "warn"
        return state, f"no live pod declares {', '.join(unserved)}; add to FORGE_QUEUES of a pod"
    slotless = [
        each.queue
        for each in allocations
        if each.max_workers and not any(slots.grant for slots in each.pods.values())
    ]
    if slotless:
        return "warn", f"declared but without a slot yet: {', '.join(slotless)}"
    return "ok", f"{len(allocations)} served"


async def _check_leader(storage: Storage) -> _Result:
    leader = await storage.cron.leader()
    if leader is None or leader.remaining <= _ZERO:
        if await _live_pods(storage):
            return "fail", "pods are live but none leads: slots and schedules stand still"
        return "warn", "nobody leads, as no pod is live"
    return "ok", f"{leader.host_id}, term {leader.term}"


async def _check_schedules(storage: Storage) -> _Result:
    schedules = await storage.cron.schedules()
    broken = [each.spec.name for each in schedules if each.error]
    if broken:
        return "fail", f"disabled by an error: {', '.join(broken)}; see 'forge-jobs cron list'"
    return "ok", f"{len(schedules)} known"


_CHECKS: dict[str, Callable[[Storage], Awaitable[_Result | None]]] = {
    "durability": _check_durability,
    "wake-ups": _check_wakeups,
    "clock": _check_clock,
    "transactions": _check_transactions,
    "pods": _check_pods,
    "queues": _check_queues,
    "leader": _check_leader,
    "schedules": _check_schedules,
}
