"""The charts of the Overview, from the series of a queue or of the whole store."""

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from forge_jobs.model.failures import ErrorGroup
from forge_jobs.model.metrics import MINUTE, Histogram
from forge_jobs.model.series import SeriesAsk, SeriesStep
from forge_jobs.policy.percentiles import add, percentile
from forge_jobs.storage.protocols import Storage
from forge_jobs.web.pages.charts.drawing import Chart, Line
from forge_jobs.web.pages.charts.spans import COMPARED, Span

_FAILED = ("failed", "timed_out", "crashed", "rejected")
_FLOW: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "in": ("in", ("enqueued",)),
    "started": ("started", ("claimed",)),
    "done": ("good", ("succeeded",)),
    "failed": ("warn", _FAILED),
    "cancelled": ("idle", ("cancelled",)),
}
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_ROLLED_UP_WITHIN = 2 * MINUTE
"""Counts of a minute are there so long after its end."""

Steps = Sequence[SeriesStep]
Reading = tuple[Steps, Steps]


async def read(storage: Storage, span: Span, queue: str = "") -> Reading:
    """Read a series over a span, and over the one before, in one call.

    :param queue: "" means the whole store
    """
    until = span.until + MINUTE
    before = COMPARED.get(span.compare, timedelta(0))
    if before and span.until - span.since >= before:
        found = await storage.jobs.series(span.since - before, until, step=span.step, queue=queue)
        return found, found
    asked = [SeriesAsk(since=span.since, until=until, step=span.step, queue=queue)]
    if before:
        first, last = span.since - before, span.until - before
        asked.append(SeriesAsk(since=first, until=last, step=span.step, queue=queue))
    now, *earlier = await storage.jobs.many_series(asked)
    return now, earlier[0] if earlier else ()


def charts(span: Span, reading: Reading, groups: Iterable[ErrorGroup] = ()) -> list[Chart]:
    """Return the three charts: flow, delay and run, depth and oldest age.

    :param groups: failures with counts in the steps of the span
    """
    dead: Counter[datetime] = Counter()
    for group in groups:
        for count in group.counts:
            dead[count.at] += count.dead
    drawing = _Drawing(span, reading)
    flow = [
        drawing.line(name, mark, functools.partial(_rate, span, names))
        for name, (mark, names) in _FLOW.items()
    ]
    flow.append(Line(name="dead", mark="bad", values=_per_minute(span, dead)))
    times = [
        drawing.line(f"{what} {name}", f"{what} {name}", _quantile(what, q), in_seconds=True)
        for what in ("delay", "run")
        for name, q in _QUANTILES.items()
    ]
    depth = [
        drawing.line("due", "in", _due),
        drawing.line("oldest", "warn", _oldest, in_seconds=True),
    ]
    return [
        drawing.chart("flow", "Flow", "jobs a minute", flow),
        drawing.chart("times", "Delay and run", "from due to start, and from start to end", times),
        drawing.chart(
            "depth", "Depth and oldest", "jobs that are due, and the oldest's age", depth
        ),
    ]


class _Drawing:
    """Puts what a series says into the steps of a span."""

    def __init__(self, span: Span, reading: Reading) -> None:
        self._span, self._times = span, span.times
        before = COMPARED.get(span.compare, timedelta(0))
        self._now = _by_place(reading[0], span, timedelta(0))
        self._before = _by_place(reading[1], span, before) if before else None

    def line(
        self,
        name: str,
        mark: str,
        value: Callable[[SeriesStep], float | None],
        *,
        in_seconds: bool = False,
    ) -> Line:
        """Return a line of values of the steps."""
        return Line(
            name=name,
            mark=mark,
            values=self._values(self._now, value),
            before=() if self._before is None else self._values(self._before, value),
            in_seconds=in_seconds,
        )

    def chart(self, name: str, title: str, unit: str, lines: Sequence[Line]) -> Chart:
        """Return a chart of lines."""
        return Chart(
            name=name,
            title=title,
            unit=unit,
            times=self._times,
            until=self._span.until,
            lines=lines,
        )

    def _values(
        self, found: Mapping[datetime, SeriesStep], value: Callable[[SeriesStep], float | None]
    ) -> list[float | None]:
        return [value(found.get(at) or _nothing(at, self._span)) for at in self._times]


def _by_place(steps: Steps, span: Span, shift: timedelta) -> dict[datetime, SeriesStep]:
    """Return the steps by the begins of those of the span. An hour fills all that it covers."""
    found: dict[datetime, SeriesStep] = {}
    for each in steps:
        at = each.at + shift
        first = at - (at - span.since) % span.step
        for index in range(max(each.length // span.step, 1)):
            found.setdefault(first + index * span.step, each)
    return found


def _nothing(at: datetime, span: Span) -> SeriesStep:
    return SeriesStep(at=at, length=span.step)


def _rate(span: Span, names: Iterable[str], step: SeriesStep) -> float | None:
    """Return the jobs a minute of a step. None while the counts of the step are not there yet."""
    counted = min(step.at + step.length, span.until) - step.at
    if counted <= timedelta(0):
        # A step of the span before.
        counted = step.length
    is_newest = step.at <= span.until < step.at + step.length + _ROLLED_UP_WITHIN
    if is_newest and not step.counts:
        return None
    return sum(step.counts.get(name, 0) for name in names) / max(counted / MINUTE, 1.0)


def _per_minute(span: Span, counts: Mapping[datetime, int]) -> list[float | None]:
    return [counts.get(at, 0) / (span.step / MINUTE) for at in span.times]


def _quantile(what: str, q: float) -> Callable[[SeriesStep], float | None]:
    def value(step: SeriesStep) -> float | None:
        return percentile(step.delay if what == "delay" else step.processing, q)

    return value


def _due(step: SeriesStep) -> float | None:
    return None if step.depth is None else step.depth.due


def _oldest(step: SeriesStep) -> float | None:
    if step.depth is None:
        return None
    age = step.depth.oldest_due_for
    return age.total_seconds() if age else 0.0


def a_minute(steps: Steps, names: Iterable[str], minutes: int = 5) -> float | None:
    """Return how many were counted a minute, over the last minutes that are rolled up.

    None where nothing is counted yet.
    """
    counted = [step for step in steps if step.counts]
    if not counted:
        return None
    newest = counted[-1].at
    within = [step for step in counted if step.at > newest - minutes * MINUTE]
    return sum(step.counts.get(name, 0) for step in within for name in names) / minutes


def total(steps: Steps, what: Callable[[SeriesStep], Histogram]) -> Histogram:
    """Return the sum of a histogram of the steps."""
    found = Histogram({})
    for step in steps:
        found = add(found, what(step))
    return found
