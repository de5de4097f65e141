"""The span of time that a page shows, as its address says."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from forge_jobs.errors import InvalidInput
from forge_jobs.model.metrics import HOUR, MINUTE

NAMED = {
    "5m": timedelta(minutes=5),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
"""The spans of the time bar."""

COMPARED = {"day": timedelta(days=1), "week": timedelta(days=7)}
"""How long before a span the one lies with which the span is compared."""

_STEPS = tuple(map(MINUTE.__mul__, (1, 2, 5, 15, 30, 60, 120, 240, 480, 720, 1440, 7200)))
_POINTS = 96
"""Points of a line at most. With these a page stays small."""

_DEFAULT = "1h"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIX = "give an instant, such as 2026-11-20T03:10Z"


class Span(Struct, frozen=True, kw_only=True):
    """A span of time in steps.

    :param name: of the time bar. "" for a span that was chosen in a chart
    :param since: begin of the first step
    :param until: end of the span
    :param at: the minute that is looked back at. None means now
    :param compare: a name in ``COMPARED``, "" for none
    """

    name: str
    since: datetime
    until: datetime
    step: timedelta
    at: datetime | None = None
    compare: str = ""

    @property
    def times(self) -> list[datetime]:
        """The begins of the steps."""
        count = -(-(self.until - self.since) // self.step)
        return [self.since + index * self.step for index in range(count)]

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the address that stand for the span."""
        chosen = {"over": self.name} if self.name != _DEFAULT else {}
        if not self.name:
            chosen = {"since": text_of(self.since), "until": text_of(self.until)}
        if self.at is not None:
            chosen["at"] = text_of(self.at)
        return chosen | ({"compare": self.compare} if self.compare else {})


def span_of(given: Mapping[str, str], now: datetime) -> Span:
    """Return the span of an address.

    :raises InvalidInput: a parameter is wrong
    """
    at = _instant("at", given.get("at", ""))
    if at is not None:
        at = _floored(min(at, now), MINUTE)
    compare = given.get("compare", "")
    if compare not in ("", *COMPARED):
        raise InvalidInput("compare", f"is {compare[:40]!r}", f"give {' or '.join(COMPARED)}")
    since, until = (
        _instant("since", given.get("since", "")),
        _instant("until", given.get("until", "")),
    )
    if since is not None and until is not None and since < until:
        until = min(until, now)
        since = min(max(since, until - timedelta(days=400)), until - MINUTE)
        return _span("", since, until, at, compare)
    name = given.get("over", "") or _DEFAULT
    if name not in NAMED:
        raise InvalidInput("over", f"is {name[:40]!r}", f"give one of {', '.join(NAMED)}")
    end = now if at is None else at + MINUTE
    return _span(name, end - NAMED[name], end, at, compare)


def _span(name: str, since: datetime, until: datetime, at: datetime | None, compare: str) -> Span:
    step = next((each for each in _STEPS if (until - since) / each <= _POINTS), _STEPS[-1])
    return Span(
        name=name,
        since=_floored(since, step) + (step if name else timedelta(0)),
        until=until,
        step=step,
        at=at,
        compare=compare,
    )


def around(at: datetime, length: timedelta) -> dict[str, datetime]:
    """Return instants beside a minute, or beside an hour, to go to."""
    if length == HOUR:
        return {"a day earlier": at - 24 * HOUR, "an hour earlier": at - HOUR,
                "an hour later": at + HOUR, "a day later": at + 24 * HOUR}  # fmt: skip
    return {"an hour earlier": at - HOUR, "a minute earlier": at - MINUTE,
            "a minute later": at + MINUTE, "an hour later": at + HOUR}  # fmt: skip


def text_of(at: datetime) -> str:
    """Return an instant for an address, in whole minutes."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%MZ")


def _floored(at: datetime, step: timedelta) -> datetime:
    return at - (at - _EPOCH) % step


def _instant(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        # A field of a form for an instant sends no zone, and means UTC here.
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        inside = _EPOCH + timedelta(days=500) < at < datetime(9000, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        inside = False
    if not inside:
        raise InvalidInput(name, f"is {text[:40]!r}", _FIX)
    return at
