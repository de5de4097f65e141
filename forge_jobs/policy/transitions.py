"""The end of an attempt: (how the attempt ended, job, rules) -> Transition."""

from collections.abc import Callable
from datetime import timedelta

from msgspec import Struct, structs

from forge_jobs.model.failures.fingerprints import error_group
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Cause, ClaimedJob, ErrorRecord, Hold, JobStatus
from forge_jobs.model.queues import CooldownPolicy
from forge_jobs.model.transitions import Occurrence, StaleClaim, Transition
from forge_jobs.policy.backoff import (
    DEFAULT_RETRY,
    RetryPolicy,
    bounded_delay,
    crash_delay,
    retry_delay,
)
from forge_jobs.policy.cooldowns import next_cooldown
from forge_jobs.policy.randomness import Randomness

KEY_PAUSE = timedelta(seconds=30)
"""How long a job waits for a pod that has the key of the payload, before the next try."""

_FREE_SNOOZES = 20
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(milliseconds=10), timedelta(seconds=1)


class AttemptEnd(Struct, frozen=True, kw_only=True):
    """How one attempt ended.

    :param cause: succeeded, failed, timed_out, rejected, throttled, snoozed, rate_limited,
        key_missing, crashed (the handler's own process), interrupted, released, cancelled,
        dropped or struck
    :param error: of a failure. Also of a success whose result could not be encoded
    :param result: JSON text of what the handler returned
    :param retryable: False: the handler's rules say that this error is final
    :param delay: failed, timed_out: instead of the backoff. Snoozed, rate_limited, and succeeded
        with ``again``: until the job is due again
    :param retry_after: throttled: how long the upstream asked to be left alone
    :param rate_limit: rate_limited: the scope that the job waits for. Struck: the strike's mark,
        None while the strikes are not known
    :param tokens: rate_limited: how many tokens the job needs at once
    :param exception: raised by the handler, for retry policies
    :param again: succeeded: the job begins a new occurrence instead of being done
    :param is_final: struck: the job is cancelled instead of held
    :param is_redacted: secrets were taken out of ``error``, so ``exception`` must not be shown
    """

    cause: Cause
    error: ErrorRecord | None = None
    result: str | None = None
    retryable: bool = True
    delay: timedelta | None = None
    retry_after: timedelta | None = None
    rate_limit: str | None = None
    tokens: int = 1
    exception: BaseException | None = None
    again: Occurrence | None = None
    is_final: bool = False
    is_redacted: bool = False


SUCCESS = AttemptEnd(cause=Cause.SUCCEEDED)
"""Of a job that keeps no result."""


class Rules(Struct, frozen=True, kw_only=True):
    """The rules of a decision, beside the job itself.

    :param max_snoozes: hand-backs by snooze or throttle before the next one makes the job dead.
        None: ``snooze_budget`` decides
    :param snooze_budget: how long after the first hand-back one more makes the job dead
    :param max_crashes: the crash that makes the job dead, at least 1
    :param crash_pause: after the second crash, see :func:`crash_delay`
    :param cooldown_level: see ``cooldowns.next_cooldown``
    :param cooldown_ended_for: see ``cooldowns.next_cooldown``
    """

    retry: RetryPolicy = DEFAULT_RETRY
    max_snoozes: int | None = None
    snooze_budget: timedelta = timedelta(days=7)
    max_crashes: int = 3
    crash_pause: timedelta = timedelta(seconds=30)
    cooldown: CooldownPolicy = CooldownPolicy()
    cooldown_level: int = 0
    cooldown_ended_for: timedelta | None = None


def next_transition(end: AttemptEnd, job: ClaimedJob, rules: Rules, rng: Randomness) -> Transition:
    """Decide where the job goes after this end of the attempt.

    A job has at most ``max_attempts`` runs that end by themselves, by timeout or by a crash.
    Runs handed back do not count. Those by snooze and throttle are bounded by
    ``rules.snooze_budget`` or ``rules.max_snoozes`` instead, others (interrupted, released, waiting
    for a rate limit) are not the job's doing.

    :raises ValueError: ``end.cause`` is not how an attempt ends
    """
    if end is SUCCESS:
        return _DONE
    decide = _DECISIONS.get(end.cause)
    if decide is None:
        raise ValueError(f"an attempt does not end as {end.cause}")
    return decide(end, job, rules, rng)


