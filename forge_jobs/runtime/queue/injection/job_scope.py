"""A run of a handler with injected parameters, as the runtime offers it to them."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from forge_jobs.handlers.injection.plan import SharedPlan
from forge_jobs.handlers.outcomes import Outcome, said_by
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.run import Run, StopReason
from forge_jobs.runtime.shared.pod_values import PodValues
from forge_jobs.runtime.shared.threads import HandlerThread

logger = reporter(__name__)

T = TypeVar("T")


class JobScope:
    """A ``RunScope`` over one run. Made in the task of the run.

    :param context: the JobContext of the run, when there is one already
    :param make_context: makes the JobContext when a factory first asks for it
    :param thread: returns the thread of the run, if the handler or a factory needs one
    :param values: of the pod
    :ivar failures: exceptions of clean-ups that did not become the end of the run
    :raises NoThread: the system starts no further thread
    """

    def __init__(
        self,
        run: Run,
        context: Any,
        make_context: Callable[[Run], Any],
        thread: Callable[[], HandlerThread],
        values: PodValues,
    ) -> None:
        self.made_context = context
        self.failures: list[BaseException] = []
        self._run = run
        self._make_context = make_context
        # Taken before anything is made: without a thread the job is handed back untouched.
        self._thread = thread() if run.handler.needs_thread else None
        self._values = values
        self._task = asyncio.current_task()
        self._variables: contextvars.Context | None = None

    @property
    def context(self) -> Any:
        if self.made_context is None:
            self.made_context = self._make_context(self._run)
        return self.made_context

    async def call(self, function: Callable[..., Any], arguments: dict[str, Any]) -> object:
        if self._run.handler.is_async:
            return await function(**arguments)
        return await self.in_thread(partial(function, **arguments))

    async def in_thread(self, call: Callable[[], T], /) -> T:
        assert self._thread is not None, "the plan of the handler says that it needs no thread"
        if self._variables is None:
            self._variables = contextvars.copy_context()
        run = self._run
        run.enter_thread()
        try:
            value, error = await call_in_thread(run, call, self._thread, self._variables)
        finally:
            run.leave_thread(self._task)
        if error is not None:
            raise error
        made: T = value
        return made

    async def shared(self, plan: SharedPlan) -> Any:
        return await self._values.get(plan)

    def go_on(self) -> None:
        if self._run.stop_reason is not None:
            raise asyncio.CancelledError(f"the run is being stopped ({self._run.stop_reason})")

    def clean_up_failed(
        self, name: str, raised: BaseException, error: BaseException | None
    ) -> BaseException | None:
        """Report a clean-up that raised. The exception ends the run, except in place of a verdict.

        A verdict is what the handler itself has said with ``Dead``, ``Snoozed`` and the like.
        """
        run = self._run
        if isinstance(raised, asyncio.CancelledError) and run.stop_reason is not None:
            return raised if error is None else error
        raised.add_note(f"raised by the clean-up of {name}, injected into {run.handler.name}")
        self._log("the clean-up of %s failed, injected into job %s (%s): %s", name, raised)
        said = None if error is None else said_by(error)
        if isinstance(said, Outcome) and not isinstance(said_by(raised), Outcome):
            said.add_note(f"and the clean-up of {name} raised {type(raised).__name__}: {raised}")
            self.failures.append(raised)
            return error
        return raised

    def middleware_failed(
        self, name: str, raised: BaseException, error: BaseException | None
    ) -> BaseException | None:
        """Report middleware that raised after the run. The run ends as it would have without."""
        if isinstance(raised, asyncio.CancelledError) and self._run.stop_reason is not None:
            return raised if error is None else error
        if error is None:
            raised.add_note(f"raised by the middleware {name}, after {self._run.handler.name}")
            self.failures.append(raised)
        else:
            error.add_note(f"and the middleware {name} raised {type(raised).__name__}: {raised}")
        self._log("the middleware %s failed after job %s (%s): %s", name, raised)
        return error

    def _log(self, message: str, name: str, raised: BaseException) -> None:
        job = self._run.job
        # The text of an exception may hold a secret of the payload. The job's record hides those.
        is_shown = isinstance(raised, Exception) and not self._run.has_secrets
        logger.error(
            message,
            name,
            job.claim.job_id,
            job.kind,
            type(raised).__name__,
            exc_info=raised if is_shown else None,
            extra={"job_id": job.claim.job_id, "kind": job.kind, "queue": job.claim.queue},
        )


async def call_in_thread(
    run: Run, call: Callable[[], Any], thread: HandlerThread, context: contextvars.Context
) -> tuple[Any, BaseException | None]:
    """Make ``call`` in the thread, and wait for the outcome, also when this task is cancelled.

    :returns: the value, and the exception that ``call`` raised
    :raises asyncio.CancelledError: the event loop ends, and the thread goes on
    """
    run.thread_end = end = thread.call(call, context)
    try:
        value, error = await end
    except asyncio.CancelledError:
        if end.cancelled():
            # The event loop ends, and the thread goes on: only a reaper may end the claim.
            run.stop(StopReason.LOST)
            raise
        value, error = end.result()  # the program cancelled this task, not the thread
    if error is None and inspect.iscoroutine(value):
        value.close()
        error = TypeError(f"{run.job.kind} is a plain function and returned a coroutine")
    return value, error
