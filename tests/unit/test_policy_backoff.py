"""How long a failed job waits."""

import logging
import math
import random
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.errors import InvalidInput
from forge_jobs.model.retries import LONGEST_DELAY, Delays, Exponential, Fixed, Linear
from forge_jobs.policy.backoff import RetryPolicy, bounded_delay, retry_delay

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
FORMS: tuple[tuple[Any, str], ...] = ((Fixed, "delay"), (Linear, "step"))
ODD: tuple[Any, ...] = (True, Decimal("1.5"), Fraction(3, 2), "5", None, [], 10**400, 1e300)
ZERO = timedelta(0)


def highest() -> float:
    """The largest number a generator gives."""
    return math.nextafter(1.0, 0.0)


DURATIONS = st.timedeltas(ZERO, timedelta(days=3650)) | st.floats(0, 3e8)
POLICIES: st.SearchStrategy[RetryPolicy] = st.one_of(
    st.builds(
        Exponential,
        base=DURATIONS,
        factor=st.floats(1, 1e6),
        cap=DURATIONS,
        jitter=st.booleans(),
    ),
    st.builds(Linear, DURATIONS, DURATIONS, st.booleans()),
    st.builds(Fixed, DURATIONS, st.booleans()),
    st.builds(Delays, st.lists(DURATIONS, min_size=1).map(tuple), st.booleans()),
)


def cap_of(policy: Any) -> timedelta:
    if isinstance(policy, Exponential | Linear):
        caps = [policy.cap]
    else:
        caps = [policy.delay] if isinstance(policy, Fixed) else list(policy.delays)
    return max(each if isinstance(each, timedelta) else timedelta(seconds=each) for each in caps)


@given(POLICIES, st.integers(1, 10**9), st.randoms(use_true_random=False))
def test_a_delay_is_from_zero_to_the_cap_for_any_attempt(
    policy: RetryPolicy, attempt: int, rng: random.Random
) -> None:
    assert ZERO <= retry_delay(policy, attempt, rng=rng) <= cap_of(policy)


@given(POLICIES, st.integers(1, 10**9))
def test_a_generator_that_leaves_its_range_does_not_break_the_cap(
    policy: RetryPolicy, attempt: int
) -> None:
    assert retry_delay(policy, attempt, rng=lambda: 1.5) <= cap_of(policy)
    assert retry_delay(policy, attempt, rng=lambda: -0.5) >= ZERO


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_without_jitter_a_later_attempt_never_waits_for_less(one: int, other: int) -> None:
    earlier, later = sorted((one, other))
    policies: list[RetryPolicy] = [Exponential(jitter=False), Linear(SECOND, jitter=False)]
    for policy in policies:
        assert retry_delay(policy, earlier, rng=highest) <= retry_delay(policy, later, rng=highest)


def seconds(policy: RetryPolicy, attempts: int) -> list[float]:
    return [retry_delay(policy, n, rng=highest).total_seconds() for n in range(1, attempts + 1)]


def test_exponential_doubles_from_the_base_up_to_the_cap() -> None:
    assert seconds(Exponential(jitter=False, cap=10), 6) == [1, 2, 4, 8, 10, 10]


def test_a_base_of_zero_and_a_base_above_the_cap_are_fine() -> None:
    assert seconds(Exponential(base=0), 2) == [0, 0]
    assert seconds(Exponential(base=9, cap=5, jitter=False), 2) == [5, 5]


def test_a_factor_of_one_stays_at_the_base() -> None:
    assert seconds(Exponential(base=3, factor=1, jitter=False), 3) == [3, 3, 3]


def test_linear_grows_by_the_step_up_to_the_cap() -> None:
    assert seconds(Linear(2, cap=5, jitter=False), 4) == [2, 4, 5, 5]
    assert seconds(Linear(0), 2) == [0, 0]


def test_fixed_is_the_same_every_time() -> None:
    assert seconds(Fixed(timedelta(minutes=1), jitter=False), 3) == [60, 60, 60]


def test_the_last_of_a_list_of_delays_repeats() -> None:
    assert seconds(Delays((1, 5, 30), jitter=False), 5) == [1, 5, 30, 30, 30]


def test_jitter_draws_evenly_from_zero_to_the_ceiling() -> None:
    rng = random.Random(7)

    drawn = [retry_delay(Fixed(100), 1, rng=rng).total_seconds() for _ in range(4000)]

    for lower in range(0, 100, 10):
        assert 320 < sum(lower <= each < lower + 10 for each in drawn) < 480


