"""Cron expressions: accepted forms, occurrences, and the effects of clock changes."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import assume, example, given
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput
from forge_jobs.policy.cron import parse_cron
from tests.support.cron_expressions import BERLIN, EXPRESSIONS, INSTANTS, NEW_YORK, ZONES, utc

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def upcoming(expression: str, after: str, count: int, timezone: str = "UTC") -> list[str]:
    """Return the next occurrences after a UTC time, as local wall time with its offset."""
    parsed = parse_cron(expression, timezone)
    found: list[str] = []
    instant: datetime | None = utc(after)
    while len(found) < count and instant is not None:
        instant = parsed.next_after(instant)
        if instant is not None:
            found.append(instant.astimezone(ZoneInfo(timezone)).isoformat(" ", "minutes"))
    return found


class TestParsing:
    @pytest.mark.parametrize(
        "expression",
        [
            "",
            "* * * *",
            "* * * * * * *",
            "a b c d e",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "*/90 * * * *",
            "1,,2 * * * *",
            "1-1 * * * *",
            "5-1 * * * *",
            "* 22-6 * * *",
            "* * * * fri-mon",
            "* * * mar-mar *",
            "10-5/2 * * * *",
            "* * * * * 7-7",
            "0 0 31 2 *",
            "0 0 30 2 *",
            "r * * * *",
            "R(0-10) * * * *",
            "h * * * *",
            "h/5 * * * *",
            "@reboot",
            "@sometimes",
            "@every",
            "@every 0s",
            "@every -5s",
            "@every 90",
            "@every 1.5h",
            "@every 367d",
            "@every 99999999999999999999d",
            "TZ=UTC * * * * *",
            "* * * * * *\x00",
            "0 0 l-3 * *",
            "1," * 500 + "1 * * * *",
        ],
    )
    def test_a_bad_expression_is_refused_and_the_error_names_the_field(
        self, expression: str
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            parse_cron(expression, "UTC")

        assert refused.value.field == "expression"
        assert refused.value.fix

    @pytest.mark.parametrize(
        "timezone", ["", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "Europe", "a\x00b"]
    )
    def test_an_unknown_time_zone_is_refused_and_the_error_names_the_field(
        self, timezone: str
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            parse_cron("* * * * *", timezone)

        assert refused.value.field == "timezone"

    @given(st.text(max_size=30) | st.from_regex(r"[0-9*,/\-a-zL#? @]{1,25}", fullmatch=True))
    def test_any_text_is_parsed_or_refused(self, text: str) -> None:
        try:
            parsed = parse_cron(text, "UTC")
        except InvalidInput:
            return
        parsed.next_after(utc("2026-01-01"))

    def test_case_and_blanks_do_not_matter(self) -> None:
        assert upcoming("  0  12 * JAN  MON ", "2026-01-01", 1) == ["2026-01-05 12:00+00:00"]

    def test_an_expression_is_parsed_once(self) -> None:
        assert parse_cron("7 7 * * *", BERLIN) is parse_cron("7 7 * * *", BERLIN)

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("@hourly", "2026-05-07 11:00+00:00"),
            ("@daily", "2026-05-08 00:00+00:00"),
            ("@midnight", "2026-05-08 00:00+00:00"),
            ("@weekly", "2026-05-10 00:00+00:00"),
            ("@monthly", "2026-06-01 00:00+00:00"),
            ("@yearly", "2027-01-01 00:00+00:00"),
            ("@annually", "2027-01-01 00:00+00:00"),
            ("@every 1h30m", "2026-05-07 10:30+00:00"),
            ("@EVERY 90m", "2026-05-07 10:30+00:00"),
            ("@every 1d", "2026-05-08 00:00+00:00"),
        ],
    )
    def test_nicknames_stand_for_the_usual_times(self, expression: str, expected: str) -> None:
        assert upcoming(expression, "2026-05-07 10:10", 1) == [expected]


class TestNextAfter:
    def test_the_sixth_field_is_seconds(self) -> None:
        parsed = parse_cron("30 8 * * * 15", "UTC")

        assert parsed.next_after(utc("2026-01-01")) == utc("2026-01-01T08:30:15")

    def test_an_occurrence_is_strictly_later_than_the_instant(self) -> None:
        parsed = parse_cron("0 12 * * *", "UTC")
        noon = utc("2026-01-01T12:00")

        assert parsed.next_after(noon - timedelta(microseconds=1)) == noon
        assert parsed.next_after(noon) == noon + DAY
        assert parsed.next_after(noon + timedelta(microseconds=1)) == noon + DAY

    def test_the_29th_of_february_comes_in_leap_years_only(self) -> None:
        assert upcoming("0 0 29 2 *", "2026-01-01", 3) == [
            "2028-02-29 00:00+00:00",
            "2032-02-29 00:00+00:00",
            "2036-02-29 00:00+00:00",
        ]

    def test_the_29th_of_february_waits_eight_years_around_2100(self) -> None:
        assert upcoming("0 0 29 2 *", "2097-01-01", 1) == ["2104-02-29 00:00+00:00"]

    def test_the_31st_comes_in_long_months_only(self) -> None:
        days = [text[5:10] for text in upcoming("0 0 31 * *", "2026-01-01", 7)]

        assert days == ["01-31", "03-31", "05-31", "07-31", "08-31", "10-31", "12-31"]

    def test_the_last_day_of_the_month_can_be_asked_for(self) -> None:
        days = [text[5:10] for text in upcoming("0 0 l * *", "2026-01-01", 3)]

        assert days == ["01-31", "02-28", "03-31"]

    def test_days_of_month_and_week_are_alternatives(self) -> None:
        days = [text[8:10] for text in upcoming("0 0 1,15 * mon", "2026-06-01", 4)]

        assert days == ["08", "15", "22", "29"]

    def test_a_starred_day_of_week_restricts_the_day_of_month(self) -> None:
        assert upcoming("0 0 10 * */1", "2026-06-01", 1) == ["2026-06-10 00:00+00:00"]

    def test_a_date_that_never_comes_beside_a_day_of_week_is_fine(self) -> None:
        assert upcoming("0 0 31 4 fri", "2026-01-01", 1) == ["2026-04-03 00:00+00:00"]

    def test_there_is_none_after_the_end_of_time(self) -> None:
        end = datetime.max.replace(tzinfo=UTC)

        assert parse_cron("@every 1h", "UTC").next_after(end) is None
        assert parse_cron("* * * * *", "UTC").next_after(end - HOUR * 24 * 400) is not None
        assert parse_cron("0 0 1 1 *", "UTC").next_after(end) is None

    def test_an_interval_is_aligned_to_the_epoch(self) -> None:
        parsed = parse_cron("@every 7s", "UTC")

        starts = [utc("2026-01-01"), utc("2026-01-01 00:00:03")]
        found = [parsed.next_after(start) for start in starts]

        assert all(each is not None and each.timestamp() % 7 == 0 for each in found)

    @given(st.integers(1, 100_000), st.integers(0, 4 * 10**15))
    def test_an_interval_comes_at_every_multiple(self, seconds: int, us: int) -> None:
        instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)

        found = parse_cron(f"@every {seconds}s", "UTC").next_after(instant)

        assert found is not None
        assert timedelta(0) < found - instant <= timedelta(seconds=seconds)
        assert found.timestamp() % seconds == 0


class TestClockChanges:
    @pytest.mark.parametrize(
        ("timezone", "after", "expected"),
        [
            (BERLIN, "2026-03-28 12:00", ["2026-03-29 03:00+02:00", "2026-03-30 02:30+02:00"]),
            (NEW_YORK, "2026-03-07 12:00", ["2026-03-08 03:00-04:00", "2026-03-09 02:30-04:00"]),
        ],
    )
    def test_a_skipped_time_fires_once_at_the_end_of_the_gap(
        self, timezone: str, after: str, expected: list[str]
    ) -> None:
        assert upcoming("30 2 * * *", after, 2, timezone) == expected

    @pytest.mark.parametrize(
        ("timezone", "expression", "after", "expected"),
        [
            (
                BERLIN,
                "30 2 * * *",
                "2026-10-24 12:00",
                ["2026-10-25 02:30+02:00", "2026-10-26 02:30+01:00"],
            ),
            (
                NEW_YORK,
                "30 1 * * *",
                "2026-10-31 12:00",
                ["2026-11-01 01:30-04:00", "2026-11-02 01:30-05:00"],
            ),
            (
                BERLIN,
                "0,30 2 * * *",
                "2026-10-24 12:00",
                ["2026-10-25 02:00+02:00", "2026-10-25 02:30+02:00", "2026-10-26 02:00+01:00"],
            ),
        ],
    )
    def test_a_doubled_time_fires_the_first_time_only(
        self, timezone: str, expression: str, after: str, expected: list[str]
    ) -> None:
        assert upcoming(expression, after, len(expected), timezone) == expected

    @pytest.mark.parametrize("expression", ["*/30 2 * * *", "0,30 * * * *", "*/30 * * * *"])
    def test_what_starts_with_a_star_fires_in_both_of_a_doubled_hour(self, expression: str) -> None:
        assert upcoming(expression, "2026-10-24 23:59", 4, BERLIN) == [
            "2026-10-25 02:00+02:00",
            "2026-10-25 02:30+02:00",
            "2026-10-25 02:00+01:00",
            "2026-10-25 02:30+01:00",
        ]

    def test_hourly_goes_on_hour_by_hour(self) -> None:
        parsed = parse_cron("@hourly", NEW_YORK)
        instant = utc("2026-10-31T20:00")
        for _ in range(20):
            found = parsed.next_after(instant)
            assert found == instant + HOUR
            instant = found

    def test_a_start_within_the_doubled_hour_waits_for_the_next_day(self) -> None:
        assert upcoming("30 2 * * *", "2026-10-25 01:00", 1, BERLIN) == ["2026-10-26 02:30+01:00"]

    def test_a_time_zone_that_moves_by_half_an_hour_loses_nothing(self) -> None:
        found = upcoming("*/20 4 * * *", "2026-10-03 12:00", 3, "Australia/Lord_Howe")

        assert [text[11:16] for text in found] == ["04:00", "04:20", "04:40"]


@pytest.fixture
def restored_zone() -> Iterator[None]:
    before = os.environ.get("TZ")
    yield
    if before is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("restored_zone")
def test_the_process_s_own_time_zone_changes_nothing() -> None:
    seen = set()
    for name in ["UTC", "America/New_York", "Asia/Kolkata", "Pacific/Apia"]:
        os.environ["TZ"] = name
        time.tzset()
        found = [
            text
            for zone in ("UTC", BERLIN, NEW_YORK)
            for start in ("2026-03-07 00:00", "2026-03-28 00:00", "2026-10-24 00:00")
            for text in upcoming("*/30 1-3 * * *", start, 20, zone)
        ]
        seen.add(tuple(found))

    assert len(seen) == 1


@pytest.mark.parametrize(
    "expression", ["*/30 1 1 11 *", "*/30 1,1 1 */2 */4", "*/30 1 1 * */4", "*/30 1 * 11 0"]
)
def test_a_starred_minute_runs_in_both_passes_although_its_next_date_is_far(
    expression: str,
) -> None:
    found = upcoming(expression, "2020-11-01 00:00", 4, NEW_YORK)

    assert found == upcoming("*/30 1 * * *", "2020-11-01 00:00", 4, NEW_YORK)


@given(EXPRESSIONS, ZONES, INSTANTS)
@example("*/30 1,1 1 */2 */4", NEW_YORK, datetime(2020, 1, 1, tzinfo=UTC))
def test_occurrences_are_those_of_an_independent_implementation(
    expression: str, timezone: str, start: datetime
) -> None:
    zone = ZoneInfo(timezone)
    ours = parse_cron(expression, timezone)
    theirs = CronSim(expression, start.astimezone(zone))
    instant = start
    for _ in range(5):
        found = ours.next_after(instant)
        expected = next(theirs, None)
        if found is None or expected is None:
            assert found is expected
            return
        if found != expected.astimezone(UTC):
            # A starred minute or hour whose hours all fall into the gap: here it fires once at the
            # end of the gap, like a fixed time. There it does not fire at all.
            local = found.astimezone(zone)
            before = (found - SECOND).astimezone(zone)
            assert local.utcoffset() != before.utcoffset()
            assert expression[0] == "*" or expression.split()[1][0] == "*"
            assert not _is_selected(expression, local)
            return
        instant = found


def _is_selected(expression: str, local: datetime) -> bool:
    wanted = local.replace(tzinfo=None)
    return next(CronSim(expression, wanted - MINUTE)) == wanted


@given(EXPRESSIONS, ZONES, INSTANTS, st.integers(0, 10_000))
def test_later_starts_never_find_earlier_occurrences(
    expression: str, timezone: str, start: datetime, minutes: int
) -> None:
    parsed = parse_cron(expression, timezone)
    first = parsed.next_after(start)
    assume(first is not None)
    assert first is not None
    later = start + timedelta(minutes=minutes)

    found = parsed.next_after(later)

    assert found is not None
    assert first > start
    assert found == first if later < first else found > first
