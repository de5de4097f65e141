"""Waiting for the ends of jobs: one look at the store for all callers of one client."""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import structs

from forge_jobs.clock import Clock
from forge_jobs.errors import (
    InvalidInput,
    JobCancelled,
    JobDead,
    NotFound,
    PartlyUnavailable,
    ResultTimeout,
    StorageError,
    Unavailable,
)
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.handlers.signatures import decode_model
from forge_jobs.home_loop import next_turn
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import TERMINAL, Cause, EnqueueOutcome, Job, JobStatus
from forge_jobs.privacy.encryption import Encryption, Part, decrypted, is_encrypted
from forge_jobs.privacy.secrets import ORIGIN
from forge_jobs.storage.protocols import JobStore
from forge_jobs.storage.wakeups import until_set

R = TypeVar("R")

_FIRST_POLL_S, _LONGEST_POLL_S = 0.02, 1.0

_FEW = 10
"""So many jobs are read whole at each look: one call finds an end and brings the result."""

_AT_ONCE = 1_000
_WHOLE_AT_ONCE = 50


class _Wait:
    """A caller that waits for one job.

    :param limit: seconds. Of the whole wait
    :param until: ``Clock.elapsed`` at the end of the wait
    """

    __slots__ = ("at", "future", "job_id", "limit", "pause", "until")

    def __init__(
        self, job_id: JobId, limit: float, until: float, future: "asyncio.Future[Job]"
    ) -> None:
        self.job_id = job_id
        self.limit = limit
        self.until = until
        self.future = future
        self.at = 0.0
        self.pause = _FIRST_POLL_S


