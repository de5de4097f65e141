"""The doctor's findings: the list of problems, and what that list does not know of queues."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from forge_jobs.clients.forecasts import Seen, explained
from forge_jobs.model.filters import JobFilter, JobSummary
from forge_jobs.model.jobs import Hold, Job, JobStatus
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.operating.snapshots.shared import Reader
from forge_jobs.operating.together import all_of
from forge_jobs.operating.words import duration, instant
from forge_jobs.policy import remedies
from forge_jobs.policy.explanations import count
from forge_jobs.policy.judgement.problems.problem import Problem, Severity
from forge_jobs.storage.protocols import Storage

State = Literal["ok", "warn", "fail"]

_TOLERATED_WAIT = timedelta(minutes=1)
_PAGES, _PAGE = 5, 1000
_LAST_DEAD = 200
_KINDS = 5
_DESCRIBED = 5
_ZERO = timedelta(0)


class Finding(Struct, frozen=True, kw_only=True):
    """The outcome of a check, or of one queue in a check.

    :param state: ``fail`` is what must be put right. ``warn`` may be meant so
    :param help: the command that helps. "" when nothing has to be done
    """

    check: str
    state: State
    text: str
    help: str = ""


class _Queue(Struct, frozen=True, kw_only=True):
    """The readings of one queue."""

    state: QueueState
    counts: QueueCounts
    is_served: bool

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def waits(self) -> int:
        """Jobs that wait to be claimed."""
        by_status = self.counts.by_status
        return sum(by_status.get(each, 0) for each in (JobStatus.PENDING, JobStatus.FAILED))

    @property
    def is_open(self) -> bool:
        """True when nothing but slots keeps the queue's jobs from running."""
        state = self.state
        closed = state.paused or state.cooldown_remaining > _ZERO or not state.settings.max_workers
        return self.is_served and not closed

    def backlog(self) -> str:
        """The waiting jobs in a few words."""
        jobs = f"{count(self.waits, 'job')} wait{'s' if self.waits == 1 else ''}"
        oldest = self.counts.oldest_due_for
        return jobs if oldest is None else f"{jobs}, the oldest due for {duration(oldest)}"


_Result = tuple[State, str, str]
"""A state, what was found, and the command that helps."""


class _Around:
    """The store, and what the explanations of all its queues share."""

    def __init__(self, reader: Reader) -> None:
        self.storage = reader.storage
        self._reader = reader
        self._seen: Seen | None = None
        self._lock = asyncio.Lock()

    async def seen(self) -> Seen:
        """Read what explanations rest on, once."""
        async with self._lock:
            if self._seen is None:
                fleet = await self._reader.fleet()
                self._seen = Seen(fleet=fleet, workers=await self.storage.procs.workers())
            return self._seen


class _Check(Struct, frozen=True, kw_only=True):
    """A check of queues.

    :param concerns: whether the check concerns a queue
    :param describe: of a queue that may be concerned. None: all is well, on a closer look
    :param well: said when no queue is concerned
    """

    name: str
    concerns: Callable[[_Queue], bool]
    describe: Callable[[_Around, _Queue], Awaitable[_Result | None]]
    well: str


async def examine_queues(reader: Reader) -> list[Finding]:
    """Examine all queues for what the list of problems does not know.

    The worst of many are described, by how long a job in them has been due.
    """
    around, queues = _Around(reader), await _read(reader)
    found: list[Finding] = []
    for check in _CHECKS:
        concerned = sorted(filter(check.concerns, queues), key=_wait, reverse=True)
        results = await all_of([check.describe(around, each) for each in concerned[:_DESCRIBED]])
        told = [each for each in results if each is not None]
        if told and len(concerned) > _DESCRIBED:
            more = count(len(concerned) - _DESCRIBED, "queue")
            told.append(("warn", f"and {more} more", remedies.LIST_QUEUES))
        found += [
            Finding(check=check.name, state=state, text=text, help=help)
            for state, text, help in told or [("ok", check.well, "")]
        ]
    return found


def _wait(queue: _Queue) -> timedelta:
    return queue.counts.oldest_due_for or _ZERO


async def _read(reader: Reader) -> list[_Queue]:
    fleet, counts = await reader.fleet(), await reader.counts()
    served = {name for pod in fleet.pods if is_live(pod) for name in pod.pod.queues}
    return [
        _Queue(state=each, counts=counts[each.name], is_served=each.name in served)
        for each in fleet.queues
        if each.name in counts
    ]


async def _unreadable(around: _Around, queue: _Queue) -> _Result:
    text = (
        f"the record of {queue.name!r} cannot be read, defaults stand for it: "
        f"{queue.state.unreadable}; set it anew"
    )
    return "fail", text, remedies.set_anew(queue.name)