def stale_transition(stale: StaleClaim, max_crashes: int, pause: timedelta) -> Transition:
    """Decide where a job with a stale claim goes, with one attempt and one crash used.

    After the first crash the job keeps its due time and place in the queue: the process
    died, and that is mostly not the job's doing. From the second crash on the job waits for
    ``pause``, twice as long after each further one, so that others run between.

    Dead at crash number ``max_crashes``, which stops a job that kills processes, and when
    the attempts are used up. Cancelled when that was asked for.

    The first crash counts whether or not a start is known, since starts are made known by beats
    only. A job with a crash on record has its start recorded before it runs. So without such a
    record no handler ran: the attempt is handed back and no crash is counted.

    :param max_crashes: at least 1
    """
    counts = stale.started or stale.crashes == 0
    if stale.cancel_requested:
        return Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED, count_crash=counts)
    if not counts:
        return Transition(status=JobStatus.PENDING, cause=Cause.CRASHED, delay=None, hand_back=True)
    message = "the claim went stale: its process died, or lost the store"
    if stale.crashes + 1 >= max_crashes:
        message = f"crash {stale.crashes + 1} of {max_crashes}: suspected of killing its process"
    return _crashed(stale, stale.claim.host_id, message, max_crashes, pause)


def grouped(transition: Transition, kind: str) -> Transition:
    """Return the transition with the group of the failure, when the end of the attempt is one.

    A failure is an end by an error after which the job waits for its retry or is dead, and a crash.

    :param kind: of the job
    """
    error = transition.error
    is_failure = transition.status in _FAILED or transition.cause is Cause.CRASHED
    if error is None or not is_failure:
        return transition
    group = error_group(kind, error.type, error.message)
    return structs.replace(transition, error=structs.replace(error, error_group=group))


_FAILED = frozenset({JobStatus.FAILED, JobStatus.DEAD})


def _crashed(
    stale: StaleClaim | ClaimedJob,
    host_id: HostId,
    message: str,
    max_crashes: int,
    pause: timedelta,
) -> Transition:
    """Decide where a job goes that had one more crash."""
    crashes, status = stale.crashes + 1, JobStatus.PENDING
    delay = None if crashes == 1 else crash_delay(crashes, pause)
    if crashes >= max_crashes:
        status, delay = JobStatus.DEAD, None
    elif stale.max_attempts is not None and stale.attempt >= stale.max_attempts:
        status = JobStatus.DEAD
    error = ErrorRecord(
        attempt=stale.attempt, cause=Cause.CRASHED, type="Crashed", message=message, host_id=host_id
    )
    return Transition(
        status=status, cause=Cause.CRASHED, delay=delay, count_crash=True, error=error
    )


def _process_died(end: AttemptEnd, job: ClaimedJob, rules: Rules, _rng: Randomness) -> Transition:
    """Decide for a job whose handler had a process to itself: the job killed that process."""
    message = end.error.message if end.error else "the process of the handler died"
    if job.crashes + 1 >= rules.max_crashes:
        message = f"crash {job.crashes + 1} of {rules.max_crashes}: {message}"
    host_id = job.claim.host_id
    return _crashed(job, host_id, message, rules.max_crashes, rules.crash_pause)


def begin_again(
    again: Occurrence, after: timedelta, error: ErrorRecord | None = None
) -> Transition:
    """Return the transition of a success after which the job begins anew."""
    return Transition(
        status=JobStatus.PENDING,
        cause=Cause.SUCCEEDED,
        delay=bounded_delay(after),
        error=error,
        again=again,
    )


def _succeeded(end: AttemptEnd, job: ClaimedJob, _rules: Rules, _rng: Randomness) -> Transition:
    if end.again is not None:
        return begin_again(end.again, end.delay or timedelta(0), end.error)
    return Transition(
        status=JobStatus.DONE,
        cause=end.cause,
        result=end.result if job.keep_result else None,
        error=end.error,
    )


_DONE = Transition(status=JobStatus.DONE, cause=Cause.SUCCEEDED)


def _failed(end: AttemptEnd, job: ClaimedJob, rules: Rules, rng: Randomness) -> Transition:
    used_up = job.max_attempts is not None and job.attempt >= job.max_attempts
    if used_up or not end.retryable:
        return Transition(status=JobStatus.DEAD, cause=end.cause, error=end.error)
    if end.delay is not None:
        delay = bounded_delay(end.delay)
    else:
        delay = retry_delay(rules.retry, job.attempt, error=end.exception, rng=rng)
    return Transition(status=JobStatus.FAILED, cause=end.cause, delay=delay, error=end.error)


def _rejected(end: AttemptEnd, _job: ClaimedJob, _rules: Rules, _rng: Randomness) -> Transition:
    return Transition(status=JobStatus.DEAD, cause=end.cause, error=end.error)


def _throttled(end: AttemptEnd, job: ClaimedJob, rules: Rules, _rng: Randomness) -> Transition:
    cooldown = next_cooldown(
        rules.cooldown, rules.cooldown_level, rules.cooldown_ended_for, end.retry_after
    )
    spent = _spent_budget(end, job, rules)
    if spent is not None:
        return Transition(status=JobStatus.DEAD, cause=end.cause, error=spent, cooldown=cooldown)
    # Due at once: the queue's pause holds the job back, and an operator who ends the pause early
    # means this job too.
    return Transition(
        status=JobStatus.PENDING,
        cause=end.cause,
        hand_back=True,
        count_snooze=True,
        error=end.error,
        cooldown=cooldown,
    )


