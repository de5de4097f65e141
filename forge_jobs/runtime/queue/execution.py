"""Runs one handler once and says how the run ended. No exception of a handler gets out."""

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable
from typing import Protocol

from msgspec import structs

from forge_jobs.errors import DecryptionFailed, KeyMissing
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.outcomes import (
    Again,
    Dead,
    Failed,
    Outcome,
    RateLimited,
    Snoozed,
    Throttled,
    check_count,
    errors_in,
    remaining,
    said_by,
)
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Cause, ErrorRecord
from forge_jobs.model.names import check_name
from forge_jobs.model.payloads import ENCRYPTED_START
from forge_jobs.policy.transitions import SUCCESS, AttemptEnd
from forge_jobs.runtime.queue.context_calls import NeverAwaited
from forge_jobs.runtime.queue.failures import error_record
from forge_jobs.runtime.queue.injection.job_scope import JobScope, call_in_thread
from forge_jobs.runtime.queue.run import Run, StopReason
from forge_jobs.runtime.shared.pod_values import PodValues
from forge_jobs.runtime.shared.threads import HandlerThread, NoThread

_MEANT_WELL = {Cause.SUCCEEDED, Cause.SNOOZED, Cause.THROTTLED, Cause.RATE_LIMITED}

_STOPPED = {
    StopReason.CANCEL: Cause.CANCELLED,
    StopReason.TIMEOUT: Cause.TIMED_OUT,
    StopReason.SHUTDOWN: Cause.INTERRUPTED,
}


class Context(Protocol):
    """The part of a JobContext that concerns the end of a run."""

    def unawaited(self) -> tuple[str, ...]:
        """Return the names of the calls that the handler has not awaited."""
        ...


async def execute(
    run: Run,
    host_id: HostId,
    context: Callable[[Run], Context],
    thread: Callable[[], HandlerThread],
    values: PodValues,
) -> AttemptEnd | None:
    """Decode the payload, call the handler and encode the result. None: the claim was lost.

    An ``async def`` handler runs in the current task, a ``def`` handler in ``thread``. Only the end
    of the call ends the run of a ``def`` handler: a thread cannot be stopped, and the job must not
    run a second time beside the thread.

    :param context: makes the JobContext for handlers that take one
    :param thread: returns the worker's thread, which starts when first needed
    :param values: of the pod, for handlers whose parameters are injected
    """
    value: object = None
    error: BaseException | None = None
    handler, made = run.handler, None
    scope: JobScope | None = None
    if run.stop_reason is not None:
        return not_started(run)
    try:
        text = run.job.payload
        is_encrypted = text.startswith(ENCRYPTED_START)
        arguments = handler.decode(run.payload() if is_encrypted else text)
        if handler.context_parameter is not None:
            arguments[handler.context_parameter] = made = context(run)
    except BaseException as raised:  # validators are the handler's code and may raise anything
        return _raised(run, host_id, raised)
    try:
        if handler.run is not None:
            scope = JobScope(run, made, context, thread, values)
            run.begin(asyncio.current_task())
            value = await handler.run(scope, arguments)
        elif handler.is_async:
            run.begin(asyncio.current_task())
            value = await handler.function(**arguments)
        else:
            run.begin(None)
            function = functools.partial(handler.function, **arguments)
            value, error = await call_in_thread(run, function, thread(), contextvars.copy_context())
    except BaseException as raised:  # SystemExit would end the loop and all other jobs
        error = raised
        if run.pod_stops and isinstance(raised, asyncio.CancelledError):
            # By the program, which cancels all tasks of the event loop before the loop ends.
            run.stop_reason = run.stop_reason or StopReason.SHUTDOWN
    finally:
        run.finish()
    end = _judge(run, host_id, value, error)
    if scope is not None:
        made, end = scope.made_context, _with_failures(end, scope, run, host_id)
    if made is not None and made.unawaited() and end is not None and end.cause in _MEANT_WELL:
        return await _without_forgotten_calls(end, made, run, host_id)
    return end


