"""The calls of a client that read progress, log lines, changes and results of jobs."""

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any, TypeVar, overload

from forge_jobs.clients.following import LogFollower
from forge_jobs.clients.results import AwaitedJobs, asked_for, read_result
from forge_jobs.clients.watching import Watch, Watches
from forge_jobs.errors import InvalidInput
from forge_jobs.handlers.durations import check_duration
from forge_jobs.home_loop import HomeLoop
from forge_jobs.model.ids import check_job_id
from forge_jobs.model.jobs import EnqueueOutcome
from forge_jobs.model.names import check_queue
from forge_jobs.model.progress import JobState, LogPage
from forge_jobs.privacy.encryption import Encryption
from forge_jobs.storage.protocols import JobStore

R = TypeVar("R")


class ProgressCalls(ABC):
    """A part of the methods of every client. See ``JobClient``."""

    _home: HomeLoop
    _watches: Watches
    _awaited: AwaitedJobs
    _encryption: Encryption | None

    @property
    @abstractmethod
    def _jobs(self) -> JobStore: ...

    @abstractmethod
    def _check_open(self) -> None: ...

    async def state(self, job_id: str) -> JobState | None:
        """The status, the attempt and the progress of a job, None when there is none."""
        wanted = check_job_id(job_id, "job_id")
        return (await self._jobs.states([wanted])).get(wanted)

    async def log(
        self, job_id: str, *, attempt: int | None = None, after: int = 0, limit: int = 1000
    ) -> LogPage:
        """Lines that the handler has logged with ``ctx.log``, oldest first.

        :param attempt: None: the one that ran last, of those with lines
        :param after: only lines with a higher number
        """
        wanted = check_job_id(job_id, "job_id")
        return await self._jobs.job_log(wanted, attempt=attempt, after=after, limit=limit)

    def follow_log(self, job_id: str, *, attempt: int | None = None) -> LogFollower:
        """Follow the lines of a job: ``async for page in client.follow_log(job_id)``.

        Yields the lines that are there, if any, and new ones within about a second after the
        handler has logged them, until the job has ended. Each page has lines of one attempt. A
        number that is missing between two lines is a line that is not kept. An outage of the store
        is waited out.

        :param attempt: only lines of this attempt, until a later one runs. None: begin with the
            attempt that ran last, and go on with those that follow
        :raises NotFound: there is no such job, or the job was removed meanwhile
        """
        self._home.here()
        self._check_open()
        return LogFollower(self._jobs, check_job_id(job_id, "job_id"), attempt)

    def watch(self, job_id: str | None = None, *, queue: str | None = None) -> Watch:
        """Follow a job, or the jobs of a queue: ``async for state in client.watch(job_id)``.

        Yields the present state, and then each change of status, attempt and progress. Changes
        that come fast may be merged into one. The state in which a job ends is always yielded, with
        the last progress, and ends the watch of a job. An outage of the store is waited out.

        Of a queue the newest 500 jobs are followed, and up to 500 that run. Jobs that had ended
        before are left out. The watch of a queue has no end: leave the loop.

        All watches of a client share their looks at the store, which come soon after a change and
        once a second.

        :raises NotFound: there is no such job, or the job was removed meanwhile
        :raises SlowWatcher: too many states waited to be read, and the watch was given up
        """
        self._home.here()
        self._check_open()
        if (job_id is None) == (queue is None):
            problem = "is needed, or queue" if job_id is None else "is given, and queue as well"
            raise InvalidInput("job_id", problem, "give the id of a job, or queue=...")
        if job_id is not None:
            return self._watches.start(Watch(job_id=check_job_id(job_id, "job_id")))
        return self._watches.start(Watch(queue=check_queue("queue", queue)))

    @overload
    async def result(self, job_id: EnqueueOutcome[R], timeout: timedelta | float) -> R: ...
    @overload
    async def result(self, job_id: str, timeout: timedelta | float) -> Any: ...
    @overload
    async def result(
        self, job_id: str | EnqueueOutcome, timeout: timedelta | float, type: type[R]
    ) -> R: ...
    async def result(self, job_id: Any, timeout: timedelta | float, type: Any = None) -> Any:
        """Wait until the job has ended. Return the handler's result.

        Given the outcome of an enqueue, the result is of the handler's return type. Given an id, of
        ``type``, or as JSON types when none is given. None for a job that keeps no result.

        All callers of this client share their looks at the store: after 20 ms, then ever more
        rarely, at last once a second.

        :param job_id: an id, or the outcome of an enqueue
        :param timeout: a timedelta or seconds. Zero looks once
        :param type: read the result as this type
        :raises JobDead: the job gave up. With the remote traceback
        :raises JobCancelled: the job was cancelled or expired
        :raises NotFound: there is no such job (any more), or the result is no longer kept, or was
            not JSON
        :raises ResultTimeout: the job had not ended in time
        :raises InvalidInput: the result is not of that type, or no result can be
        :raises KeyMissing: the result is encrypted with a key that this client does not have
        :raises DecryptionFailed: the encrypted result was changed, or is another job's
        """
        self._check_open()
        wanted, kind = asked_for(job_id, type)
        limit = check_duration("timeout", timeout).total_seconds()
        self._home.here()
        return read_result(await self._awaited.ended(wanted, limit), self._encryption, kind)