def _snoozed(end: AttemptEnd, job: ClaimedJob, rules: Rules, _rng: Randomness) -> Transition:
    spent = _spent_budget(end, job, rules)
    if spent is not None:
        return Transition(status=JobStatus.DEAD, cause=end.cause, error=spent)
    return Transition(
        status=JobStatus.PENDING,
        cause=end.cause,
        delay=max(bounded_delay(end.delay or timedelta(0)), _least_pause(job.snoozes)),
        hand_back=True,
        count_snooze=True,
        error=end.error,
    )


def _least_pause(snoozes: int) -> timedelta:
    """The least delay, which keeps a job with delays of zero from running without a pause."""
    if snoozes < _FREE_SNOOZES:
        return timedelta(0)
    doublings: int = min(snoozes - _FREE_SNOOZES, 20)
    return min(_FIRST_PAUSE * (1 << doublings), _LONGEST_PAUSE)


def _spent_budget(end: AttemptEnd, job: ClaimedJob, rules: Rules) -> ErrorRecord | None:
    """The error of a job that may not be handed back once more. None when it may."""
    if rules.max_snoozes is not None:
        if job.snoozes < rules.max_snoozes:
            return None
        budget = f"its handler's max_snoozes is {rules.max_snoozes}"
    else:
        # Both are of the store's clock. The job was due, and so looked at, at the second of them.
        if job.snoozed_since is None or job.run_at - job.snoozed_since < rules.snooze_budget:
            return None
        budget = (
            f"the last of them {job.run_at - job.snoozed_since} after the first; "
            f"snooze_budget is {rules.snooze_budget}, and a handler may set max_snoozes instead"
        )
    return ErrorRecord(
        attempt=job.attempt,
        cause=end.cause,
        type="TooManySnoozes",
        message=f"snoozed or throttled once more after {job.snoozes} times, {budget}",
        host_id=end.error.host_id if end.error else "",
    )


def _rate_limited(end: AttemptEnd, _job: ClaimedJob, _rules: Rules, _rng: Randomness) -> Transition:
    return Transition(
        status=JobStatus.PENDING,
        cause=end.cause,
        delay=bounded_delay(end.delay or timedelta(0)),
        hand_back=True,
        rate_limit=end.rate_limit,
    )


def _key_missing(_end: AttemptEnd, _job: ClaimedJob, _rules: Rules, _rng: Randomness) -> Transition:
    return Transition(
        status=JobStatus.PENDING, cause=Cause.KEY_MISSING, delay=KEY_PAUSE, hand_back=True
    )


def _struck(end: AttemptEnd, _job: ClaimedJob, _rules: Rules, _rng: Randomness) -> Transition:
    return Transition(
        status=JobStatus.CANCELLED if end.is_final else JobStatus.PENDING,
        cause=end.cause,
        # A held job keeps its place, for the time after the lift.
        delay=end.delay,
        hand_back=not end.is_final,
        error=end.error,
        rate_limit=end.rate_limit,
        hold=Hold.STRUCK if end.rate_limit is not None and not end.is_final else None,
    )


def _handed_back(end: AttemptEnd, _job: ClaimedJob, _rules: Rules, _rng: Randomness) -> Transition:
    # The job gave no reason to wait, so the place in the queue is kept.
    return Transition(
        status=JobStatus.PENDING, cause=end.cause, delay=None, hand_back=True, error=end.error
    )


def _cancelled(end: AttemptEnd, _job: ClaimedJob, _rules: Rules, _rng: Randomness) -> Transition:
    return Transition(status=JobStatus.CANCELLED, cause=end.cause, error=end.error)


_DECISIONS: dict[Cause, Callable[[AttemptEnd, ClaimedJob, Rules, Randomness], Transition]] = {
    Cause.SUCCEEDED: _succeeded,
    Cause.FAILED: _failed,
    Cause.TIMED_OUT: _failed,
    Cause.REJECTED: _rejected,
    Cause.THROTTLED: _throttled,
    Cause.SNOOZED: _snoozed,
    Cause.RATE_LIMITED: _rate_limited,
    Cause.KEY_MISSING: _key_missing,
    Cause.CRASHED: _process_died,
    Cause.INTERRUPTED: _handed_back,
    Cause.RELEASED: _handed_back,
    Cause.CANCELLED: _cancelled,
    Cause.DROPPED: _cancelled,
    Cause.STRUCK: _struck,
}
