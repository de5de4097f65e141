"""The JobContext of a run, for the handler."""

import asyncio
import concurrent.futures
import json
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, TypeVar, Unpack, cast

from forge_jobs.clients.blocking import run_without_loop
from forge_jobs.clients.flows.parents import Parent, parents_of
from forge_jobs.clients.flows.steps import Steps, workflow_of
from forge_jobs.errors import Conflict, Locked
from forge_jobs.handlers.context import JobProgress, NamedSteps, RateLimits, StopReason
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.outcomes import Again
from forge_jobs.handlers.preparing import check_requests
from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest
from forge_jobs.handlers.spreading import spread_over
from forge_jobs.model.ids import JobId, WorkerId
from forge_jobs.model.jobs import Cause, EnqueueOutcome, JobStatus
from forge_jobs.model.letters import DeadLetter
from forge_jobs.model.names import check_name
from forge_jobs.model.transitions import Finalization, Transition, occurrence_of
from forge_jobs.policy.transitions import begin_again
from forge_jobs.runtime.progress.run_notes import RunNotes
from forge_jobs.runtime.progress.sender import ProgressSender
from forge_jobs.runtime.progress.telling import KeptLog, RunProgress
from forge_jobs.runtime.queue.context_calls import ContextCalls, LoopThread
from forge_jobs.runtime.queue.job_log import JobLogger
from forge_jobs.runtime.queue.run import Run
from forge_jobs.storage.protocols import JobStore

R = TypeVar("R")

logger = logging.getLogger("forge_jobs.job")


class Enqueuer(Protocol):
    """The part of JobClient that a handler may use."""

    async def enqueue(
        self, request: EnqueueRequest[R], **options: Unpack[EnqueueOptions]
    ) -> EnqueueOutcome[R]: ...

    async def enqueue_many(
        self, requests: Iterable[EnqueueRequest[R]]
    ) -> list[EnqueueOutcome[R]]: ...

    async def add_steps(self, workflow: str, steps: Steps) -> dict[str, EnqueueOutcome[Any]]: ...


class RunContext:
    """A JobContext over one run. Any thread may read the attributes."""

    def __init__(
        self,
        run: Run,
        client: Enqueuer,
        jobs: JobStore,
        rate_limit: RateLimits,
        home: LoopThread,
        *,
        progress: ProgressSender,
        state: Mapping[str, Any],
    ) -> None:
        self._run = run
        self._sender = progress
        self._notes: RunNotes | None = None
        self._making = threading.Lock()
        self.client = client
        """The client of the pod. A handler gets the client by the annotation ``JobClient``."""
        self.state = state
        self._work = _ContextWork(run, client, jobs, rate_limit)
        self._home = home
        self._calls = ContextCalls(home)

    def unawaited(self) -> tuple[str, ...]:
        """Return the names of the calls that the handler has not awaited."""
        return self._calls.unawaited()

    @property
    def job_id(self) -> JobId:
        return self._run.job.claim.job_id

    @property
    def kind(self) -> str:
        return self._run.job.kind

    @property
    def queue(self) -> str:
        return self._run.job.claim.queue

    @property
    def attempt(self) -> int:
        return self._run.job.attempt

    @property
    def max_attempts(self) -> int | None:
        return self._run.job.max_attempts

    @property
    def token(self) -> int:
        """The token of this claim, larger than the tokens of all earlier runs."""
        return self._run.job.claim.token

    @property
    def occurrence(self) -> int:
        return occurrence_of(self.metadata)

    @property
    def worker_id(self) -> WorkerId:
        return WorkerId(self._run.worker_id)

    @property
    def tags(self) -> tuple[str, ...]:
        return self._run.job.tags

    @property
    def metadata(self) -> Mapping[str, str]:
        decoded: Mapping[str, str] = json.loads(self._run.job.metadata)
        return decoded

    @property
    def trace(self) -> Mapping[str, str]:
        decoded: Mapping[str, str] = json.loads(self._run.job.trace or "{}")
        return decoded

    @property
    def dead_letter(self) -> DeadLetter | None:
        return self._run.dead_letter()

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        return JobLogger(logger, self, KeptLog(self.notes, self._sender.now))

    @property
    def progress(self) -> JobProgress:
        return RunProgress(self.notes)

    def kill_by(self, kill: Callable[[], None]) -> None:
        """Have the pod call ``kill``: see the function of that name."""
        self._run.kill = kill

    def notes(self) -> RunNotes:
        """Return what the run tells of itself, for the store."""
        # Two threads at once could make two.
        with self._making:
            if self._notes is None:
                self._notes = self._sender.open(self._run.job, self._run.secrets())
            return self._notes

    def keep_line(self, level: int, text: str) -> None:
        """Keep a line with the job, dated now."""
        self.notes().add_line(self._sender.now(), level, text)

    @property
    def rate_limit(self) -> RateLimits:
        return RunRateLimits(self._work, self._calls)

    @property
    def sync(self) -> "SyncRunContext":
        return SyncRunContext(self._work, self._home)

    @property
    def cancel_requested(self) -> bool:
        return self._run.stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        reason = self._run.stop_reason
        return None if reason is None else reason.value

    def extend_timeout(self, by: timedelta | float) -> None:
        seconds = check_duration("by", by).total_seconds()
        if self._home.is_here():
            self._run.extend(seconds)
        else:
            self._home.loop.call_soon_threadsafe(self._run.extend, seconds)

    def finish_in(self, connection: object, result: object = None) -> Coroutine[Any, Any, None]:
        return self._calls.call("finish_in", partial(self._work.finish_in, connection, result))

    def enqueue(
        self, request: EnqueueRequest[R], **options: Unpack[EnqueueOptions]
    ) -> Coroutine[Any, Any, EnqueueOutcome[R]]:
        return self._calls.call("enqueue", partial(self._work.enqueue, request, **options))

    def enqueue_many(
        self, requests: Iterable[EnqueueRequest[R]], *, spread: timedelta | float | None = None
    ) -> Coroutine[Any, Any, list[EnqueueOutcome[R]]]:
        return self._calls.call("enqueue_many", partial(self._work.enqueue_many, requests, spread))

    def add_steps(self, steps: NamedSteps) -> Coroutine[Any, Any, dict[str, EnqueueOutcome[Any]]]:
        return self._calls.call("add_steps", partial(self._work.add_steps, steps))

    def parents(self) -> Coroutine[Any, Any, tuple[Parent, ...]]:
        return self._calls.call("parents", self._work.parents)

    def checkpoint(self, value: object) -> Coroutine[Any, Any, None]:
        return self._calls.call("checkpoint", partial(self._work.checkpoint, value))

    def load_checkpoint(self, type: Any = Any, default: Any = None) -> Coroutine[Any, Any, Any]:
        return self._calls.call(
            "load_checkpoint", partial(self._work.load_checkpoint, type, default)
        )

    def once(self, connection: object, step: str) -> Coroutine[Any, Any, bool]:
        return self._calls.call("once", partial(self._work.once, connection, step))