def _raised(run: Run, host_id: HostId, error: BaseException) -> AttemptEnd:
    """Return the end of a run with this error. The job is not at fault when the pod lacks a key of
    this very job, of the payload or of the checkpoint, or of the result of a parent."""
    if (lost := _lost_key(run, error)) is not None:
        run.finish()
        return AttemptEnd(cause=Cause.KEY_MISSING, exception=lost)
    return _failed(run, host_id, error, Cause.FAILED)


def _lost_key(run: Run, error: BaseException) -> KeyMissing | None:
    """Return the lost key of this job, or of a parent, that alone has ended the run.

    Task groups raise a group of errors, also of one. With another error in the group the handler
    has failed: a run with the key would fail likewise, and the job would show no error.
    """
    lost, known = None, {run.job.claim.job_id, *run.parents}
    for each in errors_in(error):
        if not isinstance(each, KeyMissing) or each.job_id not in known:
            return None
        lost = each
    return lost


def _with_failures(
    end: AttemptEnd | None, scope: JobScope, run: Run, host_id: HostId
) -> AttemptEnd | None:
    """Return the end of a handler that a verdict ended, with the error of a clean-up beside it."""
    if end is None or end.error is not None or not scope.failures:
        return end
    return structs.replace(end, error=_record(run, host_id, scope.failures[-1], end.cause))


async def _without_forgotten_calls(
    end: AttemptEnd, context: Context, run: Run, host_id: HostId
) -> AttemptEnd:
    """Return the end of a handler that may have forgotten an ``await``. If so, the job is dead."""
    # A task that the handler made of the call in the last step begins before the loop returns here.
    turn = asyncio.get_running_loop().create_future()
    turn.get_loop().call_soon(turn.set_result, None)
    with contextlib.suppress(asyncio.CancelledError):
        await turn
    names = context.unawaited()
    if not names:
        return end
    forgotten = NeverAwaited(names)
    record = _record(run, host_id, forgotten, Cause.FAILED)
    return AttemptEnd(cause=Cause.FAILED, error=record, retryable=False, exception=forgotten)


def not_started(run: Run) -> AttemptEnd | None:
    """Return the end of a run that was stopped before the handler began."""
    run.finish()
    if run.stop_reason is StopReason.LOST:
        return None
    cancelled = run.stop_reason is StopReason.CANCEL
    return AttemptEnd(cause=Cause.CANCELLED if cancelled else Cause.RELEASED)


def _judge(
    run: Run, host_id: HostId, value: object, error: BaseException | None
) -> AttemptEnd | None:
    if run.stop_reason is StopReason.LOST:
        return None
    if error is None and isinstance(value, Outcome):
        error = value
    if error is None and isinstance(value, type) and issubclass(value, Outcome):
        return _returned_class(run, host_id, value)
    if error is None:
        return _succeeded(run, host_id, value) if run.job.keep_result else SUCCESS
    error = said_by(error)
    if isinstance(error, Again):
        return _begins_again(run, host_id, error)
    if run.stop_reason is not None:
        return stopped(run, host_id, error, run.stop_reason)
    if isinstance(error, Outcome):
        return _said(run, host_id, error)
    if isinstance(error, NoThread):
        return AttemptEnd(cause=Cause.RELEASED)  # the handler was not called
    return _raised(run, host_id, error)


def _begins_again(run: Run, host_id: HostId, outcome: Again) -> AttemptEnd:
    """Return a success with a next occurrence. The wish to cancel the job ends the job here.

    A next occurrence that cannot be made is a final failure: the work of this one is done.
    """
    if run.stop_reason is StopReason.CANCEL:
        return AttemptEnd(cause=Cause.CANCELLED)
    try:
        after = check_duration("after", outcome.after)
        again = run.next_occurrence(outcome.payload)
    except BaseException as raised:  # the arguments' own code, and attributes of a subclass
        record = _record(run, host_id, raised, Cause.FAILED)
        return AttemptEnd(cause=Cause.FAILED, error=record, retryable=False, exception=raised)
    return AttemptEnd(cause=Cause.SUCCEEDED, delay=after, again=again)


