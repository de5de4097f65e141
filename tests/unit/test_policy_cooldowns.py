"""Pauses of a queue after its upstream throttled."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.queues import CooldownPolicy
from forge_jobs.policy.cooldowns import next_cooldown

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
ZERO = timedelta(0)
FLAT = CooldownPolicy()
EXPONENTIAL = CooldownPolicy(mode="exponential")


def test_the_first_pause_is_the_base_at_level_one() -> None:
    for policy in (FLAT, EXPONENTIAL):
        first = next_cooldown(policy, 0, None, None)

        assert (first.length, first.level) == (MINUTE, 1)


def test_flat_stays_at_the_base_while_the_level_grows() -> None:
    third = next_cooldown(FLAT, 2, SECOND, None)

    assert (third.length, third.level) == (MINUTE, 3)


def test_exponential_doubles_up_to_half_an_hour() -> None:
    lengths = [next_cooldown(EXPONENTIAL, level, SECOND, None).length for level in range(7)]

    assert [each // MINUTE for each in lengths] == [1, 2, 4, 8, 16, 30, 30]


def test_the_level_is_forgotten_after_exactly_the_quiet_time() -> None:
    just_before = next_cooldown(EXPONENTIAL, 4, EXPONENTIAL.quiet - timedelta(microseconds=1), None)
    at_once = next_cooldown(EXPONENTIAL, 4, EXPONENTIAL.quiet, None)

    assert just_before.level == 5
    assert (at_once.length, at_once.level) == (MINUTE, 1)


def test_a_pause_that_still_lasts_counts_as_not_quiet() -> None:
    assert next_cooldown(EXPONENTIAL, 2, ZERO, None).level == 3


def test_runs_that_are_throttled_together_agree() -> None:
    assert len({next_cooldown(EXPONENTIAL, 3, SECOND, None) for _ in range(10)}) == 1


@pytest.mark.parametrize(
    ("asked", "length"),
    [
        (timedelta(seconds=-5), SECOND),
        (ZERO, SECOND),
        (timedelta(milliseconds=1), SECOND),
        (timedelta(seconds=7), timedelta(seconds=7)),
        (timedelta(minutes=30), timedelta(minutes=30)),
        (timedelta(days=2), timedelta(minutes=30)),
        (timedelta.max, timedelta(minutes=30)),
    ],
)
@pytest.mark.parametrize("policy", [FLAT, EXPONENTIAL])
def test_retry_after_is_honoured_within_its_bounds(
    policy: CooldownPolicy, asked: timedelta, length: timedelta
) -> None:
    cooldown = next_cooldown(policy, 2, SECOND, asked)

    assert (cooldown.length, cooldown.level) == (length, 3)


def test_a_cap_below_a_second_wins() -> None:
    short = CooldownPolicy(base=timedelta(0), cap=timedelta(milliseconds=50), mode="exponential")

    assert next_cooldown(short, 9, ZERO, ZERO).length == short.cap
    assert next_cooldown(short, 9, ZERO, None).length == ZERO


@given(
    st.builds(
        CooldownPolicy,
        mode=st.sampled_from(["flat", "exponential"]),
        base=st.timedeltas(ZERO, timedelta(days=30)),
        cap=st.timedeltas(timedelta(days=30), timedelta(days=365)),
        quiet=st.timedeltas(ZERO, timedelta(days=365)),
    ),
    st.integers(-5, 10**12),
    st.none() | st.timedeltas(ZERO, timedelta(days=9999)),
    st.none() | st.timedeltas(),
)
def test_every_pause_is_between_zero_and_the_cap(
    policy: CooldownPolicy,
    level: int,
    ended_for: timedelta | None,
    retry_after: timedelta | None,
) -> None:
    cooldown = next_cooldown(policy, level, ended_for, retry_after)

    assert ZERO <= cooldown.length <= policy.cap
    assert cooldown.level >= 1
