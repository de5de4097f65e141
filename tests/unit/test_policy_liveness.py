"""When a pod stops trusting itself, and when a reaper may judge others."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.clock import ManualClock
from forge_jobs.policy.liveness import Fence, ReaperGuard

LEASE = timedelta(seconds=15)
MARGIN = timedelta(seconds=3)
INTERVAL = timedelta(seconds=3)
_NONE: Mapping[str, ManualClock] = {}


class TestFence:
    def test_it_falls_at_the_lease_less_the_margin_after_registration(self) -> None:
        fence = Fence(LEASE, MARGIN, 100.0)

        assert not fence.must_stop(111.999)
        assert fence.must_stop(112.0)

    def test_a_beat_counts_from_when_it_was_sent(self) -> None:
        clock = ManualClock()
        fence = Fence(LEASE, MARGIN, clock.elapsed())
        clock.advance(10)
        sent_at = clock.elapsed()
        clock.advance(5)
        assert fence.must_stop(clock.elapsed())

        fence.renewed(sent_at)

        assert not fence.must_stop(clock.elapsed())
        assert fence.remaining(clock.elapsed()) == timedelta(seconds=7)
        clock.advance(7)
        assert fence.must_stop(clock.elapsed())
        assert fence.remaining(clock.elapsed()) == timedelta(0)

    def test_the_answer_to_an_earlier_beat_takes_nothing_back(self) -> None:
        fence = Fence(LEASE, MARGIN, 0.0)
        fence.renewed(10.0)

        fence.renewed(4.0)

        assert not fence.must_stop(21.9)
        assert fence.must_stop(22.0)

    def test_a_step_of_the_wall_clock_changes_nothing(self) -> None:
        clock = ManualClock()
        fence = Fence(LEASE, MARGIN, clock.elapsed())

        clock.step_wall(3600)
        assert not fence.must_stop(clock.elapsed())
        clock.step_wall(-7200)
        clock.advance(12)
        assert fence.must_stop(clock.elapsed())

    def test_a_suspend_makes_it_fall_at_once(self) -> None:
        clock = ManualClock()
        fence = Fence(LEASE, MARGIN, clock.elapsed())

        clock.advance(timedelta(hours=8))

        assert fence.must_stop(clock.elapsed())

    @given(st.lists(st.tuples(st.floats(0, 8), st.floats(0, 5)), max_size=30))
    def test_it_falls_before_the_store_could_give_the_claims_away(
        self, beats: list[tuple[float, float]]
    ) -> None:
        """With any pauses and delays: while handlers may run, the lease at the store lasts."""
        now, store_until = 0.0, LEASE.total_seconds()
        fence = Fence(LEASE, MARGIN, 0.0)
        for pause, delay in beats:
            now += pause
            if fence.must_stop(now):
                return
            sent_at, executed_at = now, now + delay / 2
            if executed_at >= store_until:
                return
            store_until = executed_at + LEASE.total_seconds()
            now += delay
            fence.renewed(sent_at)
            latest = now + fence.remaining(now).total_seconds()
            assert latest <= store_until - MARGIN.total_seconds() + 1e-5


class _Reaper:
    """A guard asked at each pass, and a clock."""

    def __init__(self, lease: timedelta = LEASE, interval: timedelta = INTERVAL) -> None:
        self.clock = ManualClock()
        self.guard = ReaperGuard(lease, interval)

    def passes(
        self,
        count: int,
        seconds: float = 3.0,
        *,
        stores: Mapping[str, ManualClock] = _NONE,
        took: float = 0.0,
    ) -> list[bool]:
        """:param took: of ``seconds``, how long the store took to answer with an old time"""
        answers = []
        for _ in range(count):
            self._advance(seconds - took, stores)
            asked_at = self.clock.elapsed()
            read_at = {name: store.now() for name, store in stores.items()}
            self._advance(took, stores)
            answers.append(self.guard.may_revive(self.clock, asked_at=asked_at, read_at=read_at))
        return answers

    def _advance(self, seconds: float, stores: Mapping[str, ManualClock]) -> None:
        for clock in (self.clock, *stores.values()):
            clock.advance(seconds)


class TestReaperGuard:
    def test_it_waits_for_one_full_lease_after_the_start(self) -> None:
        reaper = _Reaper()

        assert not reaper.guard.may_revive(reaper.clock)
        assert reaper.passes(6) == [False, False, False, False, True, True]

    @pytest.mark.parametrize("gap", [8.001, 20.0, 30_000.0])
    def test_a_gap_between_passes_starts_the_lease_again(self, gap: float) -> None:
        reaper = _Reaper()
        reaper.passes(10)

        assert reaper.passes(1, gap) == [False]
        assert reaper.passes(5) == [False, False, False, False, True]

    def test_a_pass_that_is_a_little_late_is_none(self) -> None:
        reaper = _Reaper()
        reaper.passes(10)

        assert reaper.passes(3, 7.9) == [True, True, True]

    @pytest.mark.parametrize("step", [2.6, -2.6, 3600.0, -3600.0])
    def test_a_step_of_the_wall_clock_starts_the_lease_again(self, step: float) -> None:
        reaper = _Reaper()
        reaper.passes(10)

        reaper.clock.step_wall(step)

        assert reaper.passes(6) == [False, False, False, False, False, True]

    @pytest.mark.parametrize("step", [0.1, -0.1, 2.0])
    def test_a_clock_that_is_set_right_by_a_little_does_not(self, step: float) -> None:
        reaper = _Reaper()
        reaper.passes(10)

        reaper.clock.step_wall(step)

        assert reaper.passes(2) == [True, True]

    @pytest.mark.parametrize("step", [2.6, -2.6, 3600.0, -3600.0])
    def test_a_step_of_a_clock_of_the_store_starts_the_lease_again(self, step: float) -> None:
        reaper = _Reaper()
        stores = {"a": ManualClock(), "b": ManualClock()}
        reaper.passes(10, stores=stores)

        stores["b"].step_wall(step)

        assert reaper.passes(6, stores=stores) == [False, False, False, False, False, True]

    def test_a_slow_answer_of_the_store_is_no_step(self) -> None:
        reaper = _Reaper()
        store = ManualClock()
        reaper.passes(10, stores={"": store})

        assert reaper.passes(3, 7.5, stores={"": store}, took=7.0) == [True, True, True]
        assert reaper.passes(3, stores={"": store}) == [True, True, True]

    def test_it_says_when_something_may_be_dated_ahead(self) -> None:
        reaper = _Reaper()
        assert reaper.guard.must_look
        reaper.guard.must_look = False
        reaper.guard.may_revive(reaper.clock)
        assert reaper.guard.must_look

        reaper.guard.must_look = False
        reaper.passes(3)
        assert not reaper.guard.must_look
        reaper.clock.step_wall(-60)
        reaper.passes(1)
        assert reaper.guard.must_look

    def test_an_outage_of_the_store_is_a_gap(self) -> None:
        reaper = _Reaper()
        reaper.passes(10)

        reaper.clock.advance(60)

        assert not reaper.guard.may_revive(reaper.clock)

    def test_it_can_be_told_to_start_over(self) -> None:
        reaper = _Reaper()
        reaper.passes(10)

        reaper.guard.reset()

        assert reaper.passes(6) == [False, False, False, False, False, True]

    def test_asking_twice_within_one_pass_changes_nothing(self) -> None:
        reaper = _Reaper()
        reaper.passes(6)

        assert reaper.guard.may_revive(reaper.clock)
        assert reaper.guard.may_revive(reaper.clock)

    def test_a_queue_that_was_silent_begins_its_lease_anew_and_no_other_does(self) -> None:
        """The clock may be that of another server by then."""
        guard, clock = ReaperGuard(LEASE, timedelta(seconds=3)), ManualClock()

        def passed(**ahead: float) -> None:
            clock.advance(3.0)
            times = {name: clock.now() + timedelta(seconds=each) for name, each in ahead.items()}
            guard.may_revive(clock, asked_at=clock.elapsed(), read_at=times)

        for _ in range(6):
            passed(a=0.0, b=0.0)
        assert guard.may_revive_in("a")
        assert guard.may_revive_in("b")
        guard.must_look = False
        passed(a=0.0)
        assert guard.may_revive_in("a")
        assert not guard.must_look
        for _ in range(5):
            passed(a=0.0, b=60.0)
            assert guard.must_look
            assert guard.may_revive_in("a")
            assert not guard.may_revive_in("b")
        passed(a=0.0, b=60.0)
        assert guard.may_revive_in("b")

    def test_passes_rarer_than_a_lease_may_revive_too(self) -> None:
        reaper = _Reaper(timedelta(seconds=15), timedelta(seconds=20))

        assert reaper.passes(3, 20.0) == [False, True, True]

    @given(st.lists(st.tuples(st.floats(0, 40), st.sampled_from([0.0, 0.0, 0.0, 9.0, -9.0]))))
    def test_it_never_allows_within_a_lease_of_a_disturbance(
        self, passes: list[tuple[float, float]]
    ) -> None:
        reaper = _Reaper()
        reaper.guard.may_revive(reaper.clock)
        disturbed_at = 0.0
        for pause, step in passes:
            reaper.clock.advance(pause)
            reaper.clock.step_wall(step)
            if pause > 8.0 or step:
                disturbed_at = reaper.clock.elapsed()

            allowed = reaper.guard.may_revive(reaper.clock)

            quiet = reaper.clock.elapsed() - disturbed_at
            assert not allowed or quiet >= LEASE.total_seconds() - 1e-6


def test_a_silent_queue_is_fenced_by_itself() -> None:
    fence = Fence(timedelta(seconds=15), timedelta(seconds=3), 0.0)
    fence.renewed(3.0, {"a"})
    fence.renewed(11.0, {"a"})
    assert not fence.must_stop(11.0, "a")
    assert fence.overdue(11.0) == frozenset()
    assert fence.must_stop(12.0, "a")
    assert fence.overdue(12.0) == {"a"}
    assert not fence.must_stop(12.0, "b")
    assert not fence.must_stop(12.0)
    fence.renewed(13.0)
    assert not fence.must_stop(13.0, "a")
    assert fence.overdue(60.0) == frozenset()
    assert fence.must_stop(60.0, "a")


def test_a_closed_fence_stays_closed() -> None:
    fence = Fence(timedelta(seconds=15), timedelta(seconds=3), 0.0)
    fence.close()
    fence.renewed(100.0)
    assert fence.must_stop(100.0)
    assert fence.remaining(100.0) == timedelta(0)
