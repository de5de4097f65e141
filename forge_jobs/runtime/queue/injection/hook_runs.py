"""Calls the hooks of a run that has ended, within a bounded time, before the end is stored."""

import asyncio
import contextvars
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from msgspec import structs

from forge_jobs.handlers.around.hooks import Hook, RunEnd
from forge_jobs.handlers.injection.plan import SharedPlan
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import ErrorRecord, JobStatus
from forge_jobs.model.transitions import Transition
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.failures import (
    TRACEBACK_BYTES,
    error_record,
    message_of,
    redacted,
)
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.shared.clean_texts import clean_text
from forge_jobs.runtime.shared.pod_values import PodValues
from forge_jobs.runtime.shared.threads import HandlerThread, ThreadEnd

logger = reporter(__name__)

T = TypeVar("T")

_TO_CLEAN_UP = 0.25
"""The part of their time that hooks get once more, after the cancellation."""


class HookScope:
    """A ``RunScope`` over one hook.

    :param context: returns the JobContext of the run
    :param thread: returns a thread
    :param values: of the pod
    """

    def __init__(
        self,
        hook: Hook,
        context: Callable[[], Any],
        thread: Callable[[], HandlerThread],
        values: PodValues,
    ) -> None:
        self._hook = hook
        self._make_context = context
        self._take_thread = thread
        self._values = values
        self._variables = contextvars.copy_context()
        self._thread_end: ThreadEnd | None = None

    @property
    def context(self) -> Any:
        return self._make_context()

    async def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> object:
        if self._hook.is_async:
            return await function(**arguments)
        return await self.in_thread(partial(function, **arguments))

    async def in_thread(self, call: Callable[[], T], /) -> T:
        self._thread_end = end = self._take_thread().call(call, self._variables)
        value, error = await end
        if error is not None:
            raise error
        made: T = value
        return made

    async def shared(self, plan: SharedPlan) -> Any:
        return await self._values.get(plan)

    def go_on(self) -> None:
        """Do nothing: no stop of the run reaches a hook."""

    def clean_up_failed(
        self, name: str, raised: BaseException, error: BaseException | None
    ) -> BaseException | None:
        raised.add_note(f"raised by the clean-up of {name}")
        return raised

    def middleware_failed(
        self, name: str, raised: BaseException, error: BaseException | None
    ) -> BaseException | None:
        """Do nothing: hooks have no middleware."""
        return error

    def leave(self) -> None:
        """Wait no longer for a thread that goes on."""
        if self._thread_end is not None and not self._thread_end.done():
            self._thread_end.leave()


class HookRuns:
    """The hooks of one run.

    :param scope: makes the scope of a hook
    :param seconds: for all hooks together, before they are cancelled
    """

    def __init__(
        self, run: Run, host_id: HostId, scope: Callable[[Hook], HookScope], seconds: float
    ) -> None:
        self._run = run
        self._host_id = host_id
        self._scope = scope
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._until = 0.0
        self._cut: asyncio.Future[None] = self._loop.create_future()
        """Done when the hooks have to end: the pod stops, or the claim is lost."""

    async def call(self, transition: Transition, exception: BaseException | None) -> Transition:
        """Call the hooks for the decided end. Return the end with their failures. Never raises.

        :param exception: of the handler
        """
        hooks = self._run.handler.hooks
        end = _run_end(transition, exception)
        self._until = self._loop.time() + self._seconds
        self._run.cut_hooks = self._cut_short
        for hook in () if hooks is None else hooks.of(end):
            try:
                failure = await self._called(hook, end)
            except asyncio.CancelledError as cancelled:  # of this task: the event loop ends
                failure = cancelled
                self._cut_short()
            if failure is not None:
                transition = self._with_failure(transition, hook, failure)
                self._log(hook, failure)
        self._run.cut_hooks = None
        return transition

    def _cut_short(self) -> None:
        if not self._cut.done():
            self._cut.set_result(None)

    async def _called(self, hook: Hook, end: RunEnd) -> BaseException | None:
        """Call one hook. Return the exception by which the hook failed."""
        if self._cut.done():
            return TimeoutError("not called: the worker had to stop")
        seconds = self._until - self._loop.time()
        if seconds <= 0:
            return TimeoutError(f"not called: other hooks have used the {self._seconds:g} s of all")
        arguments = {} if hook.end_parameter is None else {hook.end_parameter: end}
        scope = self._scope(hook)
        task = asyncio.ensure_future(_caught(hook, scope, arguments))
        try:
            either: set[asyncio.Future[Any]] = {task, self._cut}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            # A timer may ring before its time, and no other hook is called for what was left.
            self._until = self._loop.time()
            task.cancel()
            await asyncio.wait({task}, timeout=self._seconds * _TO_CLEAN_UP)
        finally:
            if not task.done():
                task.cancel()
                scope.leave()
        if self._cut.done():
            return TimeoutError("the hook had not ended when the worker had to stop")
        return TimeoutError(f"the hook did not end within {self._seconds:g} s")

    def _with_failure(
        self, transition: Transition, hook: Hook, failure: BaseException
    ) -> Transition:
        """Return the end with the failure of a hook in the error of the job."""
        record = transition.error
        if record is None:
            failure.add_note(f"raised by the hook {hook.name} ({hook.event})")
            attempt = self._run.job.attempt
            record = error_record(failure, transition.cause, attempt=attempt, host_id=self._host_id)
        else:
            raised = f"{type(failure).__name__}: {message_of(failure)}"
            record = _noted(record, f"and the hook {hook.name} ({hook.event}) raised {raised}")
        return structs.replace(transition, error=redacted(record, self._run.secrets()))

    def _log(self, hook: Hook, failure: BaseException) -> None:
        job = self._run.job
        # The text of an exception may hold a secret of the payload. The job's record hides those.
        is_shown = isinstance(failure, Exception) and not self._run.has_secrets
        logger.error(
            "the hook %s (%s) of job %s (%s) failed: %s",
            hook.name,
            hook.event,
            job.claim.job_id,
            job.kind,
            type(failure).__name__,
            exc_info=failure if is_shown else None,
            extra={"job_id": job.claim.job_id, "kind": job.kind, "queue": job.claim.queue},
        )


def _run_end(transition: Transition, exception: BaseException | None) -> RunEnd:
    runs_again = transition.status in (JobStatus.FAILED, JobStatus.PENDING)
    return RunEnd(
        status=transition.status,
        cause=transition.cause,
        error=transition.error,
        exception=exception,
        retry_in=transition.delay or timedelta(0) if runs_again else None,
    )


def _noted(record: ErrorRecord, note: str) -> ErrorRecord:
    text = f"{record.traceback.rstrip()}\n{note}\n".lstrip()
    return structs.replace(record, traceback=clean_text(text, TRACEBACK_BYTES, keep_end=True))


async def _caught(hook: Hook, scope: HookScope, arguments: dict[str, Any]) -> BaseException | None:
    """Call a hook. Return the exception that the hook raises."""
    try:
        await hook.run(scope, arguments)
    except GeneratorExit:
        raise  # the event loop is gone
    except BaseException as raised:  # SystemExit would end the loop and all other jobs
        return raised
    return None