class AwaitedJobs:
    """The jobs whose end callers wait for.

    One task looks for all callers: after 20 ms, then ever more rarely, at last once a second.
    Waits that are due at nearly the same time share a look, and no two looks are under way at
    once. The payload and the result of a job are read after the end, unless few are waited
    for.

    Belongs to the event loop of its first use.

    :param repeat_for: how long looks may fail before ``Unavailable`` reaches the callers
    :param is_parted: see ``Storage``
    """

    def __init__(
        self, jobs: JobStore, *, repeat_for: timedelta, clock: Clock, is_parted: bool = False
    ) -> None:
        self._jobs = jobs
        self._is_parted = is_parted
        self._repeat_for = repeat_for.total_seconds()
        self._clock = clock
        self._waits: list[_Wait] = []
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failing_since: float | None = None

    async def ended(self, job_id: JobId, limit: float) -> Job:
        """The job, once it has ended.

        :param limit: seconds. Zero looks once
        :raises NotFound: there is no such job (any more)
        :raises ResultTimeout: the job had not ended in time
        """
        loop = asyncio.get_running_loop()
        wait = _Wait(job_id, limit, self._clock.elapsed() + limit, loop.create_future())
        self._waits.append(wait)
        self._news.set()
        if self._task is None:
            # As a lane's task: a context copied from the first caller would be that caller's.
            self._task = loop.create_task(self._run(), context=contextvars.Context())
        return await wait.future

    def end(self, error: StorageError) -> None:
        """Raise this error in all waiting callers."""
        waits, self._waits = self._waits, []
        for wait in waits:
            _fail(wait, error)
        self._news.set()

    async def _run(self) -> None:
        try:
            if self._task is None:
                await next_turn()
            while self._waits:
                due = self._due()
                if due:
                    await self._look(due)
                self._waits = [wait for wait in self._waits if not wait.future.done()]
                if self._waits:
                    self._news.clear()
                    first = min(wait.at for wait in self._waits)
                    await until_set(self._news, max(0.0, first - _now()))
        finally:
            self._task = None
            self.end(Unavailable("the event loop ended while the end of a job was waited for"))

    def _due(self) -> list[_Wait]:
        now = _now()
        if all(wait.at > now for wait in self._waits):
            return []
        return [wait for wait in self._waits if wait.at <= now + wait.pause / 2]

    async def _look(self, due: Sequence[_Wait]) -> None:
        try:
            found = await self._states(list({wait.job_id: None for wait in due}))
        except PartlyUnavailable as error:
            # Ends of other jobs are delivered all the same.
            self._put_off([wait for wait in due if wait.job_id in error.unknown], error)
            for wait in due:
                if wait.job_id not in error.unknown:
                    self._judge(wait, error.found.get(wait.job_id))
            return
        except Unavailable as error:
            self._put_off(due, error)
            return
        except Exception as error:
            for wait in due:
                _fail(wait, error)
            return
        self._failing_since = None
        for wait in due:
            self._judge(wait, found.get(wait.job_id))

    def _put_off(self, waits: Sequence[_Wait], error: Unavailable) -> None:
        """Look again while the caller's patience and this client's last."""
        now = self._clock.elapsed()
        if self._failing_since is None:
            self._failing_since = now
        patient = now - self._failing_since < self._repeat_for
        for wait in waits:
            if not patient or not self._goes_on(wait):
                _fail(wait, error)

    async def _states(self, ids: Sequence[JobId]) -> Mapping[JobId, Job | JobStatus]:
        """Read jobs that have ended whole, of others at least the status."""
        if len(ids) <= _FEW:
            return await self._jobs.get(ids)
        found: dict[JobId, Job | JobStatus] = {}
        try:
            for part in _parts(ids, _AT_ONCE):
                page = await self._jobs.list(JobFilter(ids=part), limit=_AT_ONCE)
                found.update((line.id, line.status) for line in page.jobs)
        except Unavailable:
            if not self._is_parted:
                raise
            # A list says nothing of any when one of them is not to be had.
            return await self._jobs.get(ids)
        ended = [job_id for job_id, status in found.items() if status in TERMINAL]
        for part in _parts(ended, _WHOLE_AT_ONCE):
            jobs = await self._jobs.get(part)
            for job_id in part:
                del found[job_id]
            found.update(jobs)
        return found

    def _judge(self, wait: _Wait, found: Job | JobStatus | None) -> None:
        if wait.future.done():
            return
        if found is None:
            text = f"there is no job {wait.job_id}; it never was, or was removed"
            wait.future.set_exception(NotFound(text))
        elif isinstance(found, Job) and found.finished_at is not None and found.status in TERMINAL:
            wait.future.set_result(found)
        elif not self._goes_on(wait):
            status = found.status if isinstance(found, Job) else found
            text = f"job {wait.job_id} is {status.in_words} after {wait.limit:g} seconds"
            wait.future.set_exception(ResultTimeout(text))

    def _goes_on(self, wait: _Wait) -> bool:
        """Set the time of the next look. False when the caller's time is up."""
        left = wait.until - self._clock.elapsed()
        wait.at = _now() + min(wait.pause, left)
        wait.pause = min(2 * wait.pause, _LONGEST_POLL_S)
        return left > 0


def _now() -> float:
    return asyncio.get_running_loop().time()


def _fail(wait: _Wait, error: Exception) -> None:
    if wait.future.done():
        return
    # One exception object for several callers would grow a traceback for each of them.
    try:
        copy = type(error)(*error.args)
    except Exception:
        copy = error
    copy.__cause__ = error.__cause__
    wait.future.set_exception(copy)


def _parts(ids: Sequence[JobId], size: int) -> Iterator[tuple[JobId, ...]]:
    for start in range(0, len(ids), size):
        yield tuple(ids[start : start + size])


def with_type(request: EnqueueRequest[R], outcome: EnqueueOutcome) -> EnqueueOutcome[R]:
    """Return the outcome, which now knows the type of the result."""
    if request.result_type is not Any:
        structs.force_setattr(outcome, "_result_type", request.result_type)
    return outcome


def with_types(
    requests: Iterable[EnqueueRequest[R]], outcomes: list[EnqueueOutcome]
) -> list[EnqueueOutcome[R]]:
    """Return the outcomes, which now know the types of their results."""
    for request, outcome in zip(requests, outcomes, strict=True):
        if request.result_type is Any:
            continue
        with_type(request, outcome)
    return outcomes


