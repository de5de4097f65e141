"""Progress of running jobs, and the lines of their logs."""

from datetime import datetime

from msgspec import Struct

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, Cause, Claim, JobStatus

LINES_KEPT = 1_000
BYTES_KEPT = 256 * 1024
"""Lines of one attempt that a store keeps, and bytes of their texts: the newest."""

LINE_BYTES = 8 * 1024
"""Bytes of one line. The text of a longer line is cut."""

MESSAGE_BYTES = 1024
"""Bytes of the message of a progress. A longer message is cut."""

ATTEMPTS_KEPT = 32
"""Attempts of one job whose lines a store keeps: those that ran last."""


class Progress(Struct, frozen=True, kw_only=True):
    """How far a run has come, as the handler said last.

    :param total: what ``current`` will be at the end. None: not known
    :param attempt: of the run
    :param at: the store's time when the progress was stored
    """

    current: float
    total: float | None
    message: str
    attempt: int
    at: datetime

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1. None: not known."""
        if self.total is None:
            return None
        return min(max(self.current / self.total, 0.0), 1.0) if self.total > 0 else 1.0


class JobState(Struct, frozen=True, kw_only=True):
    """The few fields of a job that say how the job goes.

    :param token: of the last claim, see :class:`~forge_jobs.model.jobs.Job`
    :param progress: of the last claim. None: that run has set none
    """

    id: JobId
    queue: str
    kind: str
    status: JobStatus
    cause: Cause
    attempt: int
    token: int
    progress: Progress | None = None

    @property
    def is_final(self) -> bool:
        """Return whether the job has ended."""
        return self.status in TERMINAL


class NewProgress(Struct, frozen=True):
    """Progress to store. See :class:`Progress`."""

    current: float
    total: float | None = None
    message: str = ""


class NewLine(Struct, frozen=True):
    """A line to store.

    :param seq: counts the lines of a run from 1. A gap stands for lines that the pod has dropped
    :param at: the store's time, as the pod knows it
    :param level: as in the standard library: 20 is INFO
    :param text: free of NUL characters and lone surrogates, at most ``LINE_BYTES``
    """

    seq: int
    at: datetime
    level: int
    text: str


class ProgressNote(Struct, frozen=True, kw_only=True):
    """Progress and lines of one run since the last note.

    :param progress: None: unchanged
    :param lines: in the order of ``seq``
    """

    claim: Claim
    attempt: int
    progress: NewProgress | None = None
    lines: tuple[NewLine, ...] = ()


class LogLine(Struct, frozen=True, kw_only=True):
    """A line of the log of an attempt.

    :param number: counts the lines of the attempt from 1. Where a number is missing, a line was
        dropped
    :param token: of the claim under which the run wrote the line. An attempt that was handed back
        goes on under another token
    """

    number: int
    at: datetime
    level: int
    text: str
    token: int


class LogPage(Struct, frozen=True, kw_only=True):
    """Lines of one attempt, oldest first.

    :param attempt: whose lines these are. 0: no attempt of the job has lines
    :param attempts: all attempts with lines, by the time of their last run
    """

    attempt: int
    lines: tuple[LogLine, ...]
    attempts: tuple[int, ...]
