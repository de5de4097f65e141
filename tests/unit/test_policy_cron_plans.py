"""Occurrences of a schedule that fire: lateness, downtime, windows, jitter."""

import random
from datetime import datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput
from forge_jobs.model.schedules import Schedule, ScheduleSpec
from forge_jobs.policy import cron
from forge_jobs.policy.cron import (
    MAX_PER_PLAN,
    ON_TIME,
    FiringPlan,
    first_occurrence,
    parse_cron,
    plan_firing,
)
from tests.support.cron_expressions import BERLIN, EXPRESSIONS, INSTANTS, ZONES, utc

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def a_schedule(next_at: datetime | None, *, paused: bool = False, **spec: object) -> Schedule:
    fields: dict[str, object] = {
        "name": "nightly",
        "queue": "default",
        "kind": "tests.noop",
        "expression": "* * * * *",
    }
    return Schedule(
        spec=ScheduleSpec(**(fields | spec)),  # type: ignore[arg-type]
        version=1,
        paused=paused,
        edited=False,
        next_at=next_at,
        last_fired_at=None,
        fired=0,
        skipped=0,
        error="",
    )


class _Steps:
    """Counts the occurrences that are worked out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = cron._Fields.next_after

        def counted(expression: cron._Fields, instant: datetime) -> datetime | None:
            self.count += 1
            return real(expression, instant)

        monkeypatch.setattr(cron._Fields, "next_after", counted)


NOON = utc("2026-06-01T12:00")


def plan(schedule: Schedule, now: datetime) -> FiringPlan:
    return plan_firing(schedule, now, random.Random(1))


class TestFirstOccurrence:
    def test_a_new_yearly_schedule_does_not_fire_at_once(self) -> None:
        spec = a_schedule(None, expression="@yearly").spec

        assert first_occurrence(spec, NOON) == utc("2027-01-01")

    def test_it_is_later_than_now_although_now_is_an_occurrence(self) -> None:
        assert first_occurrence(a_schedule(None).spec, NOON) == NOON + MINUTE

    def test_it_follows_the_schedule_s_time_zone(self) -> None:
        spec = a_schedule(None, expression="@daily", timezone=BERLIN).spec

        assert first_occurrence(spec, NOON) == utc("2026-06-01T22:00")


class TestPlanFiring:
    @pytest.mark.parametrize("catch_up", ["skip", "latest", "all"])
    def test_an_occurrence_that_is_due_fires_once_and_the_next_comes_up(
        self, catch_up: str
    ) -> None:
        fired = plan(a_schedule(NOON, catch_up=catch_up), NOON + 5 * SECOND)

        assert fired.occurrences == (NOON,)
        assert fired.run_at == (NOON,)
        assert fired.skipped == 0
        assert fired.next_at == NOON + MINUTE

    @pytest.mark.parametrize("catch_up", ["skip", "latest", "all"])
    def test_it_is_due_at_its_very_instant_and_not_before(self, catch_up: str) -> None:
        schedule = a_schedule(NOON, catch_up=catch_up)

        assert plan(schedule, NOON).occurrences == (NOON,)
        early = plan(schedule, NOON - timedelta(microseconds=1))
        assert early == FiringPlan((), 0, NOON)

    def test_a_paused_schedule_and_one_without_occurrences_plan_nothing(self) -> None:
        assert plan(a_schedule(NOON, paused=True), NOON + DAY) == FiringPlan((), 0, NOON)
        assert plan(a_schedule(None), NOON) == FiringPlan((), 0, None)

    def test_skip_fires_what_is_a_little_late_and_drops_what_is_later(self) -> None:
        schedule = a_schedule(NOON, catch_up="skip", expression="@hourly")

        assert plan(schedule, NOON + ON_TIME).occurrences == (NOON,)
        late = plan(schedule, NOON + ON_TIME + timedelta(microseconds=1))
        assert late.occurrences == ()
        assert late.skipped == 1
        assert late.next_at == NOON + HOUR

    def test_latest_fires_the_newest_alone(self) -> None:
        late = plan(a_schedule(NOON, expression="@hourly"), NOON + 5 * HOUR + MINUTE)

        assert late.occurrences == (NOON + 5 * HOUR,)
        assert late.skipped == 5
        assert late.next_at == NOON + 6 * HOUR

    def test_all_fires_those_within_the_window_oldest_first(self) -> None:
        schedule = a_schedule(NOON, expression="@hourly", catch_up="all", window=3 * HOUR)

        late = plan(schedule, NOON + 5 * HOUR)

        assert late.occurrences == tuple(NOON + n * HOUR for n in (2, 3, 4, 5))
        assert late.skipped == 2
        assert late.next_at == NOON + 6 * HOUR

    def test_all_with_a_window_of_nothing_still_fires_what_is_on_time(self) -> None:
        schedule = a_schedule(NOON, catch_up="all", window=timedelta(0))

        assert plan(schedule, NOON + SECOND).occurrences == (NOON,)

    def test_all_goes_on_with_the_next_plan_and_loses_nothing(self) -> None:
        now = NOON + DAY
        schedule = a_schedule(NOON, catch_up="all")
        fired: list[datetime] = []
        next_at: datetime | None = NOON
        rounds = 0
        while next_at is not None and next_at <= now:
            planned = plan(a_schedule(next_at, catch_up="all"), now)
            assert len(planned.occurrences) <= MAX_PER_PLAN
            assert planned.skipped == 0
            fired += planned.occurrences
            next_at = planned.next_at
            rounds += 1

        assert fired == [NOON + n * MINUTE for n in range(1441)]
        assert rounds == 8
        assert schedule.next_at == NOON

    @pytest.mark.parametrize(
        ("catch_up", "fires", "most_steps"),
        [("skip", 0, 250), ("latest", 1, 250), ("all", 60, 350)],
    )
    def test_a_year_s_downtime_takes_few_steps(
        self, catch_up: str, fires: int, most_steps: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps = _Steps(monkeypatch)
        schedule = a_schedule(NOON, catch_up=catch_up, window=HOUR)
        now = NOON + 365 * DAY + timedelta(seconds=31)

        late = plan(schedule, now)

        assert len(late.occurrences) == fires
        assert late.occurrences[-1:] in {(), (NOON + 365 * DAY,)}
        assert late.skipped == MAX_PER_PLAN
        assert late.next_at == NOON + 365 * DAY + MINUTE
        assert steps.count <= most_steps

    def test_a_year_s_downtime_of_a_burst_each_new_year_finds_the_newest(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps = _Steps(monkeypatch)
        schedule = a_schedule(utc("2020-01-01"), expression="* * 1 1 *")

        late = plan(schedule, NOON)

        assert late.occurrences == (utc("2026-01-01T23:59"),)
        assert late.next_at == utc("2027-01-01")
        assert steps.count <= 250

    def test_a_stored_occurrence_off_the_second_is_fired_as_it_stands(self) -> None:
        odd = NOON - timedelta(milliseconds=300)

        assert plan(a_schedule(odd), NOON - timedelta(milliseconds=200)).occurrences == (odd,)
        assert plan(a_schedule(odd), NOON).occurrences == (NOON,)

    def test_jitter_delays_the_job_and_not_its_occurrence(self) -> None:
        schedule = a_schedule(NOON, jitter=MINUTE)

        drawn = [plan_firing(schedule, NOON, lambda part=part: part) for part in (0.0, 0.5, 0.99)]  # type: ignore[misc]

        assert {each.occurrences for each in drawn} == {(NOON,)}
        assert {each.next_at for each in drawn} == {plan(a_schedule(NOON), NOON).next_at}
        late_by = [each.run_at[0] - NOON for each in drawn]
        assert late_by == [timedelta(0), 30 * SECOND, timedelta(seconds=59.4)]

    def test_a_stored_expression_that_is_wrong_is_an_error_of_its_own(self) -> None:
        with pytest.raises(InvalidInput, match="expression"):
            plan(a_schedule(NOON, expression="gibberish"), NOON)

    def test_the_last_occurrence_of_all_is_followed_by_none(self) -> None:
        end = utc("9999-12-31T23:59:59")

        last = plan(a_schedule(end, expression="@every 1s"), end)

        assert last.occurrences == (end,)
        assert last.next_at is None

    @given(
        EXPRESSIONS | st.integers(1, 5000).map(lambda seconds: f"@every {seconds}s"),
        ZONES,
        INSTANTS,
        st.integers(0, 3 * 86_400),
    )
    def test_the_newest_occurrence_is_found_as_by_walking(
        self, expression: str, timezone: str, start: datetime, seconds: int
    ) -> None:
        parsed = parse_cron(expression, timezone)
        first = parsed.next_after(start)
        assume(first is not None)
        assert first is not None
        now = first + timedelta(seconds=seconds)
        newest, upcoming_at, walked = first, parsed.next_after(first), 0
        while upcoming_at is not None and upcoming_at <= now and walked < 1000:
            newest, upcoming_at, walked = upcoming_at, parsed.next_after(upcoming_at), walked + 1
        assume(walked < 1000)

        fired = plan(a_schedule(first, expression=expression, timezone=timezone), now)

        assert fired.occurrences == (newest,)
        assert fired.next_at == upcoming_at
        assert fired.skipped == min(walked, MAX_PER_PLAN)
