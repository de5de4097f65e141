"""The pages of schedules: the list, and one schedule."""

from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.names import command_line
from forge_jobs.operating.access import Right
from forge_jobs.operating.settings.documents import ScheduleView
from forge_jobs.web.pages.cron.occurrences import FIRES, Times, bar, histories, times_of
from forge_jobs.web.pages.cron.phrases import phrase
from forge_jobs.web.pages.deeds import SCHEDULE_DEEDS, allowed
from forge_jobs.web.pages.frame import Shown, Visit
from forge_jobs.web.pages.words import pretty, term

_LISTED = 30


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
    listed = sorted(
        schedules, key=lambda each: (order[mark(each)], each.next_at or visit.now, each.spec.name)
    )
    return Shown(
        template="cron.html",
        title="Cron",
        commands=("forge-jobs cron list",),
        values={
            "schedules": listed,
            "histories": await histories(visit, listed),
            "headline": f"{live} {noun}{said}",
            "mark": mark,
            "phrase": lambda each: "" if mark(each) == "bad" else phrase(each.spec.expression),
        },
    )


async def schedule_page(visit: Visit) -> Shown:
    """Show one schedule: next occurrences, rules, and the jobs that were made.

    With a text in the address, show what that text would mean. ``part=times`` is that alone, for
    a script.
    """
    name = visit.name("name")
    if visit.parameter("part") == "times":
        visit.actor.need(Right.READ)
        return Shown(template="times.html", title=name, values={"times": _draft(visit)})
    found = {each.spec.name: each for each in (await visit.operator.list_schedules()).schedules}
    each = found.get(name)
    if each is None:
        raise NotFound(f"no schedule is named {name!r}; forge-jobs cron list names all")
    page = await visit.operator.list_jobs(JobFilter(schedule=name), limit=_LISTED)
    access = visit.actor.access
    is_draft = bool(visit.parameter("expression"))
    times = _draft(visit) if is_draft else await _times(visit, each)
    return Shown(
        template="schedule.html",
        title=name,
        commands=(
            command_line("cron fires", name),
            command_line("jobs list", options=("--where", term("schedule", name))),
        ),
        values={
            "each": each,
            "mark": mark,
            "deeds": allowed(access, SCHEDULE_DEEDS, _fitting(each)),
            "may_set": access.allows("set_schedule") and not each.deleted,
            "is_draft": is_draft,
            "times": times,
            "stored": "" if mark(each) == "bad" else phrase(each.spec.expression),
            "payload": pretty(each.spec.payload),
            "jobs": page.jobs,
            "history": [bar(job.status) for job in reversed(page.jobs)],
        },
    )


def _draft(visit: Visit) -> Times:
    """Return what the text of the address means."""
    expression, timezone = visit.parameter("expression"), visit.parameter("timezone") or "UTC"
    return times_of(expression.strip(), timezone.strip(), visit.now)


async def _times(visit: Visit, each: ScheduleView) -> Times:
    spec = each.spec
    if each.deleted or each.next_at is None:
        return Times(expression=spec.expression, timezone=spec.timezone)
    try:
        fires = (await visit.operator.schedule_fires(spec.name, count=FIRES)).fires
    except InvalidInput:
        return Times(expression=spec.expression, timezone=spec.timezone)
    return times_of(spec.expression, spec.timezone, visit.now, fires)


def _fitting(each: ScheduleView) -> list[str]:
    if each.deleted:
        return []
    return ["trigger_schedule", "resume_schedule" if each.paused else "pause_schedule",
            "delete_schedule"]  # fmt: skip
