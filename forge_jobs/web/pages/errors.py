"""The page of errors: failures in groups."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from forge_jobs.model.failures import OTHER, ErrorGroup
from forge_jobs.model.jobs import JobStatus
from forge_jobs.model.names import command_line
from forge_jobs.operating.errors.calls import STEPS
from forge_jobs.operating.errors.documents import ErrorView
from forge_jobs.web.pages.charts.paths import Curve, curve
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.words import STATUS_WORD, length, number, term

SPANS = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
}
"""Spans of the pages."""

_LISTED = 50


async def errors_page(visit: Visit) -> Shown:
    """Show what failed alike, the group that failed last first."""
    chosen, span = _span(visit)
    found = await visit.operator.list_errors(
        over=span, cursor=visit.parameter("cursor") or None, limit=_LISTED
    )
    since = visit.now - span
    return Shown(
        template="errors.html",
        title="Errors",
        commands=(f"forge-jobs errors list --over {chosen}",),
        values={
            "headline": _headline(found.groups, since, span),
            "groups": [_row(each, since, span) for each in found.groups],
            "spans": list(SPANS),
            "chosen": chosen,
            "cursor": found.cursor,
            "silent": found.silent,
            "other": OTHER,
            "may_requeue": visit.actor.access.allows("requeue_jobs"),
        },
    )


async def error_page(visit: Visit) -> Shown:
    """Show one group: the newest failure whole, and what became of the jobs."""
    chosen, span = _span(visit)
    group = await visit.operator.get_error(visit.name("queue"), visit.name("group"), over=span)
    which = f"{term('queue', group.queue)} group:{group.id}"
    dead = group.statuses.get(JobStatus.DEAD.value, 0)
    return Shown(
        template="error.html",
        title=group.type or "Other failures",
        commands=(command_line("errors show", group.queue, group.id, options=("--over", chosen)),),
        values={
            "group": group,
            "row": _row(group, visit.now - span, span),
            "spans": list(SPANS),
            "chosen": chosen,
            "span": length(span),
            "sentence": _sentence(group),
            "breakdowns": [
                ("Jobs now", {_words(name): each for name, each in group.statuses.items()}),
                ("Kinds", group.kinds),
                ("Pods", group.pods),
                ("Versions of pods", group.pod_versions),
            ],
            "which": which,
            "dead": dead if visit.actor.access.allows("requeue_jobs") else 0,
            "other": OTHER,
        },
    )


def _span(visit: Visit) -> tuple[str, timedelta]:
    chosen = visit.parameter("over")
    chosen = chosen if chosen in SPANS else "1h"
    return chosen, SPANS[chosen]


def _words(status: str) -> str:
    return STATUS_WORD[JobStatus(status)]


def _sentence(group: ErrorView) -> str:
    """Say in a sentence what became of the jobs."""
    if not group.looked_at:
        return "None of the jobs is stored any more."
    well = group.statuses.get(JobStatus.DONE.value, 0)
    of = f"the newest {number(group.looked_at)}" if group.more else number(group.looked_at)
    noun = "job" if group.looked_at == 1 else "jobs"
    return f"{number(well)} of {of} {noun} succeeded on a retry."


def _row(group: ErrorGroup, since: datetime, span: timedelta) -> dict[str, object]:
    is_new = group.first_at >= since
    return {"group": group, "is_new": is_new, "curve": _curve(group, since, span / STEPS)}


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
