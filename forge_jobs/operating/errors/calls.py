"""Reads of failures in groups."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import structs

from forge_jobs.clock import to_us
from forge_jobs.errors import InvalidInput, NotFound, Unavailable
from forge_jobs.model.failures import MOST_GROUPS, OTHER, ErrorGroup, ErrorGroups
from forge_jobs.model.filters import JobFilter, JobSummary
from forge_jobs.model.jobs import ErrorRecord, Job
from forge_jobs.model.metrics import MINUTE
from forge_jobs.model.names import check_name
from forge_jobs.model.queries.terms import Choice
from forge_jobs.operating.access import Right
from forge_jobs.operating.base import Calls
from forge_jobs.operating.documents import widened
from forge_jobs.operating.errors.documents import ErrorView
from forge_jobs.policy.explanations import name_of
from forge_jobs.privacy.secrets import HIDDEN
from forge_jobs.storage.cursors import check_limit
from forge_jobs.storage.history.failures import Place, place_of

STEPS = 60
"""Steps of a span of time."""

_HOUR = timedelta(hours=1)
_LONGEST = timedelta(days=400)
_COUNTED = 1_000


class _Span(NamedTuple):
    """A range of time, and the length of the steps in which is counted."""

    since: datetime
    until: datetime
    step: timedelta


class ErrorCalls(Calls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_errors(
        self,
        *,
        over: timedelta = _HOUR,
        queue: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> ErrorGroups:
        """Groups of failures of the last ``over``, the one that failed last first.

        :param over: a minute to 400 days. The counts are in 60 steps, of a minute at least
        :param queue: None means all
        :param cursor: of the page before
        :param limit: 1 to 1,000
        :raises NotFound: the queue is closed to the actor
        """
        self.actor.need(Right.READ)
        if queue is not None:
            self._may_see(check_name("queue", queue))
        span = await self._span(over)
        mine = self.actor.access.queues
        if mine is None or queue is not None:
            found = await self.storage.jobs.error_groups(
                span.since, span.until, queue=queue, step=span.step, cursor=cursor, limit=limit
            )
        else:
            # A cursor of the store may name a queue that is closed to the actor.
            found = await self._of_queues(mine, span, cursor, limit)
        if self.actor.access.payloads:
            return await self._cleaned(found) if self.redaction else found
        return structs.replace(found, groups=tuple(_without_texts(each) for each in found.groups))

    async def _cleaned(self, found: ErrorGroups) -> ErrorGroups:
        """The groups with messages of jobs whose hidden fields are known, else without."""
        ids = {job_id for group in found.groups for job_id in group.jobs}
        stored = await self.storage.jobs.get(sorted(ids)) if ids else {}
        jobs = {job_id: self._readable(job) for job_id, job in stored.items()}
        groups = []
        for group in found.groups:
            newest = _newest(group, [jobs[each] for each in group.jobs if each in jobs])
            message = HIDDEN if newest is None else newest[1].message
            groups.append(structs.replace(group, message=message))
        return structs.replace(found, groups=tuple(groups))

    async def get_error(self, queue: str, group: str, *, over: timedelta = _HOUR) -> ErrorView:
        """A group of failures: the newest of them whole, and what became of the jobs.

        :param over: the counts are those of the last ``over``, as of :meth:`list_errors`
        :raises NotFound: the queue has no such group, or has it no more
        """
        self.actor.need(Right.READ)
        self._may_see(check_name("queue", queue))
        check_name("group", group)
        span = await self._span(over)
        found = await self.storage.jobs.error_group(
            queue, group, span.since, span.until, step=span.step
        )
        if found is None:
            raise NotFound(f"queue {queue!r} has no failures of a group {group!r}")
        jobs, more = await self._jobs_of(found)
        newest = await self._newest_of(found)
        job, error = newest if newest is not None else (None, None)
        if not self.actor.access.payloads:
            found = _without_texts(found)
        elif self.redaction:
            found = structs.replace(found, message=HIDDEN if error is None else error.message)
        labels = {pod.pod.host_id: pod for pod in await self.storage.procs.pods()}
        ran = [labels[job.host_id] for job in jobs if job.host_id in labels]
        gone = sum(job.host_id not in labels for job in jobs)
        pods = Counter(name_of(pod) for pod in ran)
        if gone:
            pods["pods that are gone"] = gone
        return widened(
            ErrorView,
            found,
            newest=None if job is None else job.id,
            newest_at=None if error is None else error.at,
            whole_message="" if error is None else error.message,
            traceback="" if error is None else error.traceback,
            looked_at=len(jobs),
            more=more,
            statuses=_counted(Counter(job.status.value for job in jobs)),
            kinds=_counted(Counter(job.kind for job in jobs)),
            pods=_counted(pods),
            pod_versions=_counted(Counter(pod.pod.version for pod in ran)),
        )

    async def _span(self, over: timedelta) -> _Span:
        if not MINUTE <= over <= _LONGEST:
            raise InvalidInput("over", f"is {over}", "give a minute to 400 days")
        step = max(-(-over // STEPS // MINUTE), 1) * MINUTE
        until = await self.storage.cron.now() + MINUTE
        return _Span(until - over, until, step)

    async def _of_queues(
        self, queues: frozenset[str], span: _Span, cursor: str | None, limit: int
    ) -> ErrorGroups:
        """A page of the groups of some queues."""
        check_limit(limit)
        after = place_of(cursor)
        known = {state.name for state in await self.storage.config.queues()}
        found: list[ErrorGroup] = []
        silent: list[str] = []
        for queue in sorted(queues & known):
            try:
                page = await self.storage.jobs.error_groups(
                    span.since, span.until, queue=queue, step=span.step, limit=MOST_GROUPS
                )
            except Unavailable:
                silent.append(queue)
            else:
                found += page.groups
        found.sort(key=_place, reverse=True)
        rest = [each for each in found if after is None or _place(each) < after]
        page_of, is_last = rest[:limit], len(rest) <= limit
        return ErrorGroups(
            groups=tuple(page_of),
            cursor=None if is_last else _place(page_of[-1]).cursor(),
            silent=tuple(silent),
        )

    async def _jobs_of(self, group: ErrorGroup) -> tuple[list[JobSummary], bool]:
        """The newest jobs of a group, and whether there are more."""
        if group.id == OTHER:
            return [], False
        which = JobFilter(queues=(group.queue,), terms=(Choice("group", (group.id,)),))
        page = await self.storage.jobs.list(which, limit=_COUNTED)
        return list(page.jobs), page.cursor is not None

    async def _newest_of(self, group: ErrorGroup) -> tuple[Job, ErrorRecord] | None:
        """The newest failure that a job of the group still has, as people may read it."""
        stored = await self.storage.jobs.get(group.jobs) if group.jobs else {}
        return _newest(group, map(self._readable, stored.values()))


def _newest(group: ErrorGroup, jobs: Iterable[Job]) -> tuple[Job, ErrorRecord] | None:
    found = [
        (job, error)
        for job in jobs
        if job.queue == group.queue
        for error in job.errors
        if group.id in {error.error_group, OTHER}
    ]
    return max(found, key=lambda each: each[1].at or each[0].enqueued_at, default=None)


def _counted(counts: Counter[str]) -> dict[str, int]:
    """The counts, the greatest first."""
    return dict(counts.most_common())


def _without_texts(group: ErrorGroup) -> ErrorGroup:
    """The group without the message, which may quote a payload."""
    return structs.replace(group, message="")


def _place(group: ErrorGroup) -> Place:
    return Place(to_us(group.last_at), group.queue, group.id)
