"""The end of a run: the transition, the log line, the event, the latency."""

import contextlib
from datetime import timedelta
from typing import Any

from msgspec import structs

from forge_jobs.durations import format_duration
from forge_jobs.handlers.handler import Handler
from forge_jobs.model.events import EventKind
from forge_jobs.model.jobs import Cause, ClaimedJob, JobStatus
from forge_jobs.model.queues import CooldownPolicy, QueueState
from forge_jobs.model.transitions import Transition
from forge_jobs.policy.backoff import DEFAULT_RETRY, RetryPolicy
from forge_jobs.policy.transitions import AttemptEnd, Rules, grouped, next_transition
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.failures import error_record
from forge_jobs.runtime.queue.services import PodServices

logger = reporter(__name__)

_DEFAULT_COOLDOWN = CooldownPolicy()
_NO_RULES = Rules()
_SUCCEEDED = Cause.SUCCEEDED.value
"""Looked up once: most ends are of this cause."""

_FREQUENT = {Cause.SUCCEEDED, Cause.RATE_LIMITED}
"""Ends that come in thousands: their events are recorded only as fast as people can read."""


def decide(
    end: AttemptEnd,
    job: ClaimedJob,
    state: QueueState | None,
    seconds: float,
    services: PodServices,
) -> Transition:
    """Return where the job goes by the rules of the handler and the queue. Never raises.

    An exception within a rule ends the attempt as failed, with the record of that exception.

    :param state: the queue as known when the run began. Runs that were under way when the queue was
        throttled raise the cool-down by one level together, not by one level each
    :param seconds: how long the run took
    """
    if end.cause is Cause.SUCCEEDED:
        # No rule concerns a success, and most ends are successes.
        return next_transition(end, job, _NO_RULES, services.rng)
    try:
        rules = _rules(job, state, seconds, services)
        return _timed(grouped(next_transition(end, job, rules, services.rng), job.kind), seconds)
    except BaseException as error:  # the claim needs an end in any case
        logger.exception(
            "job %s of queue %s: the retry policy, or another rule for the end of a run, raised an "
            "exception; the attempt counts as failed",
            job.claim.job_id,
            job.claim.queue,
        )
        record = error_record(error, Cause.FAILED, attempt=job.attempt, host_id=services.host_id)
        failure = AttemptEnd(cause=Cause.FAILED, error=record)
        transition = next_transition(failure, job, _NO_RULES, services.rng)
        return _timed(grouped(transition, job.kind), seconds)


def _timed(transition: Transition, seconds: float) -> Transition:
    """Return the transition with how long the attempt took in the record of its error."""
    if transition.error is None:
        return transition
    error = structs.replace(transition.error, ran_for=timedelta(seconds=max(0.0, seconds)))
    return structs.replace(transition, error=error)


def _rules(
    job: ClaimedJob, state: QueueState | None, seconds: float, services: PodServices
) -> Rules:
    handler = services.handlers.get(job.kind)
    max_crashes = None if handler is None else handler.options.max_crashes
    ended_for = None if state is None else state.cooldown_ended_for
    return Rules(
        retry=_retry(handler, state) or DEFAULT_RETRY,
        max_snoozes=None if handler is None else handler.options.max_snoozes,
        snooze_budget=services.settings.snooze_budget,
        max_crashes=services.settings.max_crashes if max_crashes is None else max_crashes,
        crash_pause=services.settings.lease,
        cooldown=_DEFAULT_COOLDOWN if state is None else state.settings.cooldown,
        cooldown_level=0 if state is None else state.cooldown_level,
        cooldown_ended_for=None if ended_for is None else ended_for + timedelta(seconds=seconds),
    )


def _retry(handler: Handler[..., Any] | None, state: QueueState | None) -> RetryPolicy | None:
    """Return the handler's own policy, else the queue's."""
    if handler is not None and handler.options.retry is not None:
        return handler.options.retry
    return None if state is None else state.settings.retry


def _event(cause: Cause, transition: Transition) -> tuple[EventKind, str]:
    """Return the kind and the detail of the event of an end that is no success."""
    if transition.status is JobStatus.FAILED and transition.delay is not None:
        milliseconds = timedelta(milliseconds=1)
        delay = format_duration(transition.delay // milliseconds * milliseconds)
        return EventKind.RETRIED, f"{cause}; due again in {delay}"
    if cause is Cause.CRASHED and transition.status is JobStatus.PENDING:
        return EventKind.RETRIED, f"{cause}; due again"
    if cause is Cause.THROTTLED:
        return EventKind.THROTTLED, cause
    return EventKind.FINISHED, cause


def tell(
    job: ClaimedJob,
    end: AttemptEnd,
    transition: Transition,
    seconds: float,
    services: PodServices,
    *,
    now: float,
) -> None:
    """Log, record and measure the end of a run that took ``seconds``. Never raises.

    :param now: ``Clock.elapsed``
    """
    claim, cause = job.claim, end.cause
    try:
        if cause in _FREQUENT:
            services.events.record_routine(EventKind.FINISHED, claim, cause, now)
        else:
            kind, detail = _event(cause, transition)
            services.events.record(kind, queue=claim.queue, job_id=claim.job_id, detail=detail)
        if seconds and cause is not Cause.RATE_LIMITED:
            due_at = job.run_at.timestamp()
            ended = _SUCCEEDED if cause is Cause.SUCCEEDED else cause.value
            services.latencies.record(claim.queue, seconds, due_at, kind=job.kind, ended=ended)
        if transition.error is not None:
            services.failures.record(claim, job.kind, transition)
        services.job_log.ended(job, end, transition, seconds)
    except BaseException as error:  # filters of the log, and exceptions, are the program's code
        with contextlib.suppress(BaseException):
            logger.error(
                "could not log or record the result of job %s: %s",
                claim.job_id,
                type(error).__qualname__,
                exc_info=error if isinstance(error, Exception) else None,
            )
