"""The health of a store, and of what runs on the store."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import anyio

from forge_jobs.clock import SystemClock, from_us
from forge_jobs.errors import ForgeJobsError
from forge_jobs.operating.health.findings import (
    Finding,
    State,
    examine_queues,
    of_problems,
)
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.operating.words import duration, instant
from forge_jobs.policy import remedies
from forge_jobs.policy.explanations import count, name_of
from forge_jobs.storage.protocols import Storage

_Result = tuple[State, str] | tuple[State, str, str]
"""A state, what was found, and the command that helps."""

_TOLERATED_SKEW = timedelta(seconds=2)
_TO_LISTEN = 3.0
_MOMENT = timedelta(milliseconds=50)
_ZERO = timedelta(0)


async def examine(reader: Reader) -> list[Finding]:
    """Examine a store that is open. A check that fails is a finding of its own.

    :param reader: reads for all checks together, and for pages that read beside them
    """
    findings = [Finding(check="store", state="ok", text=_about(reader.storage))]
    for name, check in _CHECKS.items():
        try:
            result = await check(reader)
        except ForgeJobsError as error:
            result = "fail", str(error)
        if result is not None:
            state, text, *help = result
            findings.append(Finding(check=name, state=state, text=text, help="".join(help)))
    try:
        findings += of_problems(await reader.problems())
        return findings + await examine_queues(reader)
    except ForgeJobsError as error:
        return [*findings, Finding(check="problems", state="fail", text=str(error))]


def is_well(findings: list[Finding]) -> bool:
    """Return whether nothing must be put right."""
    return all(finding.state != "fail" for finding in findings)


def _about(storage: Storage) -> str:
    server = f", {storage.server}" if storage.server else ""
    return f"reachable, schema current: {storage.name}{server}"


async def _check_durability(reader: Reader) -> _Result:
    return "ok" if reader.storage.is_durable else "warn", reader.storage.durability


async def _check_wakeups(reader: Reader) -> _Result:
    # There is no listener before the first waiter.
    with anyio.move_on_after(_TO_LISTEN):
        while not reader.storage.health().wakes:
            await reader.storage.jobs.wait_for_work(frozenset(), _MOMENT)
    if reader.storage.health().wakes:
        return "ok", "new work is heard of at once"
    return "warn", (
        "new work is found by polling, up to a second late: listening is not possible, or the "
        "URL says wake=poll, or it leads to a pooler and gives no direct=host:port"
    )


async def _check_clock(reader: Reader) -> _Result:
    skew = await reader.now() - from_us(SystemClock().time_us())
    ahead = "ahead of" if skew > _ZERO else "behind"
    if abs(skew) > _TOLERATED_SKEW:
        text = f"the store is {duration(abs(skew))} {ahead} this machine; times a user gives matter"
        return "warn", text
    return "ok", "the store and this machine agree within two seconds"


async def _check_transactions(reader: Reader) -> _Result | None:
    if reader.storage.open_transactions is None:
        return None
    found = await reader.storage.open_transactions()
    if not found.hidden:
        return None
    return "ok", (
        f"the ages of {found.hidden} of other roles are hidden from this one "
        "(GRANT pg_read_all_stats shows them)"
    )


async def _check_rights(reader: Reader) -> _Result:
    lacking = await reader.storage.lacking()
    if lacking:
        return "fail", f"{lacking}; without this, calls that write are refused"
    return "ok", "this user may read and write all that programs of the store do"


async def _check_pods(reader: Reader) -> _Result:
    pods = (await reader.fleet()).pods
    live = [pod for pod in pods if is_live(pod)]
    claimed = sum(sum(pod.in_progress.values()) for pod in pods if pod not in live)
    lost = f", {len(pods) - len(live)} lost" if len(pods) > len(live) else ""
    if claimed:
        lost += f" with {count(claimed, 'job')} in progress, to be revived by a live pod"
    if not live:
        if pods:
            last = max(pods, key=lambda pod: pod.last_beat_at)
            lost = f" since {instant(last.last_beat_at)} ({name_of(last)}){lost}"
        text = f"no live pod{lost}: nothing runs until 'forge-jobs worker' does"
        return "warn", text, remedies.start_worker("QUEUES")
    spoilt = [f"{name_of(pod)}: {pod.unreadable}" for pod in pods if pod.unreadable]
    if spoilt:
        text = f"{count(len(spoilt), 'pod')} with a record that cannot be read, {spoilt[0]}"
        return (
            "warn",
            f"{text}; it is written anew when the pod starts again",
            remedies.LOOK_AT_PODS,
        )
    return "ok", f"{len(live)} live{lost}"


async def _check_retention(reader: Reader) -> _Result:
    pods = (await reader.fleet()).pods
    kept = [each for pod in pods if is_live(pod) and pod.gauges for each in pod.gauges.kept]
    if kept:
        more = f", and {len(kept) - 1} more reasons" if len(kept) > 1 else ""
        return "warn", (
            f"jobs are past their retention and stay, for example {kept[0]}{more}; delete what "
            "refers to them, or let the reference follow with ON DELETE CASCADE or SET NULL"
        )
    return "ok", "nothing keeps jobs that are past their retention"


async def _check_schedules(reader: Reader) -> _Result:
    schedules = (await reader.fleet()).schedules
    spoilt = [f"{each.spec.name!r} ({each.unreadable})" for each in schedules if each.unreadable]
    if spoilt:
        return (
            "fail",
            (
                f"cannot be read, so they do not fire: {', '.join(spoilt)}; set them anew, or "
                "'forge-jobs cron delete' them"
            ),
            "forge-jobs cron set --help",
        )
    return "ok", f"{len(schedules)} known"


async def _check_layout(reader: Reader) -> _Result | None:
    layout = reader.storage.health().layout
    return ("warn", layout) if layout else None


async def _check_keys(reader: Reader) -> _Result | None:
    if reader.storage.unreadable is None:
        return None
    spoilt = [
        f"{f'queue {name}' if name else 'pods, leader and schedules'}: {reason}"
        for name, reason in sorted((await reader.storage.unreadable()).items())
    ]
    if not spoilt:
        return "ok", "each holds what it must"
    more = f"; and {len(spoilt) - 1} more" if len(spoilt) > 1 else ""
    return "fail", f"{spoilt[0]}{more}"


async def _check_rate_limits(reader: Reader) -> _Result:
    limits = (await reader.fleet()).limits
    spoilt = [f"{each.scope!r} ({each.unreadable})" for each in limits if each.unreadable]
    fate, fix = "cannot be read, so they give no token", "or 'forge-jobs limits delete' them"
    return _of_records(len(limits), spoilt, fate, f"set them anew, {fix}", "limits set")


async def _check_limits(reader: Reader) -> _Result:
    limits = await reader.storage.config.limits()
    spoilt = [f"{each.queue}/{each.name} ({each.unreadable})" for each in limits if each.unreadable]
    fix = "set them anew; one whose number cannot be read holds nothing back"
    return _of_records(len(limits), spoilt, "edited by hand", fix, "limits set-concurrency")


async def _check_strikes(reader: Reader) -> _Result:
    strikes = await reader.storage.config.strikes()
    spoilt = [f"{each.name!r} ({each.unreadable})" for each in strikes if each.unreadable]
    fate, fix = "cannot be read, so they hold no job", "add them anew, or lift them"
    return _of_records(len(strikes), spoilt, fate, fix, "strikes add")


def _of_records(known: int, spoilt: Sequence[str], fate: str, fix: str, verb: str) -> _Result:
    if not spoilt:
        return "ok", f"{known} known"
    return "fail", f"{fate}: {', '.join(spoilt)}; {fix}", f"forge-jobs {verb} --help"


_CHECKS: dict[str, Callable[[Reader], Awaitable[_Result | None]]] = {
    "durability": _check_durability,
    "rights": _check_rights,
    "layout": _check_layout,
    "keys": _check_keys,
    "wake-ups": _check_wakeups,
    "clock": _check_clock,
    "transactions": _check_transactions,
    "pods": _check_pods,
    "retention": _check_retention,
    "schedules": _check_schedules,
    "rate limits": _check_rate_limits,
    "limits": _check_limits,
    "strikes": _check_strikes,
}
