"""The log of the ends of jobs: each failure, and each job where the settings ask for that.

A message is the same for all jobs of one kind that end in the same way. What differs from job to
job travels as arguments, so that error trackers group by the message and by the exception.
"""

import asyncio
import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from forge_jobs.errors import KeyMissing
from forge_jobs.handlers.context import JobContext
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Cause, ClaimedJob, ErrorRecord, JobStatus
from forge_jobs.model.transitions import Transition
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.privacy.encryption import key_named_by
from forge_jobs.privacy.secrets import without
from forge_jobs.reports import reporter
from forge_jobs.runtime.progress.telling import KeptLog, text_of, traceback_of
from forge_jobs.runtime.queue.failures import handlers_part

logger = reporter(__name__)

LINES_PER_SECOND = 20
"""At a faster pace the log shows counts."""

_WINDOW = 1.0
_MESSAGE = 500
_KINDS = 10

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class JobLog:
    """Logs how runs end. For one event loop.

    :param every_job: log one line at INFO for every run that ended without an error, too. When more
        than ``LINES_PER_SECOND`` end in a second, log one line a second with counts instead
    """

    def __init__(self, host_id: HostId, *, every_job: bool = False) -> None:
        self._host_id = host_id
        self._pace = _Pace() if every_job else None
        self._missing_keys: set[str] = set()

    def ended(
        self, job: ClaimedJob, end: AttemptEnd, transition: Transition, seconds: float
    ) -> None:
        """Log how a run ended that took ``seconds``."""
        pace, error = self._pace, end.error
        is_shown = pace is not None and pace.admits(job.kind, transition.status, end.cause)
        if end.cause is Cause.KEY_MISSING:
            self._key_missing(job, end)
        if error is None:
            level = logging.INFO if is_shown else logging.DEBUG
        else:
            level = logging.ERROR if transition.status is JobStatus.DEAD else logging.WARNING
        if not logger.isEnabledFor(level):
            return
        fields = self._fields(job, end, transition)
        if error is None:
            message, args = _routine(job, end, transition, seconds)
            logger.log(level, message, *args, extra=fields)
        else:
            message, args = _failure(job, end, error, transition, seconds)
            fields["error_type"] = error.type
            logger.log(level, message, *args, exc_info=_exc_info(end, error), extra=fields)

    def _key_missing(self, job: ClaimedJob, end: AttemptEnd) -> None:
        if isinstance(end.exception, KeyMissing):
            name = end.exception.key_name
        else:  # of a handler in a process, whose exceptions stay there
            name = f"{key_named_by(job.payload) or '(unknown)'} or that of a checkpoint or parent"
        if name in self._missing_keys:
            return
        self._missing_keys.add(name)
        logger.warning(
            "jobs of queue %s are encrypted with key %s, which this pod lacks: they wait for a pod "
            "that has the key. Add it to the Encryption of the registry (first of them: job %s)",
            job.claim.queue,
            name,
            job.claim.job_id,
        )

    def close(self) -> None:
        """Log the counts that are not logged yet."""
        if self._pace is not None:
            self._pace.close()

    def _fields(
        self, job: ClaimedJob, end: AttemptEnd, transition: Transition
    ) -> dict[str, object]:
        return {
            "job_id": job.claim.job_id,
            "kind": job.kind,
            "queue": job.claim.queue,
            "attempt": job.attempt,
            "cause": str(end.cause),
            "status": str(transition.status),
            "host_id": self._host_id,
        }


_Line = tuple[str, tuple[object, ...]]
"""A format and the arguments."""


def _routine(job: ClaimedJob, end: AttemptEnd, transition: Transition, seconds: float) -> _Line:
    how = "done" if transition.status is JobStatus.DONE else _words(end.cause)
    then, delay = _then(transition)
    message = f"{_literal(job.kind)} {how} after %.3f s{then} (job %s, attempt %s)"
    return message, (seconds, *delay, job.claim.job_id, _attempt(job))


def _failure(
    job: ClaimedJob, end: AttemptEnd, error: ErrorRecord, transition: Transition, seconds: float
) -> _Line:
    then, delay = _then(transition)
    how = f"{_words(end.cause)} with {_literal(error.type)}"
    message = f"{_literal(job.kind)} {how}{then}: %s (job %s, attempt %s, %.3f s)"
    text = " ".join(error.message.split())[:_MESSAGE]
    args = (*delay, text, job.claim.job_id, _attempt(job), seconds)
    if error.traceback and (end.exception is None or end.is_redacted):
        return f"{message}\n%s", (*args, error.traceback.rstrip())
    return message, args


