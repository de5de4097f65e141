"""The first page: the verdict in a sentence, problems, charts, and the queues."""

from collections.abc import Sequence

from forge_jobs.errors import Forbidden
from forge_jobs.model.metrics import MINUTE
from forge_jobs.operating.access import Right
from forge_jobs.policy.judgement.problems.problem import Problem, Severity
from forge_jobs.web.pages.board import ENDS, Row, read_rows, with_objectives
from forge_jobs.web.pages.charts import figures
from forge_jobs.web.pages.charts.over_time import over_time
from forge_jobs.web.pages.charts.spans import span_of, text_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.glance import Glance
from forge_jobs.web.pages.judged import remedy_of
from forge_jobs.web.pages.past.views import overview_then
from forge_jobs.web.pages.words import NONE, length, number

_SHOWN = 5


async def overview_page(visit: Visit) -> Shown:
    """Show whether work flows, what is wrong, how it went over time, and the queues."""
    span = span_of(visit.request.query_params, visit.now)
    if span.at is not None:
        return await overview_then(visit, span, span.at)
    access = visit.actor.access
    rows = await read_rows(visit.reader, visit.actor)
    glance = await visit.judge.glance(visit.reader)
    rows = with_objectives(rows, glance.objectives)
    problems = await _problems(visit)
    sees_all = access.has(Right.QUEUES)
    ended = visit.judge.ended if sees_all else None
    over, steps = await over_time(visit, span)
    return Shown(
        template="overview.html",
        title="Overview",
        commands=("forge-jobs problems", "forge-jobs top --once", "forge-jobs series"),
        values={
            "headline": _headline(rows, problems, steps),
            "problems": [(each, remedy_of(each, access)) for each in problems[:_SHOWN]],
            "more": max(len(problems) - _SHOWN, 0),
            "rows": rows,
            "figures": _figures(visit, rows) + (_ahead(visit, glance) if sees_all else []),
            "last": ended,
            "before_end": text_of(ended.at - MINUTE) if ended else "",
            **over,
        },
    )


async def _problems(visit: Visit) -> Sequence[Problem]:
    """Return what is wrong, the worst first. Nothing for a caller who may not see all queues."""
    try:
        return await visit.problems()
    except Forbidden:
        return ()


def _figures(visit: Visit, rows: Sequence[Row]) -> list[dict[str, str]]:
    root = visit.request.scope.get("root_path", "")
    figures_ = (
        ("Due", sum(row.due for row in rows), "status:pending", "due"),
        ("Running", sum(row.running for row in rows), "status:in_progress", "running"),
        ("Retrying", sum(row.retrying or 0 for row in rows), "status:failed", "failed"),
    )
    return [
        {"name": name, "value": number(value), "href": link(root, "jobs", q=q), "live": live}
        for name, value, q, live in figures_
    ]


def _ahead(visit: Visit, glance: Glance) -> list[dict[str, str]]:
    """Return what lies ahead, and the dead against the usual number."""
    soon = next((job for job in glance.ahead if job.due_at > visit.now), None)
    usual = number(round(glance.usual)) if glance.usual >= 1 else "less than one"
    retries = number(glance.retries.number) + ("+" if glance.retries.is_more else "")
    return [
        {
            "name": "Retries within the hour",
            "value": retries,
            "href": link(visit.root, "jobs", q="status:failed due:>-1h"),
            "live": "",
        },
        {
            "name": "Scheduled next",
            "value": f"in {length(soon.due_at - visit.now)}" if soon else NONE,
            "note": soon.kind if soon else "",
            "href": link(visit.root, "jobs", q="status:pending due:<0s"),
            "live": "",
        },
        {
            "name": "Dead in 24 h",
            "value": number(glance.dead),
            "note": f"usually {usual}" if glance.usual else "usually none",
            "href": link(visit.root, "jobs", q="status:dead finished:<24h"),
            "mark": "bad" if glance.dead > 2 * glance.usual + 2 else "",
            "live": "",
        },
    ]


def _headline(rows: Sequence[Row], problems: Sequence[Problem], steps: figures.Steps) -> str:
    serious = [each for each in problems if each.severity is not Severity.NOTICE] or problems
    if problems:
        count = len(problems)
        noun = "1 thing needs you" if count == 1 else f"{count} things need you"
        said = "; ".join(each.evidence.split(". ")[0].rstrip(".") for each in serious[:2])
        return f"{noun}: {said}"
    if not rows:
        return "Ready. No queue is known yet"
    arrivals = figures.a_minute(steps, ("enqueued",))
    ends = figures.a_minute(steps, ENDS)
    running, due = sum(row.running for row in rows), sum(row.due for row in rows)
    if arrivals or ends:
        return f"Flowing: {number(arrivals)} jobs a minute in, {number(ends)} out"
    if not running and not due:
        return "Quiet. Nothing is due and nothing runs"
    return f"Flowing. {number(running)} jobs run, {number(due)} are due"
