"""The part of a page about time: its bar, its charts, and the marks of what happened."""

from collections.abc import Sequence
from typing import Any

from forge_jobs.operating.access import Right
from forge_jobs.operating.actions.documents import ActionView
from forge_jobs.web.pages.audit import sentence
from forge_jobs.web.pages.charts import figures
from forge_jobs.web.pages.charts.drawing import Chart
from forge_jobs.web.pages.charts.marks import Mark, marks_of, marks_of_events
from forge_jobs.web.pages.charts.spans import COMPARED, NAMED, Span, text_of
from forge_jobs.web.pages.frame import Visit, link

_GROUPS = 200
_ACTIONS = 100


async def over_time(
    visit: Visit, span: Span, queue: str = ""
) -> tuple[dict[str, Any], figures.Steps]:
    """Return the values of the templates, and the steps of the series.

    :param queue: one that is open to the caller. "" means the whole store
    """
    reading = await _reading(visit, span, queue)
    drawn = await _charts(visit, span, reading, queue)
    marks, actions = await _marks(visit, span, queue) if drawn else ([], ())
    values = {
        "charts": drawn,
        "marks": marks,
        "actions": actions,
        **_bar(visit, span, ("queues", queue) if queue else ("",)),
    }
    return values, reading[0] if reading else ()


async def _reading(visit: Visit, span: Span, queue: str) -> figures.Reading | None:
    """Read a series. None for that of the store and a caller who may not see all queues."""
    if not queue and not visit.actor.access.has(Right.QUEUES):
        return None
    return await figures.read(visit.storage, span, queue)


async def _charts(
    visit: Visit, span: Span, reading: figures.Reading | None, queue: str
) -> list[Chart]:
    if reading is None:
        return []
    found = await visit.storage.jobs.error_groups(
        span.since, span.until, queue=queue or None, step=span.step, limit=_GROUPS
    )
    return figures.charts(span, reading, found.groups)


async def _marks(visit: Visit, span: Span, queue: str) -> tuple[list[Mark], Sequence[ActionView]]:
    """Return the marks, and the newest actions."""
    events = (await visit.reader.fleet()).events
    actions = (await visit.operator.list_actions(limit=_ACTIONS)).actions
    did = [
        Mark(
            at=each.at,
            sort="action",
            text=f"{each.actor}: {sentence(each)}",
            path=f"/audit/{each.id}",
        )
        for each in actions
        if each.at is not None and (not queue or queue in (each.target, *each.queues))
    ]
    return marks_of(span, marks_of_events(events), did), actions


def _bar(visit: Visit, span: Span, page: Sequence[str]) -> dict[str, Any]:
    """Return the values of the time bar of a page."""
    root = visit.request.scope.get("root_path", "")
    kept = {key: value for key, value in span.query.items() if key in ("compare", "at")}
    chosen = {key: value for key, value in span.query.items() if key != "compare"}
    given = {key: value for key, value in span.query.items() if key not in ("since", "until")}
    return {
        "span": span,
        "here": link(root, *page),
        "zoomed": link(root, *page, **given),
        "spans": [
            {
                "name": name,
                "href": link(root, *page, over=name, **kept),
                "is_here": name == span.name,
            }
            for name in NAMED
        ],
        "compares": [
            {
                "name": name or "off",
                "href": link(root, *page, **chosen, compare=name),
                "is_here": name == span.compare,
            }
            for name in ("", *COMPARED)
        ],
        "at_text": text_of(span.at or visit.now).removesuffix("Z"),
    }