def _returned_class(run: Run, host_id: HostId, value: type[Outcome]) -> AttemptEnd:
    """Return a final failure, since the intent is unknown and no retry would change that."""
    name = value.__name__
    error = TypeError(
        f"the handler returned the class {name}, which says nothing; return or raise {name}(...)"
    )
    record = _record(run, host_id, error, Cause.FAILED)
    return AttemptEnd(cause=Cause.FAILED, error=record, retryable=False, exception=error)


def _succeeded(run: Run, host_id: HostId, value: object) -> AttemptEnd:
    try:
        # Where nothing is encrypted, the handler's text is the one to store.
        is_plain = run.handler.options.encryption is None
        encode = run.handler.encode_result if is_plain else run.encode_result
        return AttemptEnd(cause=Cause.SUCCEEDED, result=encode(value))
    except BaseException as raised:  # encoding calls the result's own code
        # The work is done: a result that JSON cannot carry must not cause a second run.
        record = _record(run, host_id, raised, Cause.SUCCEEDED)
        return AttemptEnd(cause=Cause.SUCCEEDED, error=record)


def stopped(run: Run, host_id: HostId, error: BaseException, reason: StopReason) -> AttemptEnd:
    """Return the end of a handler that was stopped from outside and ended with ``error``."""
    cause = _STOPPED[reason]
    if not isinstance(error, asyncio.CancelledError):
        record = _record(run, host_id, error, cause)
    elif reason is StopReason.TIMEOUT:
        record = ErrorRecord(
            attempt=run.job.attempt,
            cause=cause,
            type="TimeoutError",
            message=f"the handler did not end within {run.job.timeout}",
            traceback=_record(run, host_id, error, cause).traceback,
            host_id=host_id,
        )
    else:
        record = None
    timed_out = reason is StopReason.TIMEOUT
    return AttemptEnd(
        cause=cause,
        error=record,
        exception=error,
        retryable=not timed_out or is_retryable(run, TimeoutError()),
    )


def _said(run: Run, host_id: HostId, outcome: Outcome) -> AttemptEnd:
    """Return the end that the handler itself asked for.

    Durations are checked again here: the program may have changed the outcome since the constructor
    ran, or have made the outcome without the constructor.
    """
    try:
        if isinstance(outcome, Throttled):
            asked = outcome.retry_after
            after = None if asked is None else remaining("retry_after", asked)
            return AttemptEnd(cause=Cause.THROTTLED, retry_after=after)
        if isinstance(outcome, Snoozed):
            delay = check_duration("delay", outcome.delay)
            return AttemptEnd(cause=Cause.SNOOZED, delay=delay)
        if isinstance(outcome, RateLimited):
            scope, count = check_name("scope", outcome.scope), check_count(outcome.count)
            return AttemptEnd(cause=Cause.RATE_LIMITED, rate_limit=scope, tokens=count)
        retry_in = outcome.retry_in if isinstance(outcome, Failed) else None
        retry_in = None if retry_in is None else check_duration("retry_in", retry_in)
    except BaseException as raised:  # attributes of a subclass are the program's code
        return _failed(run, host_id, raised, Cause.FAILED)
    cause = Cause.REJECTED if isinstance(outcome, Dead) else Cause.FAILED
    record = _record(run, host_id, outcome, cause)
    return AttemptEnd(cause=cause, error=record, delay=retry_in, exception=outcome)


def _failed(run: Run, host_id: HostId, error: BaseException, cause: Cause) -> AttemptEnd:
    run.finish()
    return AttemptEnd(
        cause=cause,
        error=_record(run, host_id, error, cause),
        retryable=is_retryable(run, error),
        exception=error,
    )


def is_retryable(run: Run, error: BaseException) -> bool:
    """Return whether the rules of the handler allow another run after ``error``."""
    try:
        final = isinstance(error, DecryptionFailed)  # no later try reads another text
        return not final and run.handler.options.is_retryable(error)
    except Exception:  # an exception class may define __instancecheck__
        return True


def _record(run: Run, host_id: HostId, error: BaseException, cause: Cause) -> ErrorRecord:
    return error_record(error, cause, attempt=run.job.attempt, host_id=host_id)