def asked_for(job: Any, kind: Any) -> tuple[JobId, Any]:
    """Return the id of the job and the type of the result that a caller asks for.

    :param job: an id, or the outcome of an enqueue
    :param kind: a type. None: the outcome's
    :raises InvalidInput: ``job`` is neither
    """
    if isinstance(job, EnqueueOutcome):
        return job.job_id, job.result_type if kind is None else kind
    return check_job_id(job, "job_id"), Any if kind is None else kind


def read_result(job: Job, encryption: Encryption | None = None, kind: Any = Any) -> Any:
    """Return the result of an ended job, or raise the error. See ``JobClient.result``.

    :param kind: the type to read the result as
    :raises NotFound: also for a job that has not ended yet
    """
    if job.result is not None and is_encrypted(job.result):
        job = structs.replace(job, result=_decrypted(job, Part.RESULT, job.result, encryption))
    read = _READ.get(job.status)
    if read is None:
        raise NotFound(
            f"job {job.id} is {job.status.in_words} and has no result yet; wait for its end"
        )
    return read(job, kind)


def decrypted_job(job: Job, encryption: Encryption | None) -> Job:
    """Return the job with payload and result decrypted. See ``JobClient.decrypted``."""
    result = job.result
    return structs.replace(
        job,
        payload=_decrypted(job, Part.PAYLOAD, job.payload, encryption),
        result=None if result is None else _decrypted(job, Part.RESULT, result, encryption),
    )


def _decrypted(job: Job, part: Part, text: str, encryption: Encryption | None) -> str:
    return decrypted(
        encryption,
        text,
        job_id=job.id,
        kind=job.kind,
        part=part,
        origin=job.metadata.get(ORIGIN, "") if part is Part.PAYLOAD else "",
    )


def _returned(job: Job, kind: Any) -> Any:
    if not job.keep_result:
        return None
    if job.result is None:
        last = job.errors[-1] if job.errors else None
        if last is not None and last.cause is Cause.SUCCEEDED:
            raise NotFound(f"job {job.id} succeeded, but its result is not stored: {last.message}")
        raise NotFound(
            f"the result of job {job.id} is no longer kept; give such jobs a longer result_ttl"
        )
    if kind is Any:
        return msgspec.json.decode(job.result)
    if isinstance(kind, str):
        problem = f"is {kind}, as the annotation of {job.kind} says, which is not there at run time"
        fix = "import that name at the top of the handler's module, or give the job's id, not its"
        raise InvalidInput("type", problem, f"{fix} outcome, to get JSON types")
    try:
        return msgspec.json.decode(job.result, type=kind, dec_hook=decode_model)
    except msgspec.ValidationError as error:
        problem = f"does not fit the result of job {job.id} ({job.kind}): {error}"
        raise InvalidInput("type", problem, "give the type that the handler returned") from None
    except (TypeError, NotImplementedError) as error:
        problem = f"cannot be read from the result of job {job.id} ({job.kind}): {error}"
        fix = "give a type that JSON can carry, or the job's id, not its outcome, to get JSON types"
        raise InvalidInput("type", problem, fix) from None


def _dead(job: Job, _kind: Any) -> Any:
    if not job.errors:
        raise JobDead(job.id, f"is dead ({job.cause})")
    last = job.errors[-1]
    raise JobDead(job.id, f"is dead: {last.type}: {last.message}", last.traceback)


_CANCELLED = {
    Cause.EXPIRED: "expired before it ran",
    Cause.DROPPED: "was dropped, because its rate limit had no token",
    Cause.PARENT_FAILED: "was cancelled, because a job it waited for failed",
}


def _cancelled(job: Job, _kind: Any) -> Any:
    message = _CANCELLED.get(job.cause, "was cancelled")
    raise JobCancelled(job.id, message, job.errors[-1].traceback if job.errors else "")


_READ: Mapping[JobStatus, Callable[[Job, Any], Any]] = {
    JobStatus.DONE: _returned,
    JobStatus.DEAD: _dead,
    JobStatus.CANCELLED: _cancelled,
}
