"""The first page: the verdict in a sentence, problems, charts, and the queues."""

from collections.abc import Sequence
from typing import Any

from forge_jobs.errors import Forbidden
from forge_jobs.operating.access import Right
from forge_jobs.policy.judgement.problems.problem import Problem, Severity
from forge_jobs.web.pages.audit import sentence
from forge_jobs.web.pages.board import ENDS, Row, read_rows
from forge_jobs.web.pages.charts import figures
from forge_jobs.web.pages.charts.drawing import Chart
from forge_jobs.web.pages.charts.marks import Mark, marks_of, marks_of_events
from forge_jobs.web.pages.charts.spans import COMPARED, NAMED, Span, span_of, text_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.judged import remedy_of
from forge_jobs.web.pages.words import number

_SHOWN = 5
_EVENTS = 1_000
_GROUPS = 200
_ACTIONS = 100


async def overview_page(visit: Visit) -> Shown:
    """Show whether work flows, what is wrong, how it went over time, and the queues."""
    span = span_of(visit.request.query_params, visit.now)
    rows = await read_rows(visit.storage, visit.actor, visit.now)
    problems = await _problems(visit)
    reading = await _reading(visit, span)
    drawn = await _charts(visit, span, reading)
    return Shown(
        template="overview.html",
        title="Overview",
        command="forge-jobs problems",
        values={
            "headline": _headline(rows, problems, reading[0] if reading else ()),
            "problems": [(each, remedy_of(each, visit.actor.access)) for each in problems[:_SHOWN]],
            "more": max(len(problems) - _SHOWN, 0),
            "rows": rows,
            "figures": _figures(visit, rows),
            "charts": drawn,
            **bar(visit, span, ""),
            "marks": await _marks(visit, span) if drawn else [],
        },
    )


async def _problems(visit: Visit) -> Sequence[Problem]:
    """Return what is wrong, the worst first. Nothing for a caller who may not see all queues."""
    try:
        return await visit.problems()
    except Forbidden:
        return ()


async def _reading(visit: Visit, span: Span) -> figures.Reading | None:
    """Read the series of the whole store. None for a caller who may not see all queues."""
    if not visit.actor.access.has(Right.QUEUES):
        return None
    return await figures.read(visit.storage, span)


async def _charts(visit: Visit, span: Span, reading: figures.Reading | None) -> list[Chart]:
    if reading is None:
        return []
    found = await visit.storage.jobs.error_groups(
        span.since, span.until, step=span.step, limit=_GROUPS
    )
    return figures.charts(span, reading, found.groups)


async def _marks(visit: Visit, span: Span) -> list[Mark]:
    events = await visit.storage.jobs.events(queue="", limit=_EVENTS)
    actions = (await visit.operator.list_actions(limit=_ACTIONS)).actions
    did = [
        Mark(
            at=each.at,
            sort="action",
            text=f"{each.actor}: {sentence(each)}",
            path=f"/audit/{each.id}",
        )
        for each in actions
        if each.at is not None
    ]
    return marks_of(span, marks_of_events(events), did)


def bar(visit: Visit, span: Span, page: str) -> dict[str, Any]:
    """Return the values of the time bar of a page."""
    root = visit.request.scope.get("root_path", "")
    kept = {key: value for key, value in span.query.items() if key in ("compare", "at")}
    chosen = {key: value for key, value in span.query.items() if key != "compare"}
    given = {key: value for key, value in span.query.items() if key not in ("since", "until")}
    return {
        "span": span,
        "here": link(root, page),
        "zoomed": link(root, page, **given),
        "spans": [
            {
                "name": name,
                "href": link(root, page, over=name, **kept),
                "is_here": name == span.name,
            }
            for name in NAMED
        ],
        "compares": [
            {
                "name": name or "off",
                "href": link(root, page, **chosen, compare=name),
                "is_here": name == span.compare,
            }
            for name in ("", *COMPARED)
        ],
        "at_text": text_of(span.at or visit.now).removesuffix("Z"),
    }


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
