"""The life of a job as a strip of states, drawn by the server."""

from datetime import datetime
from typing import Any

from forge_jobs.operating.jobs.documents import Timeline
from forge_jobs.policy.timelines import Span, Stage
from forge_jobs.web.pages.words import length

_WIDTH = 1000.0
_MARKS: dict[Stage, str] = {
    "running": "runs",
    "retrying": "retry",
    "done": "done",
    "dead": "dead",
}
_ENDS = {"done", "dead", "cancelled"}
_END_WIDTH = 10.0


def strip_of(life: Timeline, now: datetime) -> list[dict[str, Any]]:
    """Return the states of a job as parts of a strip, and what operators did as flags."""
    spans = [span for span in life.spans if span.at <= now]
    if not spans:
        return []
    begin, is_over = spans[0].at, spans[-1].stage in _ENDS
    end = spans[-1].at if is_over else now
    whole = (end - begin).total_seconds()
    if whole <= 0:
        return []
    room = _WIDTH - _END_WIDTH if is_over else _WIDTH

    def place(at: datetime) -> float:
        return min(room, max(0.0, room * (at - begin).total_seconds() / whole))

    parts = []
    for span in spans:
        start, until = place(span.at), place(min(span.until or end, end))
        if span.until is None and is_over:
            start, until = room, _WIDTH
        parts.append(_part(_MARKS.get(span.stage, "waits"), start, until - start, said(span, now)))
    for deed in life.deeds:
        text = f"{deed.actor}: {deed.verb.replace('_', ' ')}"
        parts.append(_part("deed", place(deed.at), 3.0, text))
    return parts


def _part(mark: str, start: float, width: float, label: str) -> dict[str, Any]:
    return {
        "mark": mark,
        "start": f"{start:.1f}",
        "width": f"{max(width, 2.0):.1f}",
        "label": label,
    }


def said(span: Span, now: datetime) -> str:
    """Return a state in words, as "running, attempt 2, for 4 s"."""
    attempt = f", attempt {span.attempt}" if span.attempt else ""
    if span.stage in _ENDS and span.until is None:
        return span.stage
    return f"{span.stage}{attempt} for {length((span.until or now) - span.at)}"
