"""A few at once, and then at a pace."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.policy.bursts import Bursts

EVERY, AT_ONCE = 0.25, 3


@given(pauses=st.lists(st.floats(0, 2), max_size=60))
def test_no_window_holds_more_than_a_burst_and_one_per_interval(pauses: list[float]) -> None:
    bursts = Bursts(EVERY, AT_ONCE)
    happened: list[float] = []
    for asked_at in accumulate(pauses):
        # Who waits asks for the next one only afterwards.
        now = max(asked_at, happened[-1]) if happened else asked_at
        happened.append(now + bursts.delay(now))

    for first in range(len(happened)):
        for last in range(first + AT_ONCE, len(happened)):
            least = (last - first - AT_ONCE + 1) * EVERY
            assert happened[last] - happened[first] >= least - 1e-9


def test_after_a_long_pause_a_burst_waits_for_nothing() -> None:
    bursts = Bursts(EVERY, AT_ONCE)
    for start in (0.0, 100.0):
        assert [bursts.delay(start) for _ in range(AT_ONCE)] == [0.0] * AT_ONCE
        assert bursts.delay(start) == EVERY
