"""Overview, Queues and Pods as they were at an earlier minute, without any action."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from forge_jobs.errors import InvalidInput
from forge_jobs.model.metrics import HOUR
from forge_jobs.operating.access import Actor, Right
from forge_jobs.operating.past.pods import PodThen
from forge_jobs.operating.past.reading import QueueThen, Then, read_then
from forge_jobs.web.pages.board import ENDS, Row, with_flow, worst_first
from forge_jobs.web.pages.charts.over_time import over_time
from forge_jobs.web.pages.charts.spans import Span, around, span_of, text_of
from forge_jobs.web.pages.frame import Shown, Visit, link
from forge_jobs.web.pages.words import number

_SHOWN = 5


async def overview_then(visit: Visit, span: Span, at: datetime) -> Shown:
    """Show the Overview as the page was."""
    then = await read_then(visit.storage, at)
    problems = then.problems if visit.actor.access.has(Right.QUEUES) else ()
    over, _ = await over_time(visit, span)
    count = len(problems)
    noun = "1 thing was wrong" if count == 1 else f"{count} things were wrong"
    return _shown(
        visit,
        then,
        "Overview",
        noun if count else "No problem is known of that minute",
        problems=problems[:_SHOWN],
        more=max(count - _SHOWN, 0),
        rows=rows_then(then, visit.actor),
        **over,
    )


async def queues_then(visit: Visit) -> Shown:
    """Show the list of queues as the page was."""
    then = await read_then(visit.storage, _instant(visit))
    rows = rows_then(then, visit.actor)
    running, due = sum(row.running for row in rows), sum(row.due for row in rows)
    said = f"{len(rows)} queues: {number(running)} jobs ran, {number(due)} were due"
    return _shown(visit, then, "Queues", said, rows=rows)


async def pods_page_then(visit: Visit) -> Shown:
    """Show the list of pods as the page was."""
    then = await read_then(visit.storage, _instant(visit))
    pods = [_open(visit.actor, pod) for pod in then.pods]
    said = "1 pod lived" if len(pods) == 1 else f"{len(pods)} pods lived"
    return _shown(visit, then, "Pods", said, pods=pods)


def _instant(visit: Visit) -> datetime:
    at = span_of(visit.request.query_params, visit.now).at
    if at is None:
        raise InvalidInput("at", "is missing", "give an instant, such as 2026-11-20T03:10Z")
    return at


def _shown(visit: Visit, then: Then, title: str, headline: str, **values: Any) -> Shown:
    root = visit.request.scope.get("root_path", "")
    page = "" if title == "Overview" else title.lower()
    kept = {name: visit.parameter(name) for name in ("over", "compare") if visit.parameter(name)}
    steps = around(then.at, then.length)
    return Shown(
        template="past.html",
        title=f"{title} at {text_of(then.at)}",
        commands=(_command(then),),
        values={
            "headline": headline,
            "then": then,
            "is_hour": then.length == HOUR,
            "ways": [
                {"name": name, "href": link(root, page, at=text_of(at), **kept)}
                for name, at in steps.items()
                if at < visit.now
            ],
            "back": link(root, page, **kept),
            "others": [
                {"name": name, "href": link(root, path, at=text_of(then.at))}
                for name, path in (("Overview", ""), ("Queues", "queues"), ("Pods", "pods"))
                if name != title
            ],
            "unknown": then.unknown,
            "problems": (),
            "more": 0,
            "charts": None,
            "rows": None,
            "pods": None,
            **values,
        },
    )


def _command(then: Then) -> str:
    """Return the command that reads the flow of that minute or hour."""
    step = "1h" if then.length == HOUR else "1m"
    until = (then.at + then.length).isoformat()
    return f"forge-jobs series --over {step} --step {step} --until {until}"


def rows_then(then: Then, actor: Actor) -> list[Row]:
    """Return the queues that are open to an actor, the worst first."""
    return worst_first(
        [_row(queue, then.length) for queue in then.queues if actor.sees(queue.name)]
    )


def _row(queue: QueueThen, length: timedelta) -> Row:
    mark, standing = _standing(queue)
    row = Row(name=queue.name, mark=mark, standing=standing, is_known=queue.depth is not None)
    if queue.depth is not None:
        row = structs.replace(
            row,
            running=queue.depth.running,
            granted=queue.depth.granted,
            most=queue.depth.max_workers,
            due=queue.depth.due,
            oldest=queue.depth.oldest_due_for,
        )
    if queue.step is None:
        return row
    minutes = length.total_seconds() / 60
    row = with_flow(row, [queue.step])
    each = {name: count / minutes for name, count in _flow(queue).items()}
    return structs.replace(row, arrivals=each["in"], ends=each["out"], flow=None)


def _flow(queue: QueueThen) -> dict[str, int]:
    counts = queue.step.counts if queue.step else {}
    return {
        "in": counts.get("enqueued", 0),
        "out": sum(counts.get(end, 0) for end in ENDS),
    }


def _standing(queue: QueueThen) -> tuple[str, str]:
    if queue.depth is None:
        return "idle", "not known"
    if queue.paused_by:
        return "warn", f"paused by {queue.paused_by}"
    if queue.depth.due and queue.pods == 0 and not queue.depth.granted:
        return "bad", "unserved"
    return "good", "open"


def _open(actor: Actor, pod: PodThen) -> PodThen:
    """Return a pod, of the queues that are open to an actor."""
    if actor.access.has(Right.QUEUES):
        return pod
    queues: Sequence[str] = [name for name in pod.queues if actor.sees(name)]
    return structs.replace(pod, queues=tuple(queues), gauges=None)
