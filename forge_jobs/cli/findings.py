"""What the doctor finds, and what it finds of queues and their jobs."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from forge_jobs.cli.output import duration, instant
from forge_jobs.client import JobClient
from forge_jobs.model.jobs import JobFilter, JobStatus, JobSummary
from forge_jobs.model.processes import Allocation, PodState
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.policy import remedies
from forge_jobs.policy.explanations import count
from forge_jobs.storage.protocols import Storage

State = Literal["ok", "warn", "fail"]

_TOLERATED_WAIT = timedelta(minutes=1)
_PAGES, _PAGE = 5, 1000
_KINDS = 5
_ZERO = timedelta(0)


class Finding(Struct, frozen=True, kw_only=True):
    """The outcome of one check, or of one queue in it.

    :param state: ``fail`` is what must be put right; ``warn`` may be meant so
    :param help: the command that helps; "" when nothing has to be done
    """

    check: str
    state: State
    text: str
    help: str = ""


class _Queue(Struct, frozen=True, kw_only=True):
    """One queue as it stands."""

    state: QueueState
    counts: QueueCounts
    allocation: Allocation | None

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def is_served(self) -> bool:
        return self.allocation is not None and bool(self.allocation.pods)

    @property
    def grants(self) -> int:
        """Its slots, on all pods."""
        slots = self.allocation.pods.values() if self.allocation else ()
        return sum(each.grant for each in slots)

    @property
    def waits(self) -> int:
        """Jobs that wait to be claimed."""
        by_status = self.counts.by_status
        return sum(by_status.get(each, 0) for each in (JobStatus.PENDING, JobStatus.FAILED))

    @property
    def is_open(self) -> bool:
        """Nothing but slots keeps its jobs from running."""
        state = self.state
        closed = state.paused or state.cooldown_remaining > _ZERO or not state.settings.max_workers
        return self.is_served and not closed

    def backlog(self) -> str:
        """What waits in it, in a few words."""
        jobs = f"{count(self.waits, 'job')} wait{'s' if self.waits == 1 else ''}"
        oldest = self.counts.oldest_due_for
        return jobs if oldest is None else f"{jobs}, the oldest due for {duration(oldest)}"


async def examine_queues(storage: Storage) -> list[Finding]:
    """Look at every queue: served, open, and its jobs on their way."""
    queues = await _read(storage)
    has_pods = any(pod.lease_remaining > _ZERO for pod in await storage.procs.pods())
    found = [
        *_or_well("queues", _unserved(queues, has_pods), f"{len(queues)} known, none left alone"),
        *_or_well("paused", _paused(queues), "no queue is paused"),
        *_or_well("max-workers", _without_workers(queues), "no queue has max_workers 0"),
        *_or_well("cool-downs", _cooling(queues), "no queue cools down"),
        *_or_well("held", await _held(storage, queues), "no job is held for want of its kind"),
        *_or_well("dead", await _dead(storage, queues), "no job is dead"),
    ]
    waited = f"no due job has waited for more than {duration(_TOLERATED_WAIT)}"
    return found + _or_well("oldest due", await _overdue(storage, queues), waited)


async def _read(storage: Storage) -> list[_Queue]:
    counts = await storage.jobs.counts()
    slots = {each.queue: each for each in await storage.procs.allocations()}
    return [
        _Queue(state=each, counts=counts[each.name], allocation=slots.get(each.name))
        for each in await storage.config.queues()
        if each.name in counts
    ]


def _or_well(check: str, found: Iterable[tuple[State, str, str]], well: str) -> list[Finding]:
    findings = [Finding(check=check, state=state, text=text, help=help)
                for state, text, help in found]  # fmt: skip
    return findings or [Finding(check=check, state="ok", text=well)]


_Found = list[tuple[State, str, str]]


def _unserved(queues: Sequence[_Queue], has_pods: bool) -> _Found:
    found: _Found = []
    for queue in queues:
        if queue.waits and not queue.is_served:
            # Without any pod this is nothing new: the check of pods has said it.
            text = f"no live pod serves {queue.name!r} (FORGE_QUEUES): {queue.backlog()}"
            state: State = "fail" if has_pods else "warn"
            found.append((state, text, remedies.start_worker(queue.name)))
        elif queue.waits and queue.is_open and not queue.grants:
            text = f"no pod has a slot of {queue.name!r} yet: {queue.backlog()}"
            found.append(("warn", text, remedies.LOOK_AT_PODS))
    return found


def _paused(queues: Sequence[_Queue]) -> _Found:
    return [
        (
            "warn",
            f"{each.name!r} is paused{_since(each.state.paused_since)}: {each.backlog()}",
            remedies.resume_queue(each.name),
        )
        for each in queues
        if each.state.paused
    ]


def _without_workers(queues: Sequence[_Queue]) -> _Found:
    return [
        (
            "warn",
            f"{each.name!r} has max_workers 0: {each.backlog()}",
            remedies.set_max_workers(each.name, 1),
        )
        for each in queues
        if not each.state.settings.max_workers
    ]


def _cooling(queues: Sequence[_Queue]) -> _Found:
    return [
        (
            "warn",
            f"{each.name!r} cools down for {duration(each.state.cooldown_remaining)} more after "
            f"throttling, level {each.state.cooldown_level}: {each.backlog()}",
            remedies.resume_queue(each.name),
        )
        for each in queues
        if each.state.cooldown_remaining > _ZERO
    ]


async def _held(storage: Storage, queues: Sequence[_Queue]) -> _Found:
    found: _Found = []
    for queue in queues:
        if queue.counts.held:
            waiting = await _jobs(storage, queue.name, JobStatus.PENDING, JobStatus.FAILED)
            held = [job for job in waiting if job.hold is not None]
            since = min((job.due_at for job in held), default=None)
            text = (
                f"{count(queue.counts.held, 'job')} of {queue.name!r} held, due{_since(since)}: "
                f"no live pod knows the kind: {_kinds(held)}"
            )
            found.append(("warn", text, remedies.start_worker(queue.name)))
    return found


async def _dead(storage: Storage, queues: Sequence[_Queue]) -> _Found:
    found: _Found = []
    for queue in queues:
        if number := queue.counts.by_status.get(JobStatus.DEAD, 0):
            dead = await _jobs(storage, queue.name, JobStatus.DEAD, pages=1)
            ended = [job.finished_at for job in dead if job.finished_at is not None]
            text = (
                f"{count(number, 'job')} of {queue.name!r} dead{_since(min(ended, default=None))}, "
                f"the last at {instant(max(ended, default=None))}: {_kinds(dead)}"
            )
            found.append(("warn", text, remedies.list_jobs(queue.name, JobStatus.DEAD)))
    return found


async def _overdue(storage: Storage, queues: Sequence[_Queue]) -> _Found:
    found: _Found = []
    client = JobClient(storage)
    for queue in queues:
        waited = queue.counts.oldest_due_for
        if waited is None or waited <= _TOLERATED_WAIT or not queue.is_open:
            continue
        waiting = await _jobs(storage, queue.name, JobStatus.PENDING, JobStatus.FAILED)
        able = [job for job in waiting if job.hold is None]
        text = f"a job of {queue.name!r} has been due for {duration(waited)}"
        help = remedies.list_jobs(queue.name, JobStatus.PENDING)
        if able:
            oldest = min(able, key=lambda job: (job.due_at, job.id))
            told = await client.explain(oldest.id)
            text, help = f"{text}: {oldest.id}, {told.text}", told.help or help
        found.append(("warn", text, help))
    await client.aclose()
    return found


async def _jobs(
    storage: Storage, queue: str, *statuses: JobStatus, pages: int = _PAGES
) -> list[JobSummary]:
    """The newest jobs of a queue in these statuses; enough to say what they are."""
    which, cursor = JobFilter(queues=(queue,), statuses=statuses), None
    found: list[JobSummary] = []
    for _ in range(pages):
        page = await storage.jobs.list(which, cursor=cursor, limit=_PAGE)
        found += page.jobs
        cursor = page.cursor
        if cursor is None:
            break
    return found


def _kinds(jobs: Sequence[JobSummary]) -> str:
    """How many of each kind, the most frequent first."""
    counts = Counter(job.kind for job in jobs).most_common()
    shown = ", ".join(f"{kind!r} {number}" for kind, number in counts[:_KINDS])
    return shown + (f" and {len(counts) - _KINDS} more kinds" if len(counts) > _KINDS else "")


def _since(moment: datetime | None) -> str:
    return f" since {instant(moment)}" if moment else ""


async def live_pods(storage: Storage) -> list[PodState]:
    """Pods whose lease still runs."""
    return [pod for pod in await storage.procs.pods() if pod.lease_remaining > _ZERO]