def kill_by(ctx: object, kill: Callable[[], None]) -> None:
    """Have the pod call ``kill`` when the handler has not ended by the end of the grace of a stop.

    :param ctx: of a run. The context of a test has no pod
    """
    if isinstance(ctx, RunContext):
        ctx.kill_by(kill)


class RunRateLimits:
    """Named token buckets for the event loop of an ``async def`` handler."""

    def __init__(self, work: "_ContextWork", calls: ContextCalls) -> None:
        self._work = work
        self._calls = calls

    def acquire(
        self, scope: str, count: int = 1, *, wait: timedelta | float | None = None
    ) -> Coroutine[Any, Any, bool]:
        return self._calls.call(
            "rate_limit.acquire", partial(self._work.acquire, scope, count, wait)
        )

    def drain(self, scope: str) -> Coroutine[Any, Any, None]:
        return self._calls.call("rate_limit.drain", partial(self._work.drain, scope))


class _ContextWork:
    """The work behind the methods of a context, begun when a call is awaited."""

    def __init__(self, run: Run, client: Enqueuer, jobs: JobStore, rate_limit: RateLimits) -> None:
        self._run = run
        self._client = client
        self._jobs = jobs
        self._limits = rate_limit

    async def finish_in(self, connection: object, result: object = None) -> None:
        job = self._run.job
        if isinstance(result, Again):
            done = begin_again(self._run.next_occurrence(result.payload), result.after)
        else:
            text = self._run.encode_result(result) if job.keep_result else None
            done = Transition(status=JobStatus.DONE, cause=Cause.SUCCEEDED, result=text)
        # Set first: a beat may find the job ended before this coroutine goes on.
        self._run.may_be_settled = True
        [held] = await self._jobs.finalize([Finalization(job.claim, done)], connection=connection)
        if held is None:
            raise Locked(f"another transaction holds job {job.claim.job_id}; roll back, try again")
        if not held:
            raise Conflict(f"the claim of job {job.claim.job_id} was lost; roll back")

    async def enqueue(
        self, request: EnqueueRequest[R], **options: Unpack[EnqueueOptions]
    ) -> EnqueueOutcome[R]:
        return await self._client.enqueue(request, **options)

    async def enqueue_many(
        self, requests: Iterable[EnqueueRequest[R]], spread: timedelta | float | None
    ) -> list[EnqueueOutcome[R]]:
        check_requests(requests)
        return await self._client.enqueue_many(spread_over(requests, spread))

    async def add_steps(self, steps: NamedSteps) -> dict[str, EnqueueOutcome[Any]]:
        job = self._run.job
        workflow = workflow_of(job.claim.job_id, json.loads(job.metadata))
        # The client refuses what is no Steps.
        return await self._client.add_steps(workflow, cast(Steps, steps))

    async def parents(self) -> tuple[Parent, ...]:
        run, encryption = self._run, self._run.handler.options.encryption
        found = await parents_of(self._jobs, run.job.claim.job_id, encryption)
        run.parents = {each.job_id for each in found}
        return found

    async def checkpoint(self, value: object) -> None:
        text = self._run.encode_checkpoint(value)
        stored = await self._jobs.save_checkpoint(self._run.job.claim, text)
        if stored is None:
            raise Locked(
                f"another transaction holds job {self._run.job.claim.job_id}, so the checkpoint is "
                "not stored; try again"
            )
        if not stored:
            raise Conflict(
                f"the claim of job {self._run.job.claim.job_id} was lost, so the checkpoint is not "
                "stored; stop"
            )

    async def load_checkpoint(self, kind: Any, default: Any) -> Any:
        text = await self._jobs.checkpoint(self._run.job.claim.job_id)
        return default if text is None else self._run.decode_checkpoint(text, kind)

    async def once(self, connection: object, step: str) -> bool:
        claim = self._run.job.claim
        return await self._jobs.first_time(claim, check_name("step", step), connection=connection)

    def acquire(
        self, scope: str, count: int, wait: timedelta | float | None
    ) -> Coroutine[Any, Any, bool]:
        # No coroutine of its own: most calls are this one, and a frame costs each of them.
        return self._limits.acquire(scope, count, wait=wait)

    async def acquire_until_stop(
        self, scope: str, count: int, wait: timedelta | float | None
    ) -> bool:
        """Acquire tokens for a waiting thread, as :meth:`acquire` does. A stop of the run ends the
        wait."""
        if not wait:
            return await self.acquire(scope, count, wait)
        with self._run.waiting():
            return await self.acquire(scope, count, wait)

    async def drain(self, scope: str) -> None:
        await self._limits.drain(scope)


