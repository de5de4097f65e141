"""The page of errors: failures in groups."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from forge_jobs.model.failures import OTHER, ErrorGroup
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.words import Curve, curve, length, number

SPANS = {
    "1h": (timedelta(hours=1), timedelta(minutes=1)),
    "6h": (timedelta(hours=6), timedelta(minutes=6)),
    "24h": (timedelta(days=1), timedelta(minutes=24)),
    "7d": (timedelta(days=7), timedelta(minutes=168)),
}
"""Spans of the page, each with the length of a step."""

_LISTED = 50


async def errors_page(visit: Visit) -> Shown:
    """Show what failed alike, the group that failed last first."""
    chosen = visit.parameter("over")
    chosen = chosen if chosen in SPANS else "1h"
    span, step = SPANS[chosen]
    until = visit.now + timedelta(minutes=1)
    since = until - span
    found = await visit.storage.jobs.error_groups(
        since, until, step=step, cursor=visit.parameter("cursor") or None, limit=_LISTED
    )
    groups = [_open(visit, each) for each in found.groups if visit.actor.sees(each.queue)]
    return Shown(
        template="errors.html",
        title="Errors",
        values={
            "headline": _headline(groups, since, span),
            "groups": [_row(each, since, step) for each in groups],
            "spans": list(SPANS),
            "chosen": chosen,
            "cursor": found.cursor,
            "silent": found.silent,
            "other": OTHER,
            "may_requeue": visit.actor.access.allows("requeue_jobs"),
        },
    )


def _row(group: ErrorGroup, since: datetime, step: timedelta) -> dict[str, object]:
    is_new = group.first_at >= since
    return {"group": group, "is_new": is_new, "curve": _curve(group, since, step)}


def _open(visit: Visit, group: ErrorGroup) -> ErrorGroup:
    """Return the group, without the message for a caller who may not read payloads."""
    if visit.actor.access.payloads:
        return group
    return msgspec.structs.replace(group, message="")


def _headline(groups: Iterable[ErrorGroup], since: datetime, span: timedelta) -> str:
    listed = list(groups)
    if not listed:
        return f"No failure in the last {length(span)}"
    new = sum(each.first_at >= since for each in listed)
    dead = sum(each.dead for each in listed)
    kinds = "1 kind of failure" if len(listed) == 1 else f"{len(listed)} kinds of failure"
    return f"{kinds} in the last {length(span)}, {new} new; {number(dead)} jobs died"


def _curve(group: ErrorGroup, since: datetime, step: timedelta) -> Curve | None:
    values = [0] * 61
    for each in group.counts:
        index = min(max(int((each.at - since) / step), 0), 60)
        values[index] += each.retried + each.dead
    return curve(values)
