"""Outcomes that handlers raise, errors that are retried, and the forms of durations."""

import pickle
from datetime import timedelta

import pytest

from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.options import HandlerOptions
from forge_jobs.handlers.outcomes import Dead, Failed, Outcome, Snoozed, Throttled


def test_delays_of_outcomes_may_be_seconds_or_timedeltas() -> None:
    assert Snoozed(30).delay == timedelta(seconds=30)
    assert Throttled(timedelta(minutes=1)).retry_after == timedelta(minutes=1)
    assert Throttled().retry_after is None
    assert Failed("x", retry_in=0.5).retry_in == timedelta(seconds=0.5)
    assert Failed("x").retry_in is None


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Throttled(), "throttled"),
        (Throttled(30), "throttled for 0:00:30"),
        (Snoozed(30), "snoozed for 0:00:30"),
        (Failed("no luck", 3), "no luck"),
        (Dead("never"), "never"),
    ],
)
def test_an_outcome_says_in_words_what_it_is_and_survives_pickling(
    outcome: Outcome, text: str
) -> None:
    assert str(outcome) == text
    assert str(pickle.loads(pickle.dumps(outcome))) == text


@pytest.mark.parametrize("value", [-1, timedelta(-1), float("nan"), float("inf"), 1e300, "5", True])
def test_a_duration_that_no_store_could_add_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"^delay: "):
        check_duration("delay", value)


def test_zero_is_a_duration_unless_it_must_be_above() -> None:
    assert check_duration("delay", 0) == timedelta(0)
    with pytest.raises(InvalidInput, match="above zero"):
        check_duration("timeout", 0, above_zero=True)
    with pytest.raises(InvalidInput, match="timeout: is 1e-07 seconds; give a microsecond"):
        check_duration("timeout", 1e-7, above_zero=True)


class TestRetryable:
    def test_everything_is_retried_by_default(self) -> None:
        assert HandlerOptions().is_retryable(ValueError())

    def test_with_retry_on_only_those_and_their_subclasses(self) -> None:
        options = HandlerOptions(retry_on=(OSError,))

        assert options.is_retryable(ConnectionResetError())
        assert not options.is_retryable(ValueError())

    def test_never_retry_on_wins_over_retry_on(self) -> None:
        options = HandlerOptions(retry_on=(OSError,), never_retry_on=(PermissionError,))

        assert options.is_retryable(OSError())
        assert not options.is_retryable(PermissionError())

    def test_retrying_on_nothing_retries_nothing(self) -> None:
        assert not HandlerOptions(retry_on=()).is_retryable(ValueError())

    def test_of_a_group_each_error_must_be_one_that_is_retried(self) -> None:
        options = HandlerOptions(retry_on=(OSError,), never_retry_on=(PermissionError,))

        def a_group(*errors: Exception) -> Exception:
            return ExceptionGroup("several", [ExceptionGroup("inner", errors), OSError()])

        assert options.is_retryable(a_group(ConnectionResetError()))
        assert not options.is_retryable(a_group(ValueError()))
        assert not options.is_retryable(a_group(PermissionError()))
        assert HandlerOptions().is_retryable(a_group(ValueError()))
        assert HandlerOptions(retry_on=(ExceptionGroup,)).is_retryable(a_group(ValueError()))
        never = HandlerOptions(never_retry_on=(ExceptionGroup,))
        assert not never.is_retryable(a_group(OSError()))
