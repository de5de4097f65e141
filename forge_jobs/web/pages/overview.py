"""The first page: the verdict in a sentence, problems, charts, and the queues."""

from collections.abc import Sequence

from forge_jobs.errors import Forbidden
from forge_jobs.policy.judgement.problems.problem import Problem, Severity
from forge_jobs.web.pages.board import ENDS, Row, read_rows
from forge_jobs.web.pages.charts import figures
from forge_jobs.web.pages.charts.over_time import over_time
from forge_jobs.web.pages.charts.spans import span_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.judged import remedy_of
from forge_jobs.web.pages.past.views import overview_then
from forge_jobs.web.pages.words import number

_SHOWN = 5


async def overview_page(visit: Visit) -> Shown:
    """Show whether work flows, what is wrong, how it went over time, and the queues."""
    span = span_of(visit.request.query_params, visit.now)
    if span.at is not None:
        return await overview_then(visit, span, span.at)
    rows = await read_rows(visit.storage, visit.actor, visit.now)
    problems = await _problems(visit)
    over, steps = await over_time(visit, span)
    return Shown(
        template="overview.html",
        title="Overview",
        command="forge-jobs problems",
        values={
            "headline": _headline(rows, problems, steps),
            "problems": [(each, remedy_of(each, visit.actor.access)) for each in problems[:_SHOWN]],
            "more": max(len(problems) - _SHOWN, 0),
            "rows": rows,
            "figures": _figures(visit, rows),
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