class _Pace:
    """Lets single lines through while jobs end slowly enough, else counts them.

    Counting lasts until a second has passed in which no more jobs ended than may be shown.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._window_began = self._loop.time()
        self._shown = 0
        self._counts: dict[tuple[str, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def admits(self, kind: str, status: JobStatus, cause: Cause) -> bool:
        """Return whether the end of this job gets a line. Count the end otherwise."""
        if self._timer is None:
            now = self._loop.time()
            if now - self._window_began >= _WINDOW:
                self._window_began, self._shown = now, 0
            self._shown += 1
            if self._shown <= LINES_PER_SECOND:
                return True
            self._wait()
        which = kind, status.value if status in _ENDED else cause.value
        self._counts[which] = self._counts.get(which, 0) + 1
        return False

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._say_counts()

    def _wait(self) -> None:
        self._window_began = self._loop.time()
        self._timer = self._loop.call_later(_WINDOW, self._window_over)

    def _window_over(self) -> None:
        self._timer = None
        if self._say_counts() > LINES_PER_SECOND:
            self._wait()
        else:
            self._window_began, self._shown = self._loop.time(), 0

    def _say_counts(self) -> int:
        counts, self._counts = self._counts, {}
        total = sum(counts.values())
        if total:
            largest = sorted(counts.items(), key=lambda item: -item[1])
            shown = [f"{kind} {how} {count}" for (kind, how), count in largest[:_KINDS]]
            if len(largest) > _KINDS:
                shown.append(f"others {sum(count for _, count in largest[_KINDS:])}")
            seconds = self._loop.time() - self._window_began
            logger.info("%d jobs ended in %.1f s: %s", total, seconds, ", ".join(shown))
        return total


_ENDED = {JobStatus.DONE, JobStatus.DEAD, JobStatus.CANCELLED}


def _words(cause: Cause) -> str:
    return cause.value.replace("_", " ")


def _literal(text: str) -> str:
    """Return ``text`` escaped for use in a format."""
    return text.replace("%", "%%")


def _then(transition: Transition) -> _Line:
    """Return the words for the next run of the job, or for the final status."""
    if transition.status in {JobStatus.FAILED, JobStatus.PENDING}:
        if transition.delay is None:
            return ", due again as before", ()
        words = "retry in" if transition.status is JobStatus.FAILED else "due again in"
        return f", {words} %.1f s", (transition.delay.total_seconds(),)
    return ("" if transition.status is JobStatus.DONE else f", now {transition.status}"), ()


def _attempt(job: ClaimedJob) -> str:
    return f"{job.attempt}" if job.max_attempts is None else f"{job.attempt} of {job.max_attempts}"


def _exc_info(end: AttemptEnd, error: ErrorRecord) -> _ExcInfo | None:
    """Return the exception of the handler, with the traceback from the handler on."""
    raised = end.exception
    if raised is None or end.is_redacted:
        return None
    frames = handlers_part(raised.__traceback__)
    if end.cause is Cause.TIMED_OUT and isinstance(raised, asyncio.CancelledError):
        raised = TimeoutError(error.message)
    return type(raised), raised, frames


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """The ``ctx.log`` of one run. Text and fields of each line name the job.

    :param kept: keeps the lines with the job
    """

    def __init__(self, logger: logging.Logger, context: JobContext, kept: KeptLog) -> None:
        super().__init__(
            logger,
            {
                "job_id": context.job_id,
                "kind": context.kind,
                "queue": context.queue,
                "attempt": context.attempt,
                "worker_id": context.worker_id,
            },
        )
        self._named = (context.kind, context.job_id, context.attempt)
        self._kept = kept

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line that ends with the name of the job. ``extra`` adds fields.

        A job with secrets has them hidden: the line and the exception are logged as text then.
        """
        is_shown = self.isEnabledFor(level)
        if not is_shown and level < logging.INFO:
            return
        self._kept.keep(level, msg, args, kwargs.get("exc_info"))
        if not is_shown:
            return
        extra, traceback = kwargs.pop("extra", None) or {}, ""
        if secrets := self._kept.secrets:
            msg, args = _literal(without(text_of(msg, args), secrets)), ()
            if lines := without(traceback_of(kwargs.pop("exc_info", None)), secrets):
                traceback = _literal(f"\n{lines}")
            extra = {name: _hidden(value, secrets) for name, value in extra.items()}
        elif not args or (len(args) == 1 and isinstance(args[0], dict)):
            # Without arguments a text is no format, and one dict is not a list of arguments.
            text = str(msg) % args[0] if args and args[0] else str(msg)
            msg, args = _literal(text), ()
        extra = {**extra, **(self.extra or {})}
        # One frame more lies between the caller and the logger than the adapter knows of.
        stacklevel = kwargs.pop("stacklevel", 1) + 1
        named = f"{msg} [%s, job %s, attempt %d]{traceback}"
        self.logger.log(
            level, named, *args, *self._named, extra=extra, stacklevel=stacklevel, **kwargs
        )


def _hidden(value: object, secrets: Sequence[str]) -> object:
    """Return a field of a line, as text when secrets had to be hidden."""
    text = text_of(value)
    shown = without(text, secrets)
    return value if shown == text else shown