async def _without_workers(around: _Around, queue: _Queue) -> _Result:
    text = f"{queue.name!r} has max_workers 0: {queue.backlog()}"
    return "warn", text, remedies.set_max_workers(queue.name, 1)


async def _unreadable_jobs(around: _Around, queue: _Queue) -> _Result | None:
    """Held jobs that no release here can read. Those of unknown kinds are among the problems."""
    waiting = await _jobs(around.storage, queue.name, JobStatus.PENDING, JobStatus.FAILED)
    unreadable = [job for job in waiting if job.hold is Hold.UNREADABLE or job.unreadable]
    if not unreadable:
        return None
    job = unreadable[0]
    why = job.unreadable or "the release that claimed it could not read it"
    text = (
        f"{count(len(unreadable), 'job')} of {queue.name!r} with a record that cannot be read, "
        f"for example {job.id}: {why}; mend the record, or start a release that reads it"
    )
    return "fail", text, remedies.requeue(job.id)


async def _dead(around: _Around, queue: _Queue) -> _Result:
    number = queue.counts.by_status[JobStatus.DEAD]
    more = "more than " if JobStatus.DEAD in queue.counts.more else ""
    which = JobFilter(queues=(queue.name,), statuses=(JobStatus.DEAD,))
    dead = (await around.storage.jobs.list(which, order="finished", limit=_LAST_DEAD)).jobs
    ended = [job.finished_at for job in dead if job.finished_at is not None]
    first = min(ended, default=None) if len(dead) == number else None
    of = f"of the last {len(dead)} " if len(dead) < number else ""
    text = (
        f"{more}{count(number, 'job')} of {queue.name!r} dead{_since(first)}, "
        f"the last at {instant(max(ended, default=None))}: {of}{_kinds(dead)}"
    )
    return "warn", text, remedies.list_jobs(queue.name, JobStatus.DEAD)


async def _overdue(around: _Around, queue: _Queue) -> _Result:
    which = JobFilter(queues=(queue.name,), statuses=(JobStatus.PENDING, JobStatus.FAILED))
    able = (await around.storage.jobs.list(which, order="due", limit=1)).jobs
    text = f"a job of {queue.name!r} has been due for {duration(_wait(queue))}"
    help = remedies.list_jobs(queue.name, JobStatus.PENDING)
    if not able:
        return "warn", text, help
    [oldest] = able
    jobs = await around.storage.jobs.get([oldest.id])
    if oldest.id not in jobs:
        return "warn", text, help
    told = await explained(around.storage, jobs[oldest.id], await around.seen())
    return "warn", f"{text}: {oldest.id}, {told.text}", told.help or help


_CHECKS = (
    _Check(
        name="settings",
        concerns=lambda queue: bool(queue.state.unreadable),
        describe=_unreadable,
        well="the settings of each queue can be read",
    ),
    _Check(
        name="max-workers",
        concerns=lambda queue: not queue.state.settings.max_workers,
        describe=_without_workers,
        well="no queue has max_workers 0",
    ),
    _Check(
        name="held",
        concerns=lambda queue: queue.counts.held > 0,
        describe=_unreadable_jobs,
        well="no job is held because it cannot be read",
    ),
    _Check(
        name="dead",
        concerns=lambda queue: queue.counts.by_status.get(JobStatus.DEAD, 0) > 0,
        describe=_dead,
        well="no job is dead",
    ),
    _Check(
        name="oldest due",
        concerns=lambda queue: queue.is_open and _wait(queue) > _TOLERATED_WAIT,
        describe=_overdue,
        well="no job has been due for long in a queue that is open",
    ),
)


async def _jobs(storage: Storage, queue: str, *statuses: JobStatus) -> list[JobSummary]:
    """The newest jobs of a queue in these statuses. Enough to say what they are."""
    which, cursor = JobFilter(queues=(queue,), statuses=statuses), None
    found: list[JobSummary] = []
    for _ in range(_PAGES):
        page = await storage.jobs.list(which, cursor=cursor, limit=_PAGE)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            break
    return found


def _kinds(jobs: Sequence[JobSummary | Job]) -> str:
    """How many of each kind, the most frequent first."""
    counts = Counter(job.kind for job in jobs).most_common()
    shown = ", ".join(f"{kind!r} {number}" for kind, number in counts[:_KINDS])
    return shown + (f" and {len(counts) - _KINDS} more kinds" if len(counts) > _KINDS else "")


def _since(moment: datetime | None) -> str:
    return f" since {instant(moment)}" if moment else ""


def of_problems(found: Sequence[Problem]) -> list[Finding]:
    """Return the list of problems as findings, each with the command that helps."""
    if not found:
        return [Finding(check="problems", state="ok", text="none is seen")]
    return [
        Finding(
            check=each.code,
            state="fail" if each.severity is Severity.CRITICAL else "warn",
            text=f"{each.evidence} {each.why}",
            help=each.command,
        )
        for each in found
    ]
