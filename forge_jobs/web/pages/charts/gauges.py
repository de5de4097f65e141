"""The charts of a pod: its gauges over time, and how long its kinds usually run."""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta

from forge_jobs.errors import InvalidInput
from forge_jobs.model.metrics import HOUR, MINUTE, PodMinute
from forge_jobs.model.processes import PodGauges
from forge_jobs.model.series import SeriesAsk
from forge_jobs.policy.percentiles import percentile
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.pages.charts.drawing import Chart, Line
from forge_jobs.web.pages.charts.figures import total
from forge_jobs.web.pages.charts.spans import Span, span_of

SPANS = ("1h", "6h")
"""Spans of the page of a pod. The store gives minutes of all pods together, so no longer ones."""

_DAY = timedelta(days=1)
_MOST_KINDS = 20
_MIB, _GIB = float(1 << 20), float(1 << 30)


def span_of_pod(over: str, now: datetime) -> Span:
    """Return the span that an address of a pod's page names.

    :raises InvalidInput: there is no such span
    """
    if over and over not in SPANS:
        raise InvalidInput("over", f"is {over[:40]!r}", f"give {' or '.join(SPANS)}")
    return span_of({"over": over}, now)


def gauge_charts(span: Span, minutes: Iterable[PodMinute]) -> list[Chart]:
    """Return the charts of the minutes of one pod. Of a step the greatest value counts."""
    by_step: dict[datetime, list[PodGauges]] = {}
    for each in minutes:
        at = each.minute - (each.minute - span.since) % span.step
        by_step.setdefault(at, []).append(each.gauges)

    def line(
        name: str, mark: str, value: Callable[[PodGauges], float], *, in_seconds: bool = False
    ) -> Line:
        values = [
            max(map(value, found)) if (found := by_step.get(at)) else None for at in span.times
        ]
        return Line(name=name, mark=mark, values=values, in_seconds=in_seconds)

    def chart(name: str, title: str, unit: str, *lines: Line) -> Chart:
        return Chart(
            name=name, title=title, unit=unit, times=span.times, until=span.until, lines=lines
        )

    return [
        chart(
            "cpu",
            "Processor and jobs",
            "percent of one core, and running jobs",
            line("cpu", "in", lambda each: each.cpu_percent),
            line("running", "good", lambda each: each.running),
        ),
        chart(
            "memory", "Memory", "MiB", line("memory", "in", lambda each: each.memory_bytes / _MIB)
        ),
        chart(
            "disk", "Disk free", "GiB", line("free", "in", lambda each: each.disk_free_bytes / _GIB)
        ),
        chart(
            "lag",
            "Loop lag and store calls",
            "how late the event loop turns, and the mean of a call",
            line("lag", "warn", lambda each: each.loop_lag_ms / 1000, in_seconds=True),
            line("call", "in", lambda each: each.store_latency_ms / 1000, in_seconds=True),
        ),
    ]


async def usual_runs(
    storage: Storage, now: datetime, kinds: Collection[tuple[str, str]]
) -> dict[tuple[str, str], float]:
    """Return the p95 of the runs of a day in seconds, by queue and kind, in one call."""
    some = sorted(kinds)[:_MOST_KINDS]
    if not some:
        return {}
    since = (now - _DAY).replace(minute=0, second=0, microsecond=0)
    asked = [
        SeriesAsk(since=since, until=now + MINUTE, step=HOUR, queue=queue, kind=kind)
        for queue, kind in some
    ]
    found: dict[tuple[str, str], float] = {}
    for of, steps in zip(some, await storage.jobs.many_series(asked), strict=True):
        longest = percentile(total(steps, lambda step: step.processing), 0.95)
        if longest is not None:
            found[of] = longest
    return found


def of_pod(minutes: Sequence[PodMinute], host_id: str) -> list[PodMinute]:
    """Return the minutes of one pod."""
    return [each for each in minutes if each.host_id == host_id]