class SyncRunContext:
    """The waiting methods of a RunContext for the thread of a ``def`` handler."""

    def __init__(self, work: _ContextWork, home: LoopThread) -> None:
        self._work = work
        self._home = home

    @property
    def rate_limit(self) -> "SyncRunRateLimits":
        return SyncRunRateLimits(self._work, self._home)

    def finish_in(self, connection: object, result: object = None) -> None:
        run_without_loop(connection, lambda: self._work.finish_in(connection, result))

    def enqueue(
        self, request: EnqueueRequest[R], **options: Unpack[EnqueueOptions]
    ) -> EnqueueOutcome[R]:
        return self._home.wait_for(self._work.enqueue(request, **options))

    def enqueue_many(
        self, requests: Iterable[EnqueueRequest[R]], *, spread: timedelta | float | None = None
    ) -> list[EnqueueOutcome[R]]:
        return self._home.wait_for(self._work.enqueue_many(requests, spread))

    def add_steps(self, steps: NamedSteps) -> dict[str, EnqueueOutcome[Any]]:
        return self._home.wait_for(self._work.add_steps(steps))

    def parents(self) -> tuple[Parent, ...]:
        return self._home.wait_for(self._work.parents())

    def checkpoint(self, value: object) -> None:
        self._home.wait_for(self._work.checkpoint(value))

    def load_checkpoint(self, type: Any = Any, default: Any = None) -> Any:
        return self._home.wait_for(self._work.load_checkpoint(type, default))

    def once(self, connection: object, step: str) -> bool:
        noted: bool = run_without_loop(connection, lambda: self._work.once(connection, step))
        return noted


class SyncRunRateLimits:
    """Named token buckets for the thread of a ``def`` handler."""

    def __init__(self, work: _ContextWork, home: LoopThread) -> None:
        self._work = work
        self._home = home

    def acquire(self, scope: str, count: int = 1, *, wait: timedelta | float | None = None) -> bool:
        try:
            return self._home.wait_for(self._work.acquire_until_stop(scope, count, wait))
        except concurrent.futures.CancelledError:
            # As in an async def handler, so that the stop does not count as a failure.
            raise asyncio.CancelledError("the run is being stopped") from None

    def drain(self, scope: str) -> None:
        self._home.wait_for(self._work.drain(scope))
