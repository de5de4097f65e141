"""The handler's view of its job: a Protocol, so that tests can pass anything of that shape."""

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeVar, Unpack, overload

from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest
from forge_jobs.model.ids import JobId, WorkerId
from forge_jobs.model.jobs import EnqueueOutcome, ErrorRecord, JobStatus
from forge_jobs.model.letters import DeadLetter

R = TypeVar("R")

StopReason = Literal["cancel", "timeout", "shutdown", "lost"]


class ParentJob(Protocol):
    """A job that the running one was enqueued after."""

    @property
    def job_id(self) -> JobId:
        """There also when the parent has been removed."""
        ...

    @property
    def kind(self) -> str:
        """Empty when the parent has been removed."""
        ...

    @property
    def status(self) -> JobStatus | None:
        """None when the parent has been removed. A parent that was requeued may run again."""
        ...

    @property
    def step(self) -> str:
        """The name of the step that the parent is in a workflow. "" in none, and when removed.

        Of a member of a group that is a step: the name of that step, also when removed.
        """
        ...

    @property
    def group(self) -> JobId | None:
        """The group that the running job comes after, in place of which its members are given."""
        ...

    @property
    def error(self) -> ErrorRecord | None:
        """The last error of the parent, None without one. A job that is done may have errors."""
        ...

    @overload
    def result(self) -> Any: ...
    @overload
    def result(self, type: type[R]) -> R: ...
    def result(self, type: Any = ...) -> Any:
        """Return the result of the parent, as ``type``, or as JSON types when none is given.

        :raises JobDead: the parent gave up. With the remote traceback
        :raises JobCancelled: the parent was cancelled or expired
        :raises NotFound: the parent has been removed, keeps no result, or has not ended
        :raises InvalidInput: the result is not of that type
        """
        ...


class RateLimits(Protocol):
    """The named token buckets of the cluster."""

    async def acquire(
        self, scope: str, count: int = 1, *, wait: timedelta | float | None = None
    ) -> bool:
        """Take ``count`` tokens, or none: False when they are not there within ``wait``.

        :param wait: how long to wait for them, a timedelta or seconds. None does not wait
        :raises NotFound: no such scope was declared
        """
        ...

    async def drain(self, scope: str) -> None:
        """Empty the bucket: the upstream said that the budget is used up.

        :raises NotFound: no such scope was declared
        """
        ...


class JobProgress(Protocol):
    """How far the run has come, for people who wait. See :attr:`JobContext.progress`."""

    def set(self, current: float, total: float | None = None, message: str = "") -> None:
        """Say how far the run has come. From any thread, without waiting for anything.

        The newest is stored within a second, and before the end of the run. Those between may be
        left out. A run that is repeated begins without.

        :param current: zero or more
        :param total: what ``current`` will be at the end. None: not known
        :param message: for people, cut at 1 KiB
        :raises InvalidInput: a number is negative or not finite
        """
        ...


class SyncRateLimits(Protocol):
    """:class:`RateLimits` for ``def`` handlers. Blocks the calling thread."""

    def acquire(self, scope: str, count: int = 1, *, wait: timedelta | float | None = None) -> bool:
        """See :meth:`RateLimits.acquire`.

        A stop of the run (cancel, timeout, shutdown, lost claim) ends the wait.

        :raises asyncio.CancelledError: the run is being stopped. Let it pass
        """
        ...

    def drain(self, scope: str) -> None: ...


class NamedSteps(Protocol):
    """Steps for a workflow that is stored already: ``Steps``."""

    @property
    def requests(self) -> Mapping[str, Any]: ...

    @property
    def after(self) -> Mapping[str, Mapping[str, Any]]: ...


