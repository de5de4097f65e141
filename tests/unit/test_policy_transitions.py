"""Where a job goes when an attempt ends, row by row and by simulation."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.model.ids import new_host_id, new_job_id
from forge_jobs.model.jobs import Cause, Claim, ErrorRecord, JobStatus
from forge_jobs.model.queues import CooldownPolicy
from forge_jobs.model.retries import LONGEST_DELAY, Fixed
from forge_jobs.model.transitions import Cooldown, StaleClaim, Transition
from forge_jobs.policy.backoff import LONGEST_CRASH_PAUSE
from forge_jobs.policy.transitions import AttemptEnd, Rules, next_transition, stale_transition
from tests.support.factories import a_claimed_job

SECOND = timedelta(seconds=1)
PAUSE = timedelta(seconds=15)
ZERO = timedelta(0)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLAIM = Claim("default", new_job_id(), 1, new_host_id())
RULES = Rules(retry=Fixed(8, jitter=False))
ENDS = [
    Cause.SUCCEEDED,
    Cause.FAILED,
    Cause.TIMED_OUT,
    Cause.REJECTED,
    Cause.THROTTLED,
    Cause.SNOOZED,
    Cause.RATE_LIMITED,
    Cause.INTERRUPTED,
    Cause.RELEASED,
    Cause.CANCELLED,
    Cause.DROPPED,
]


def a_stale_claim(**overrides: Any) -> StaleClaim:
    fields: dict[str, Any] = {
        "claim": CLAIM,
        "kind": "tests.noop",
        "attempt": 1,
        "max_attempts": 5,
        "crashes": 0,
        "started": True,
        "cancel_requested": False,
    }
    return StaleClaim(**(fields | overrides))


def an_error(cause: Cause = Cause.FAILED) -> ErrorRecord:
    return ErrorRecord(attempt=1, cause=cause, type="ValueError", message="no", host_id="pod")


def after(end: AttemptEnd, rules: Rules = RULES, **job: Any) -> Transition:
    return next_transition(end, a_claimed_job(**job), rules, random.Random(1))


class TestSuccess:
    def test_the_result_is_kept(self) -> None:
        done = after(AttemptEnd(cause=Cause.SUCCEEDED, result='{"a":1}'))

        assert done == Transition(status=JobStatus.DONE, cause=Cause.SUCCEEDED, result='{"a":1}')

    def test_the_result_is_dropped_where_none_is_wanted(self) -> None:
        assert (
            after(AttemptEnd(cause=Cause.SUCCEEDED, result="1"), keep_result=False).result is None
        )

    def test_a_result_that_could_not_be_encoded_is_an_error_on_a_done_job(self) -> None:
        error = an_error(Cause.SUCCEEDED)

        done = after(AttemptEnd(cause=Cause.SUCCEEDED, error=error), attempt=5)

        assert (done.status, done.error, done.result) == (JobStatus.DONE, error, None)


@pytest.mark.parametrize("cause", [Cause.FAILED, Cause.TIMED_OUT])
class TestFailure:
    def test_it_waits_for_its_retry(self, cause: Cause) -> None:
        error = an_error(cause)

        failed = after(AttemptEnd(cause=cause, error=error), attempt=4)

        assert failed == Transition(
            status=JobStatus.FAILED, cause=cause, delay=8 * SECOND, error=error
        )

    @pytest.mark.parametrize(
        ("attempt", "max_attempts", "status"),
        [
            (1, 1, JobStatus.DEAD),
            (1, 2, JobStatus.FAILED),
            (2, 2, JobStatus.DEAD),
            (4, 5, JobStatus.FAILED),
            (5, 5, JobStatus.DEAD),
            (6, 5, JobStatus.DEAD),
            (10**9, None, JobStatus.FAILED),
        ],
    )
    def test_the_last_attempt_makes_it_dead_with_the_same_cause(
        self, cause: Cause, attempt: int, max_attempts: int | None, status: JobStatus
    ) -> None:
        error = an_error(cause)

        ended = after(
            AttemptEnd(cause=cause, error=error), attempt=attempt, max_attempts=max_attempts
        )

        assert (ended.status, ended.cause, ended.error) == (status, cause, error)

    def test_an_error_that_is_final_makes_it_dead_at_once(self, cause: Cause) -> None:
        ended = after(AttemptEnd(cause=cause, retryable=False), max_attempts=None)

        assert (ended.status, ended.cause) == (JobStatus.DEAD, cause)

    @pytest.mark.parametrize(
        ("asked", "delay"),
        [(ZERO, ZERO), (3 * SECOND, 3 * SECOND), (-SECOND, ZERO), (timedelta.max, LONGEST_DELAY)],
    )
    def test_a_delay_the_handler_chose_replaces_the_backoff(
        self, cause: Cause, asked: timedelta, delay: timedelta
    ) -> None:
        assert after(AttemptEnd(cause=cause, delay=asked)).delay == delay

    def test_a_policy_of_the_user_sees_the_attempt_and_the_exception(self, cause: Cause) -> None:
        raised = ValueError("no")
        seen: list[tuple[int, BaseException | None]] = []

        def policy(attempt: int, error: BaseException | None) -> float:
            seen.append((attempt, error))
            return 2.0

        failed = after(AttemptEnd(cause=cause, exception=raised), Rules(retry=policy), attempt=3)

        assert failed.delay == 2 * SECOND
        assert seen == [(3, raised)]


def test_a_rejected_job_is_dead_at_once() -> None:
    error = an_error(Cause.REJECTED)

    dead = after(AttemptEnd(cause=Cause.REJECTED, error=error), max_attempts=None)

    assert dead == Transition(status=JobStatus.DEAD, cause=Cause.REJECTED, error=error)


def test_a_cancelled_job_is_cancelled() -> None:
    error = an_error(Cause.CANCELLED)

    ended = after(AttemptEnd(cause=Cause.CANCELLED, error=error))

    assert ended == Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED, error=error)


@pytest.mark.parametrize("cause", [Cause.INTERRUPTED, Cause.RELEASED])
@pytest.mark.parametrize("attempt", [1, 5])
def test_an_interrupted_attempt_is_handed_back_also_the_last_one(
    cause: Cause, attempt: int
) -> None:
    back = after(AttemptEnd(cause=cause), attempt=attempt, snoozes=10**6)

    assert back == Transition(status=JobStatus.PENDING, cause=cause, delay=None, hand_back=True)


@pytest.mark.parametrize("cause", [Cause.THROTTLED, Cause.SNOOZED])
class TestHandedBackAndCounted:
    def test_the_attempt_does_not_count_and_a_snooze_does(self, cause: Cause) -> None:
        back = after(AttemptEnd(cause=cause), attempt=5)

        assert (back.status, back.cause) == (JobStatus.PENDING, cause)
        assert back.hand_back
        assert back.count_snooze

    @pytest.mark.parametrize(("snoozes", "is_dead"), [(2, False), (3, True)])
    def test_the_one_after_the_handlers_max_snoozes_is_dead_and_says_so(
        self, cause: Cause, snoozes: int, is_dead: bool
    ) -> None:
        ended = after(
            AttemptEnd(cause=cause, error=an_error(cause)),
            Rules(max_snoozes=3),
            snoozes=snoozes,
            snoozed_since=NOW - 1000 * Rules().snooze_budget,
            max_attempts=None,
        )

        self.check(ended, cause, "max_snoozes is 3" if is_dead else None)

    @pytest.mark.parametrize(("seconds", "is_dead"), [(3599, False), (3600, True)])
    def test_without_one_the_first_that_is_due_after_the_budget_is_dead(
        self, cause: Cause, seconds: int, is_dead: bool
    ) -> None:
        ended = after(
            AttemptEnd(cause=cause, error=an_error(cause)),
            Rules(snooze_budget=3600 * SECOND),
            snoozes=10**6,
            snoozed_since=NOW - seconds * SECOND,
            run_at=NOW,
            max_attempts=None,
        )

        self.check(ended, cause, "snooze_budget is 1:00:00" if is_dead else None)

    def check(self, ended: Transition, cause: Cause, reason: str | None) -> None:
        status = JobStatus.PENDING if reason is None else JobStatus.DEAD
        assert (ended.status, ended.cause) == (status, cause)
        assert (ended.hand_back, ended.count_snooze) == (reason is None, reason is None)
        if reason is not None:
            assert ended.error is not None
            assert (ended.error.type, ended.error.cause) == ("TooManySnoozes", cause)
            assert reason in ended.error.message
            assert ended.error.host_id == "pod"


def test_a_job_that_snoozes_for_no_time_is_slowed_down_to_once_a_second() -> None:
    def delay(snoozes: int, asked: timedelta = ZERO) -> timedelta:
        return after(AttemptEnd(cause=Cause.SNOOZED, delay=asked), snoozes=snoozes).delay or ZERO

    assert [delay(0), delay(19), delay(20), delay(21)] == [ZERO, ZERO, SECOND / 100, SECOND / 50]
    assert delay(10**6) == SECOND
    assert delay(10**6, 5 * SECOND) == 5 * SECOND


def test_a_snoozed_job_is_due_after_the_delay_it_asked_for() -> None:
    assert after(AttemptEnd(cause=Cause.SNOOZED, delay=30 * SECOND)).delay == 30 * SECOND
    assert after(AttemptEnd(cause=Cause.SNOOZED)).delay == ZERO
    assert after(AttemptEnd(cause=Cause.SNOOZED, delay=timedelta.max)).delay == LONGEST_DELAY
    assert after(AttemptEnd(cause=Cause.SNOOZED)).cooldown is None


def test_a_wait_for_a_limit_counts_toward_nothing_and_cools_nothing_down() -> None:
    end = AttemptEnd(cause=Cause.RATE_LIMITED, rate_limit="gh", delay=30 * SECOND)
    back = after(
        end,
        Rules(max_snoozes=1, snooze_budget=SECOND),
        attempt=5,
        snoozes=10**6,
        snoozed_since=NOW - 1000 * Rules().snooze_budget,
    )

    assert back == Transition(
        status=JobStatus.PENDING,
        cause=Cause.RATE_LIMITED,
        delay=30 * SECOND,
        hand_back=True,
        rate_limit="gh",
    )


@pytest.mark.parametrize("snoozes", [0, 100])
def test_a_throttled_job_cools_its_queue_down_also_with_its_last_snooze(snoozes: int) -> None:
    rules = Rules(
        cooldown=CooldownPolicy(mode="exponential"),
        cooldown_level=2,
        cooldown_ended_for=SECOND,
        max_snoozes=100,
    )

    by_level = after(AttemptEnd(cause=Cause.THROTTLED), rules, snoozes=snoozes)
    as_asked = after(
        AttemptEnd(cause=Cause.THROTTLED, retry_after=5 * SECOND), rules, snoozes=snoozes
    )

    assert (by_level.status is JobStatus.DEAD) == (snoozes == 100)
    assert by_level.cooldown == Cooldown(timedelta(minutes=4), 3)
    assert as_asked.cooldown == Cooldown(5 * SECOND, 3)
    assert by_level.delay == ZERO


@pytest.mark.parametrize(
    "cause", sorted(set(Cause) - set(ENDS) - {Cause.CRASHED, Cause.KEY_MISSING, Cause.STRUCK})
)
def test_what_is_not_the_end_of_an_attempt_is_refused(cause: Cause) -> None:
    with pytest.raises(ValueError, match=cause):
        after(AttemptEnd(cause=cause))


class TestStaleClaims:
    def test_a_first_crash_uses_one_attempt_and_the_job_keeps_its_place(self) -> None:
        stale = a_stale_claim(attempt=3)

        revived = stale_transition(stale, 3, PAUSE)

        assert (revived.status, revived.cause) == (JobStatus.PENDING, Cause.CRASHED)
        assert (revived.delay, revived.hand_back, revived.count_crash) == (None, False, True)
        assert revived.error is not None
        assert (revived.error.attempt, revived.error.cause) == (3, Cause.CRASHED)
        assert revived.error.host_id == stale.claim.host_id

    def test_from_the_second_crash_on_it_waits_twice_as_long_each_time(self) -> None:
        delays = [
            stale_transition(a_stale_claim(crashes=crashes, max_attempts=None), 10**6, PAUSE).delay
            for crashes in (1, 2, 3, 100_000)
        ]

        assert delays == [PAUSE, 2 * PAUSE, 4 * PAUSE, LONGEST_CRASH_PAUSE]

    @pytest.mark.parametrize(
        ("crashes", "max_crashes", "status"),
        [
            (0, 1, JobStatus.DEAD),
            (0, 3, JobStatus.PENDING),
            (1, 3, JobStatus.PENDING),
            (2, 3, JobStatus.DEAD),
            (7, 3, JobStatus.DEAD),
        ],
    )
    def test_the_last_crash_allowed_makes_it_dead_with_that_reason(
        self, crashes: int, max_crashes: int, status: JobStatus
    ) -> None:
        ended = stale_transition(
            a_stale_claim(crashes=crashes, max_attempts=None), max_crashes, PAUSE
        )

        assert (ended.status, ended.cause, ended.count_crash) == (status, Cause.CRASHED, True)
        assert ended.error is not None
        suspected = "suspected of killing its process" in ended.error.message
        assert suspected == (status is JobStatus.DEAD)

    @pytest.mark.parametrize("started", [True, False])
    @pytest.mark.parametrize(
        ("attempt", "max_attempts", "status"),
        [(4, 5, JobStatus.PENDING), (5, 5, JobStatus.DEAD), (10**9, None, JobStatus.PENDING)],
    )
    def test_a_first_crash_on_the_last_attempt_makes_it_dead(
        self, attempt: int, max_attempts: int | None, status: JobStatus, *, started: bool
    ) -> None:
        stale = a_stale_claim(attempt=attempt, max_attempts=max_attempts, started=started)

        ended = stale_transition(stale, 3, PAUSE)

        assert (ended.status, ended.cause) == (status, Cause.CRASHED)

    @pytest.mark.parametrize("attempt", [2, 5])
    def test_a_further_claim_that_never_started_costs_nothing(self, attempt: int) -> None:
        stale = a_stale_claim(crashes=2, started=False, attempt=attempt)

        assert stale_transition(stale, 3, PAUSE) == Transition(
            status=JobStatus.PENDING, cause=Cause.CRASHED, delay=None, hand_back=True
        )

    @pytest.mark.parametrize("crashes", [0, 2])
    @pytest.mark.parametrize("started", [True, False])
    def test_one_that_was_asked_to_cancel_is_cancelled(
        self, crashes: int, *, started: bool
    ) -> None:
        stale = a_stale_claim(cancel_requested=True, crashes=crashes, started=started, attempt=5)

        ended = stale_transition(stale, 3, PAUSE)

        assert (ended.status, ended.cause) == (JobStatus.CANCELLED, Cause.CANCELLED)
        assert ended.count_crash == (started or crashes == 0)


CRASH = "crash"
LOST = "lost before its start"


@given(
    st.none() | st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 6),
    st.lists(st.sampled_from([*ENDS, CRASH, LOST]), max_size=80),
)
def test_no_order_of_events_breaks_a_bound(
    max_attempts: int | None, max_crashes: int, max_snoozes: int, events: list[str]
) -> None:
    """A store's bookkeeping, driven by the rules: at most ``max_attempts`` runs that ended by
    themselves or by a crash, ``max_crashes`` crashes and ``max_snoozes`` hand-backs."""
    rules = Rules(max_snoozes=max_snoozes)
    attempt = crashes = snoozes = used = 0
    status = JobStatus.PENDING
    for event in events:
        if status not in {JobStatus.PENDING, JobStatus.FAILED}:
            break
        attempt += 1
        if event in {CRASH, LOST}:
            step = stale_transition(
                a_stale_claim(
                    attempt=attempt,
                    max_attempts=max_attempts,
                    crashes=crashes,
                    started=event == CRASH,
                ),
                max_crashes,
                PAUSE,
            )
        else:
            step = after(
                AttemptEnd(cause=Cause(event)),
                rules,
                attempt=attempt,
                max_attempts=max_attempts,
                crashes=crashes,
                snoozes=snoozes,
            )
        attempt -= step.hand_back
        crashes += step.count_crash
        snoozes += step.count_snooze
        used += not step.hand_back
        status = step.status

        assert step.status not in {JobStatus.IN_PROGRESS, JobStatus.BLOCKED}
        assert step.delay is None or step.delay >= ZERO
        assert attempt == used
        assert max_attempts is None or attempt <= max_attempts
        assert crashes <= max_crashes
        assert snoozes <= max_snoozes
        if max_attempts is not None and attempt == max_attempts:
            assert status not in {JobStatus.PENDING, JobStatus.FAILED}
