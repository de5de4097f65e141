"""Cron expressions and instants, as Hypothesis draws them."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

BERLIN = "Europe/Berlin"
NEW_YORK = "America/New_York"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ranges = st.tuples(number, number).filter(lambda ends: ends[0] < ends[1])
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.integers(1, high - low).map(lambda step: f"*/{step}"),
        ranges.map(lambda ends: f"{ends[0]}-{ends[1]}"),
        st.tuples(ranges, st.integers(1, 5)).map(
            lambda both: f"{both[0][0]}-{both[0][1]}/{min(both[1], high - low)}"
        ),
        st.lists(number, min_size=2, max_size=4).map(lambda few: ",".join(map(str, few))),
    )


EXPRESSIONS = st.tuples(
    _field(0, 59), _field(0, 23) | _field(0, 4), _field(1, 28), _field(1, 12), _field(0, 6)
).map(" ".join)
CLOCK_CHANGES = [
    utc(text) for text in ("2026-03-08", "2026-03-29", "2026-10-25", "2026-11-01", "2028-02-29")
]
INSTANTS = st.one_of(
    st.builds(
        lambda change, minutes: change + timedelta(minutes=minutes),
        st.sampled_from(CLOCK_CHANGES),
        st.integers(-720, 720),
    ),
    st.integers(0, 5_000_000).map(lambda minutes: utc("2020-01-01") + timedelta(minutes=minutes)),
)
ZONES = st.sampled_from(["UTC", BERLIN, NEW_YORK])
