"""Runs jobs in one slot, one at a time, and reports each end to the worker pool."""

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import Self

from msgspec import structs

from forge_jobs import stop_points
from forge_jobs.errors import StorageError
from forge_jobs.handlers.around.hooks import Hook
from forge_jobs.home_loop import next_turn
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import WorkerId, new_worker_id
from forge_jobs.model.jobs import Cause, ClaimedJob
from forge_jobs.model.queues import QueueState
from forge_jobs.model.transitions import Transition
from forge_jobs.outages import Outage, Pauses
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.reports import reporter
from forge_jobs.runtime.queue.ends import decide
from forge_jobs.runtime.queue.execution import Context, execute, not_started
from forge_jobs.runtime.queue.failures import error_record, redacted
from forge_jobs.runtime.queue.injection.hook_runs import HookRuns, HookScope
from forge_jobs.runtime.queue.run import Run, StopReason
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.queue.turns import may_not_run, with_turn
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.runtime.shared.threads import HandlerThread

logger = reporter(__name__)

_PAUSES = Pauses(0.05, 1.0)

Ended = Callable[["Worker", Run, AttemptEnd | None], None]
"""Called when a run has ended. None: the claim was lost."""


class Worker:
    """Runs handlers in one slot, one after another. The id of a worker is never used again.

    Each run is a task of its own in a fresh copy of the context. Whatever a handler does to the
    task, to a cancellation or to context variables ends with the run.

    :param ended: called once per run, on the event loop, when the worker is free again
    """

    def __init__(self, services: PodServices, ended: Ended) -> None:
        self.worker_id: WorkerId = new_worker_id()
        self.run: Run | None = None
        """The current run. None while the worker is free."""
        self._services = services
        self._ended = ended
        self._task: asyncio.Task[None] | None = None
        self._thread: HandlerThread | None = None

    def take(self, job: ClaimedJob, queue_state: QueueState | None, now: float) -> Self:
        """Hold a claimed job until :meth:`begin`. The worker must be free. Return the worker.

        :param queue_state: the queue at the last beat
        :param now: ``Clock.elapsed``
        """
        services = self._services
        handler = services.handlers.get(job.kind)
        if handler is None:
            raise LookupError(f"this pod has no handler of kind {job.kind!r}")
        self.run = Run(
            job,
            handler,
            self.worker_id,
            now,
            services.loop,
            patience=services.patience,
            queue_state=queue_state,
            lasts=services.overruns.lasts,
        )
        self._task = None
        return self

    def begin(self) -> None:
        """Run the job of :meth:`take`."""
        run, services = self.run, self._services
        assert run is not None
        # Until the task is known, the first step of an eager one waits.
        self._task = services.loop.create_task(self._work(run), context=services.context.copy())
        self._task.add_done_callback(self._is_over)

    def _is_over(self, task: asyncio.Task[None]) -> None:
        """Free the worker of a run that the program has cancelled before the first step."""
        run = self.run
        if run is not None and task is self._task:
            self.run = None
            self._ended(self, run, not_started(run))

    def retire(self) -> None:
        """End the use of the worker, which must be free."""
        self._services.threads.dismiss()

    async def _work(self, run: Run) -> None:
        if self._task is None:
            await next_turn()
        services = self._services
        end: AttemptEnd | None = None
        try:
            if run.job.crashes and not await self._record_start(run):
                return
            now = services.clock.elapsed()
            self._stop_when_fenced(run, now)
            if services.strikes.are_asked or not (
                run.handler.rate is None or services.tokens.take(run.job.claim.job_id, now)
            ):
                end = await may_not_run(run, services)
            if end is None:
                self._note_start(run, now)
                if stop_points.ARMED:
                    await stop_points.reach("run:start")
                end = await (
                    services.processes.run(run)
                    if run.handler.in_process
                    else execute(
                        run, services.host_id, self._context, self._take_thread, services.values
                    )
                )
            # Most runs end well and without hooks, and await nothing more.
            if end is not None and (
                end.cause is not Cause.SUCCEEDED
                or end.error is not None
                or run.stop_reason is not None
                or run.handler.hooks is not None
            ):
                end = await self._recorded(run, end)
            if stop_points.ARMED:
                await stop_points.reach("run:end")
        except BaseException as error:  # a run's trouble must end the run and nothing else
            logger.exception(
                "queue %s: the run of job %s broke off by an error outside the handler; the "
                "attempt counts as failed",
                run.job.claim.queue,
                run.job.claim.job_id,
            )
            record = error_record(
                error, Cause.FAILED, attempt=run.job.attempt, host_id=services.host_id
            )
            end = AttemptEnd(cause=Cause.FAILED, error=record, exception=error)
        finally:
            if self._thread is not None or not run.ended:
                self._let_go(run)
            services.ended_runs += 1
            self.run = None
            self._ended(self, run, end)

    def _stop_when_fenced(self, run: Run, now: float) -> None:
        if self._services.fence.must_stop(now, run.job.claim.queue):
            # The process was frozen after the claim: another pod may have the job by now.
            run.stop(StopReason.SHUTDOWN)

    def _note_start(self, run: Run, now: float) -> None:
        if run.stop_reason is None:
            services = self._services
            services.held.start(run.job.claim, self.worker_id)
            services.events.record_routine(EventKind.STARTED, run.job.claim, run.job.kind, now)

    async def _recorded(self, run: Run, end: AttemptEnd) -> AttemptEnd:
        """Return the end to record, without the secrets of the payload, after the hooks."""
        if end.cause is Cause.RATE_LIMITED and end.delay is None:
            end = await with_turn(end, run, self._services)
        if run.stop_reason is StopReason.TIMEOUT:
            end = self._past_its_time(run, end)
        if end.error is not None and run.has_secrets:
            error = redacted(end.error, run.secrets())
            end = structs.replace(end, error=error, is_redacted=True)
        if run.handler.hooks is not None:
            run.decided = await self._after_hooks(run, end)
        return end

    async def _after_hooks(self, run: Run, end: AttemptEnd) -> Transition:
        """Return where the job goes, after the hooks of the handler."""
        services = self._services
        seconds = services.clock.elapsed() - run.started_at
        transition = decide(end, run.job, run.queue_state, seconds, services)
        hooks = HookRuns(run, services.host_id, partial(self._hook_scope, run), services.patience)
        return await hooks.call(transition, end.exception)

    def _hook_scope(self, run: Run, hook: Hook) -> HookScope:
        return HookScope(
            hook, partial(self._context, run), self._free_thread, self._services.values
        )

    def _context(self, run: Run) -> Context:
        """Return the context of the run, the same for all who ask."""
        if run.context is None:
            run.context = self._services.job_context(run)
        context: Context = run.context
        return context

    def _free_thread(self) -> HandlerThread:
        """Return the worker's thread, or another when a call in that one goes on."""
        if self._thread is not None and self._thread.is_free:
            return self._thread
        if self._thread is not None:
            self._services.threads.give_back(self._thread)
        return self._take_thread()

    def _past_its_time(self, run: Run, end: AttemptEnd) -> AttemptEnd:
        """Return the end of a run that was stopped by the timeout. A success keeps a record of the
        overrun."""
        if end.cause is not Cause.SUCCEEDED:
            return end
        services = self._services
        seconds = services.clock.elapsed() - run.started_at
        record = services.overruns.ended_well(run, seconds, services.host_id)
        if end.error is not None:
            message = f"{end.error.message}; {record.message}"
            record = structs.replace(end.error, message=message)
        return structs.replace(end, error=record)

    def _take_thread(self) -> HandlerThread:
        self._thread = self._services.threads.take()
        return self._thread

    def _let_go(self, run: Run) -> None:
        """Finish the run, and give the thread of the run back."""
        if not run.ended:
            run.finish()
        if self._thread is not None:
            self._services.threads.give_back(self._thread)
            self._thread = None

    async def _record_start(self, run: Run) -> bool:
        """Store that the handler of a job that may kill the process is about to start.

        No failure of the store is a failure of the job: the run waits until the start is stored or
        the run is stopped. A run that the program cancels meanwhile has not begun, and the job is
        handed back.

        :returns: False when the claim was lost
        """
        try:
            return await self._store_start(run)
        except asyncio.CancelledError:
            run.stop(StopReason.SHUTDOWN)
            return True

    async def _store_start(self, run: Run) -> bool:
        failures, outage = 0, Outage()
        while run.stop_reason is None:
            call = asyncio.ensure_future(self._services.jobs.record_start([run.job.claim]))
            try:
                [held] = await asyncio.shield(call)
                return held
            except StorageError as error:
                failures += 1
                if outage.is_new():
                    logger.warning(
                        "job %s waits to be started: the store has not recorded the start: %s",
                        run.job.claim.job_id,
                        error,
                    )
                await Wakeup().wait(timedelta(seconds=_PAUSES.after(failures)))
        return True


def begin_all(workers: Iterable[Worker], later: asyncio.AbstractEventLoop | None) -> None:
    """Run the jobs that these workers have taken.

    :param later: the jobs run one turn of this event loop later, behind a call to the store that is
        about to be made. None: they run at once
    """
    if later is not None:
        later.call_soon(begin_all, workers, None)
        return
    for worker in workers:
        worker.begin()
