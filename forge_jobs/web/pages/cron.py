"""The pages of schedules: the list, and one schedule."""

import shlex
from collections.abc import Iterable
from typing import Any
from zoneinfo import ZoneInfo

from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.filters import JobFilter, JobSummary
from forge_jobs.model.jobs import JobStatus
from forge_jobs.operating.settings.documents import ScheduleView
from forge_jobs.web.pages.deeds import SCHEDULE_DEEDS, allowed
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.words import pretty

_FIRES = 5
_LISTED = 30
_THERE = "%a %Y-%m-%d %H:%M:%S %Z"


def mark(schedule: ScheduleView) -> str:
    """Return the class of the mark of a schedule."""
    if schedule.error or schedule.unreadable:
        return "bad"
    return "idle" if schedule.deleted else "warn" if schedule.paused else "good"


async def cron_page(visit: Visit) -> Shown:
    """Show all schedules, broken ones first, then by their next occurrence."""
    schedules = (await visit.operator.list_schedules()).schedules
    order = {"bad": 0, "good": 1, "warn": 2, "idle": 3}
    live = sum(not each.deleted for each in schedules)
    broken = sum(mark(each) == "bad" for each in schedules)
    noun = "schedule" if live == 1 else "schedules"
    said = f", {broken} broken" if broken else ""
    return Shown(
        template="cron.html",
        title="Cron",
        command="forge-jobs cron list",
        values={
            "schedules": sorted(
                schedules,
                key=lambda each: (order[mark(each)], each.next_at or visit.now, each.spec.name),
            ),
            "headline": f"{live} {noun}{said}",
            "mark": mark,
        },
    )


async def schedule_page(visit: Visit) -> Shown:
    """Show one schedule: next occurrences, rules, and the jobs that were made."""
    name = visit.name("name")
    found = {each.spec.name: each for each in (await visit.operator.list_schedules()).schedules}
    each = found.get(name)
    if each is None:
        raise NotFound(f"no schedule is named {name!r}")
    page = await visit.operator.list_jobs(JobFilter(schedule=name), limit=_LISTED)
    access = visit.actor.access
    return Shown(
        template="schedule.html",
        title=name,
        command=f"forge-jobs cron fires {shlex.quote(name)}",
        values={
            "each": each,
            "mark": mark,
            "deeds": allowed(access, SCHEDULE_DEEDS, _fitting(each)),
            "may_set": access.allows("set_schedule") and not each.deleted,
            "fires": await _fires(visit, each),
            "payload": pretty(each.spec.payload),
            "jobs": page.jobs,
            "history": history(page.jobs),
        },
    )


def _fitting(each: ScheduleView) -> list[str]:
    if each.deleted:
        return []
    return ["trigger_schedule", "resume_schedule" if each.paused else "pause_schedule",
            "delete_schedule"]  # fmt: skip


async def _fires(visit: Visit, each: ScheduleView) -> list[dict[str, Any]]:
    if each.deleted or each.next_at is None:
        return []
    try:
        fires = (await visit.operator.schedule_fires(each.spec.name, count=_FIRES)).fires
    except InvalidInput:
        return []
    zone = ZoneInfo(each.spec.timezone)
    found = []
    offset = visit.now.astimezone(zone).utcoffset()
    for at in fires:
        there = at.astimezone(zone)
        # The clocks of the zone are changed between this one and the one before.
        shifts = there.utcoffset() != offset
        offset = there.utcoffset()
        found.append({"at": at, "there": there.strftime(_THERE), "shifts": shifts})
    return found


def history(jobs: Iterable[JobSummary]) -> list[dict[str, str]]:
    """Return the newest jobs of a schedule as coloured bars, oldest first."""
    return [
        {"mark": _BARS.get(job.status, "skipped"), "title": job.status.value}
        for job in reversed(list(jobs))
    ]


_BARS = {JobStatus.DONE: "fired", JobStatus.DEAD: "bad", JobStatus.FAILED: "late"}