def test_jitter_is_on_unless_turned_off() -> None:
    policies: list[RetryPolicy] = [Exponential(), Linear(8), Fixed(8), Delays((8,))]
    for policy in policies:
        full = retry_delay(policy, 1, rng=lambda: 1.0)
        assert retry_delay(policy, 1, rng=lambda: 0.25) == full / 4


class TestCallablePolicies:
    def test_it_is_asked_with_the_attempt_and_the_error(self) -> None:
        asked: list[tuple[int, BaseException | None]] = []
        failure = ValueError("no")

        def policy(attempt: int, error: BaseException | None) -> timedelta:
            asked.append((attempt, error))
            return 3 * SECOND

        assert retry_delay(policy, 4, error=failure, rng=highest) == 3 * SECOND
        assert asked == [(4, failure)]

    @pytest.mark.parametrize("answer", [0, 0.0, 12, 1.5, ZERO, HOUR])
    def test_numbers_are_seconds_and_nothing_is_drawn(self, answer: float | timedelta) -> None:
        expected = answer if isinstance(answer, timedelta) else timedelta(seconds=answer)

        assert retry_delay(lambda _attempt, _error: answer, 1, rng=lambda: 0.5) == expected

    @pytest.mark.parametrize("answer", [10**12, 1e300, timedelta.max])
    def test_the_longest_delay_is_ten_years(self, answer: float | timedelta) -> None:
        assert retry_delay(lambda _attempt, _error: answer, 1, rng=highest) == LONGEST_DELAY

    @pytest.mark.parametrize(
        "answer", [None, "5", -1, -SECOND, math.nan, math.inf, True, [], object(), 10**400 * -1]
    )
    def test_nonsense_is_replaced_by_the_default_policy_and_logged(
        self, answer: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            delay = retry_delay(lambda _attempt, _error: answer, 3, rng=lambda: 0.5)

        assert delay == 2 * SECOND
        assert "default policy" in caplog.text

    def test_one_that_raises_is_replaced_by_the_default_policy_and_logged(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def policy(attempt: int, error: BaseException | None) -> float:
            raise RuntimeError("secret")

        with caplog.at_level(logging.WARNING):
            delay = retry_delay(policy, 3, rng=lambda: 0.5)

        assert delay == 2 * SECOND
        assert "RuntimeError" in caplog.text
        assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Exponential(base=-1), "base"),
        (lambda: Exponential(base=math.nan), "base"),
        (lambda: Exponential(cap=timedelta.max), "cap"),
        (lambda: Exponential(factor=0.5), "factor"),
        (lambda: Exponential(factor=math.inf), "factor"),
        (lambda: Exponential(factor=math.nan), "factor"),
        (lambda: Linear(-SECOND), "step"),
        (lambda: Linear(1, cap=math.inf), "cap"),
        (lambda: Fixed(-1), "delay"),
        (lambda: Delays(()), "delays"),
        (lambda: Delays((1, -1)), "delays"),
        (lambda: Delays(30), "delays"),  # type: ignore[arg-type]
        (lambda: Delays("30"), "delays"),  # type: ignore[arg-type]
        *((partial(Exponential, base=each), "base") for each in ODD),
        *((partial(Exponential, cap=each), "cap") for each in ODD),
        *((partial(Exponential, factor=each), "factor") for each in ODD[:6]),
        *((partial(form, each), name) for form, name in FORMS for each in ODD),
        *((partial(form, 1, jitter=each), "jitter") for form, _ in FORMS for each in ("no", None)),
        (lambda: Exponential(jitter=1), "jitter"),  # type: ignore[arg-type]
        (lambda: Delays((1,), jitter=1), "jitter"),  # type: ignore[arg-type]
        *((partial(Delays, (1, each)), "delays") for each in ODD),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_where_it_is_made(
    make: Callable[[], object], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()

    assert refused.value.field == field


@given(st.timedeltas())
def test_a_requested_delay_is_bounded_at_both_ends(delay: timedelta) -> None:
    bounded = bounded_delay(delay)

    assert ZERO <= bounded <= LONGEST_DELAY
    assert bounded == delay or not ZERO <= delay <= LONGEST_DELAY