class SyncJobContext(Protocol):
    """The blocking side of :class:`JobContext`, for ``def`` handlers. Blocks the calling thread."""

    @property
    def rate_limit(self) -> SyncRateLimits: ...

    def finish_in(self, connection: object, result: object = None) -> None: ...

    def enqueue(
        self, request: EnqueueRequest[R], **options: Unpack[EnqueueOptions]
    ) -> EnqueueOutcome[R]: ...

    def enqueue_many(
        self, requests: Iterable[EnqueueRequest[R]], *, spread: timedelta | float | None = None
    ) -> list[EnqueueOutcome[R]]: ...

    def add_steps(self, steps: NamedSteps) -> dict[str, EnqueueOutcome[Any]]: ...

    def parents(self) -> tuple[ParentJob, ...]: ...

    def checkpoint(self, value: object) -> None: ...

    def load_checkpoint(self, type: Any = ..., default: Any = None) -> Any: ...

    def once(self, connection: object, step: str) -> bool: ...


class JobContext(Protocol):
    """The running job. A handler gets it by annotating one parameter with this class.

    Put the context first: ``async def sync(ctx: JobContext, repo: str)``. Then a type checker
    holds ``sync.request(...)`` to the other parameters. Elsewhere the context works too, but a
    wrong argument is refused only when the request is made.
    """

    @property
    def job_id(self) -> JobId:
        """The id of the job, the same in every run: an idempotency key for other services.

        A handler that returns ``Again`` adds the :attr:`occurrence`, as in
        ``f"{ctx.job_id}-{ctx.occurrence}"``.
        """
        ...

    @property
    def occurrence(self) -> int:
        """How many times the job has begun: 1, and one more after each ``Again``.

        The same in all attempts of one occurrence.
        """
        ...

    @property
    def kind(self) -> str:
        """The kind of the stored job. An alias when the job was enqueued under one."""
        ...

    @property
    def queue(self) -> str:
        """The queue that the job was claimed from."""
        ...

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1. Runs that were handed back do not count."""
        ...

    @property
    def max_attempts(self) -> int | None:
        """How many runs may fail before the job is dead. None: no bound."""
        ...

    @property
    def token(self) -> int:
        """Grows with every claim of the job: a fencing token for systems that check one.

        Microseconds since 1970 by the store's clock, or one more than the claim before. Below 2^53.
        Where a store loses its last writes, by a failover or a restored copy, the token still grows
        as far as the clocks of the two servers agree: behind a server whose clock is a second back
        the token may be up to that second lower than that of a lost claim.
        """
        ...

    @property
    def worker_id(self) -> WorkerId:
        """The worker of the pod that runs the job."""
        ...

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the job, as given at enqueue."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata of the job, texts by name, as given at enqueue."""
        ...

    @property
    def trace(self) -> Mapping[str, str]:
        """The trace context headers, as given at enqueue. Empty without."""
        ...

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Of which dead job this one is the letter. None in any other job.

        A handler gets the letter by the annotation ``DeadLetter`` too.
        """
        ...

    @property
    def state(self) -> Mapping[str, Any]:
        """The names and values that the lifespans have yielded, see ``HandlerRegistry``.

        Empty in a handler with ``executor="process"``: lifespans live in the pod.
        """
        ...

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """Logs with the job's id, kind, queue and attempt, and keeps the lines with the job.

        Kept are lines of INFO and above whatever the log shows, and others where the log shows
        them: of each attempt the newest 1,000 lines of 256 KiB together, 8 KiB of a line. Stored
        within a second, and before the end of the run: ``JobClient.log``.
        """
        ...

    @property
    def progress(self) -> JobProgress:
        """How far the run has come: ``ctx.progress.set(3, 10, "resizing")``."""
        ...

    @property
    def rate_limit(self) -> RateLimits:
        """The named token buckets of the cluster."""
        ...

    @property
    def sync(self) -> SyncJobContext:
        """For use from the thread of a ``def`` handler, where what must be awaited is refused with
        a RuntimeError that says so.

        An ``async def`` handler that ends without having awaited a call of its context makes its
        job dead at once: the call did nothing, and a retry would forget the await again.
        """
        ...

    @property
    def cancel_requested(self) -> bool:
        """The run should stop: what a ``def`` handler polls, since a thread cannot be stopped."""
        ...

    @property
    def stop_reason(self) -> StopReason | None:
        """The reason why the run is being stopped. None while it is not."""
        ...

    def extend_timeout(self, by: timedelta | float) -> None:
        """Move the time limit of this run ``by`` that much, from now on."""
        ...

    async def finish_in(self, connection: object, result: object = None) -> None:
        """End the job as done inside a transaction that the handler holds open.

        The writes of the handler and the end of the job are committed together, so that work
        is never done twice, nor counted as done and lost. The handler commits, and should return
        soon. Once committed, the job is done whatever the handler raises afterwards. After a
        rollback nothing has happened: the job ends as the handler does.

        While the transaction is open no reaper takes the job away, however long that is.

        :param connection: an SQLAlchemy connection or session, or a raw asyncpg connection, of
            the store's own database
        :param result: stored in place of what the handler returns. ``Again(...)`` begins the next
            occurrence with the commit
        :raises Conflict: the claim was lost: another worker may run the job, so roll back
        :raises InvalidInput: ``connection`` is of another database, or the store (Redis) has none.
            Or the job keeps results and this result is not of the handler's return type
        """
        ...

    async def enqueue(
        self, request: EnqueueRequest[R], **options: Unpack[EnqueueOptions]
    ) -> EnqueueOutcome[R]:
        """Store another job, and return its id and whether it is new. As ``JobClient.enqueue``."""
        ...

    async def enqueue_many(
        self, requests: Iterable[EnqueueRequest[R]], *, spread: timedelta | float | None = None
    ) -> list[EnqueueOutcome[R]]:
        """Store several jobs, outcomes in their order. As ``JobClient.enqueue_many``."""
        ...

    async def add_steps(self, steps: NamedSteps) -> dict[str, EnqueueOutcome[Any]]:
        """Add steps to the workflow that the job is a step of, and return their outcomes by name.

        A run that is repeated adds nothing twice. As ``JobClient.add_steps``.

        :raises Conflict: the job is no step of a workflow, or the workflow was cancelled
        """
        ...

    async def parents(self) -> tuple[ParentJob, ...]:
        """Read the jobs that this one was enqueued after, in the order of their ids.

        Ids grow with the time of the enqueue, unless the caller chose them. All results are read
        at once: a job after 10,000 parents with large results takes that much memory.
        """
        ...

    async def checkpoint(self, value: object) -> None:
        """Keep ``value`` for the next run of the job, in place of the last checkpoint.

        At the return the checkpoint is as durable as an end of a job. A run that was revived on
        another pod, retried or requeued reads the checkpoint with :meth:`load_checkpoint`.

        :param value: JSON types, dataclasses, Structs, pydantic models: up to 1 MiB as JSON
        :raises InvalidInput: the value cannot be stored
        :raises Conflict: the claim was lost: another worker may run the job, so stop
        :raises Unavailable: the store does not answer. The checkpoint before may still stand
        """
        ...

    @overload
    async def load_checkpoint(self) -> Any: ...
    @overload
    async def load_checkpoint(self, type: type[R]) -> R | None: ...
    @overload
    async def load_checkpoint(self, type: type[R], default: R) -> R: ...
    async def load_checkpoint(self, type: Any = ..., default: Any = None) -> Any:
        """Return the last checkpoint of the job, ``default`` without one.

        :param type: read the checkpoint as this type. JSON types when left out
        :raises UndecodablePayload: the checkpoint is not of that type, for example since another
            release wrote it
        :raises KeyMissing: the checkpoint is encrypted with a key that this pod lacks
        """
        ...

    async def once(self, connection: object, step: str) -> bool:
        """Note ``step`` in a transaction that the handler holds open. True: for the first time.

        The note commits with the handler's own writes. So a step whose writes are guarded by
        ``if await ctx.once(connection, "charge"):`` is done exactly once, over all attempts, and
        also when a worker that has lost its claim runs on::

            async with engine.begin() as connection:
                if await ctx.once(connection, "charge"):
                    await connection.execute(...)

        Waits while another transaction holds the same step of the job open.

        :param connection: as for :meth:`finish_in`
        :param step: a name, the same in every run
        :raises Conflict: the claim was lost: roll back
        :raises InvalidInput: ``connection`` is of another database, or the store (Redis) has none
        """
        ...
