"""Charts: lines over the same steps of time, as paths for SVG and as numbers for a table."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from forge_jobs.web.pages.charts.paths import path_of
from forge_jobs.web.pages.words import length, number

HEIGHT = 240
"""The height of a drawing, whose width is its steps. The page stretches the box."""

_LENGTHS = (2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400)
"""Round lengths of time, in seconds."""

Values = Sequence[float | None]


class Line(Struct, frozen=True, kw_only=True):
    """A line of a chart.

    :param name: for the legend
    :param mark: the class of the line in the stylesheet
    :param values: by step. None where nothing is known
    :param before: by step, of the span with which this one is compared
    :param in_seconds: the line has a scale of seconds, else one of jobs
    """

    name: str
    mark: str
    values: Values
    before: Values = ()
    in_seconds: bool = False

    def said(self, value: float | None) -> str:
        """Return a value for people."""
        return length(value) if self.in_seconds else number(value and round(value, 1))

    @property
    def newest(self) -> str:
        """The last value that is known, for people."""
        known = [each for each in self.values if each is not None]
        return self.said(known[-1] if known else None)


class Chart(Struct, frozen=True, kw_only=True):
    """A chart.

    :param unit: what the numbers are
    :param times: begins of the steps
    :param until: end of the last step
    """

    name: str
    title: str
    unit: str
    times: Sequence[datetime]
    until: datetime
    lines: Sequence[Line]

    @property
    def is_empty(self) -> bool:
        """True when no line has a value."""
        return not any(value for line in self.lines for value in (*line.values, *line.before))

    def top(self, in_seconds: bool) -> float:
        """Return the upper end of a scale."""
        values = (
            value or 0.0
            for line in self.lines
            if line.in_seconds == in_seconds
            for value in (*line.values, *line.before)
        )
        return _round_up(max(values, default=0.0), in_seconds)

    def path(self, line: Line, *, before: bool = False) -> str:
        """Return the path of a line."""
        values = line.before if before else line.values
        top = self.top(line.in_seconds)
        return path_of(
            [None if value is None else round(HEIGHT * (1 - value / top)) for value in values]
        )

    @property
    def step(self) -> timedelta:
        """The length of a step. The steps are as long as each other, the last may be cut."""
        return (self.times[1] if len(self.times) > 1 else self.until) - self.times[0]

    @property
    def width(self) -> float:
        """The width of the box: how many steps there are."""
        return self.place(self.until)

    def place(self, at: datetime) -> float:
        """Return how far to the right an instant is, in the box."""
        return round((at - self.times[0]) / self.step, 2)

    @property
    def scales(self) -> list[str]:
        """The upper ends of the scales for people, that of jobs first."""
        kinds = sorted({line.in_seconds for line in self.lines})
        return [length(self.top(kind)) if kind else number(self.top(kind)) for kind in kinds]

    @property
    def rows(self) -> list[tuple[datetime, list[str]]]:
        """The table behind the chart, newest first."""
        return [
            (at, [line.said(line.values[index]) for line in self.lines])
            for index, at in reversed(list(enumerate(self.times)))
        ]

    @property
    def points(self) -> str:
        """The numbers for a script that draws the chart again, as JSON."""
        document = {
            "unit": self.unit,
            "begin": int(self.times[0].timestamp()),
            "step": int(self.step.total_seconds()),
            "lines": [
                {
                    "name": line.name,
                    "mark": line.mark,
                    "seconds": line.in_seconds,
                    "values": _rounded(line.values),
                    "before": _rounded(line.before),
                }
                for line in self.lines
            ],
        }
        return msgspec.json.encode(document).decode()

    @property
    def ticks(self) -> list[str]:
        """Times below the chart, UTC: first, middle, last."""
        begin, span = self.times[0], self.until - self.times[0]
        form = "%H:%M" if span <= timedelta(days=1) else "%d %b %H:%M"
        moments = (begin, begin + span / 2, self.until)
        return [each.astimezone(UTC).strftime(form) for each in moments]


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    """Return the values with four digits. Whole ones are written without ".0", which a page with
    2,000 of them would send."""
    shorter = (None if value is None else float(f"{value:.4g}") for value in values)
    return [int(value) if value is not None and value.is_integer() else value for value in shorter]


def _round_up(value: float, in_seconds: bool) -> float:
    """Return the next round number: 1, 2, 5, 10 and so on, of times up to a day in their units."""
    if in_seconds and 1 < value <= _LENGTHS[-1]:
        return next(each for each in _LENGTHS if each >= value)
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next((power * part for part in (1, 2, 5) if power * part >= value), power * 10)
