"""Marks of charts: deploys, leaders, and what operators did."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from forge_jobs.model.events import EventKind, TimelineEvent, pod_note
from forge_jobs.web.pages.charts.spans import Span

SHOWN = 12
"""Marks of a page: the newest."""


class Mark(Struct, frozen=True, kw_only=True):
    """A mark.

    :param sort: ``deploy``, ``leader``, ``pods`` or ``action``
    :param path: of the page that tells more, below the dashboard's root
    """

    at: datetime
    sort: str
    text: str
    path: str = ""


def marks_of(span: Span, *sources: Iterable[Mark]) -> list[Mark]:
    """Return the marks within a span, newest first, no more than can be read."""
    found = [mark for each in sources for mark in each if span.since <= mark.at <= span.until]
    return sorted(found, key=lambda mark: mark.at, reverse=True)[:SHOWN]


def marks_of_events(events: Sequence[TimelineEvent]) -> list[Mark]:
    """Return the marks of what pods and leaders did.

    A deploy is the first start of a version among the events.

    :param events: of the fleet, newest first
    """
    found = []
    versions: set[str] = set()
    for event in reversed(events):
        if event.kind is EventKind.POD_STARTED:
            version = pod_note(event.detail).version
            if version and version not in versions:
                versions.add(version)
                found.append(
                    Mark(at=event.at, sort="deploy", text=f"deploy {version}", path="/pods")
                )
        elif event.kind is EventKind.POD_LOST:
            found.append(Mark(at=event.at, sort="pods", text="a pod was lost", path="/pods"))
        elif event.kind is EventKind.LEADER:
            found.append(Mark(at=event.at, sort="leader", text="new leader", path="/pods"))
    return found
