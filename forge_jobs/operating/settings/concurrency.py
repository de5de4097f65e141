"""Reads and changes of limits of concurrency: how many jobs of a key of a queue run at once."""

import contextlib
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from forge_jobs.clients.records.values import target_of_limit
from forge_jobs.errors import InvalidInput, NotFound
from forge_jobs.model.filters import JobFilter, JobSummary
from forge_jobs.model.ids import JobId
from forge_jobs.model.looks import FullKey, JobsAsked, LimitLoad
from forge_jobs.model.names import check_name, check_queue, check_stored_text
from forge_jobs.model.queues import MOST_KEY_JOBS, LimitKey, LimitState, check_limits
from forge_jobs.operating.access import Right
from forge_jobs.operating.actions.recording import RecordedCalls
from forge_jobs.operating.documents import Deleted, widened

_MOST = MOST_KEY_JOBS // 2
"""Jobs that run and jobs that wait are read by one list."""


class ConcurrencyLine(LimitState, frozen=True, kw_only=True):
    """A limit with what runs and waits there.

    :param running: jobs of all keys in progress
    :param waiting: jobs on hold, counted up to 10,000. Redis counts those of 1,000 keys
    :param oldest_due_at: due time of the oldest of these. Redis knows the first job of each key
    :param full: keys of which as many jobs are in progress as may
    :param full_keys: of those at which jobs wait the five that are longest without a claim
    """

    running: int = 0
    waiting: int = 0
    oldest_due_at: datetime | None = None
    full: int = 0
    full_keys: tuple[FullKey, ...] = ()


class ConcurrencyLimits(Struct, frozen=True, kw_only=True):
    """Limits of the queues that are open to the actor, by queue and name."""

    limits: tuple[ConcurrencyLine, ...]


class PermitJob(Struct, frozen=True, kw_only=True):
    """A job that runs within a limit, or waits for one.

    :param host_id: the pod that runs the job. "" of one that waits
    :param since: of a running job the begin of the handler, None while the pod holds the job ahead.
        Of a waiting one the time of the enqueue
    """

    id: JobId
    kind: str
    host_id: str
    since: datetime | None


class ConcurrencyView(LimitState, frozen=True, kw_only=True):
    """A limit with the keys at which jobs wait, or with the jobs of one key.

    :param key: the key that was asked for. None: the keys were
    :param keys: keys at which jobs wait, by key
    :param more: there are more keys, after the last of these
    :param running: jobs of the key in progress, the longest claimed first
    :param waiting: jobs of the key on hold, in the order in which they become ready
    """

    key: str | None = None
    keys: tuple[LimitKey, ...] = ()
    more: bool = False
    running: tuple[PermitJob, ...] = ()
    waiting: tuple[PermitJob, ...] = ()


class ConcurrencyCalls(RecordedCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_concurrency(self) -> ConcurrencyLimits:
        """All limits of concurrency, who has set them, and what runs and waits there."""
        self.actor.need(Right.READ)
        found = await self.storage.config.limits()
        mine = [each for each in found if self.actor.sees(each.queue)]
        queues = tuple(sorted({each.queue for each in mine}))
        loads: dict[tuple[str, str], LimitLoad] = {}
        if queues:
            look = await self.storage.jobs.look(JobsAsked(limited=queues))
            loads = {(each.queue, each.name): each for each in look.limits}
        return ConcurrencyLimits(
            limits=tuple(_line(each, loads.get((each.queue, each.name))) for each in mine)
        )

    async def get_concurrency(
        self,
        queue: str,
        name: str,
        *,
        key: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> ConcurrencyView:
        """A limit of concurrency with the keys at which jobs wait, or with the jobs of one key.

        :param key: the key whose jobs are shown. None: show keys
        :param after: show keys behind this one. None: from the first
        :param limit: 1 to 500 keys, or jobs of each sort
        :raises NotFound: the queue has no such limit
        """
        self.actor.need(Right.READ)
        for field, text in (("key", key), ("after", after)):
            check_stored_text(field, text or "")
        state = await self._concurrency(queue, name)
        if not 1 <= limit <= _MOST:
            raise InvalidInput("limit", f"is {limit}", f"give 1 to {_MOST}")
        config = self.storage.config
        if key is None:
            keys = await config.limit_keys(queue, name, after=after, limit=limit + 1)
            return widened(ConcurrencyView, state, keys=tuple(keys[:limit]), more=len(keys) > limit)
        found = await config.limit_holders(queue, name, key, limit=limit)
        lines = await self._lines_by_id(queue, [*found.running, *found.waiting], limit)
        running = [lines[each] for each in found.running if each in lines]
        waiting = [lines[each] for each in found.waiting if each in lines]
        return widened(
            ConcurrencyView,
            state,
            key=key,
            running=tuple(_running(each) for each in running),
            waiting=tuple(_waiting(each) for each in waiting),
        )

    async def set_concurrency(
        self, queue: str, name: str, at_most: int, share: int | None = None
    ) -> LimitState:
        """Set a limit of concurrency. The numbers stay over later deploys. Creates the limit.

        A higher number lets jobs run at once. A lower one stops none: the jobs in progress end, and
        no other begins until fewer are left.

        :param share: weight of each key, whose jobs take turns with those of others. 0: none. None:
            as before, and none for a new limit
        :raises InvalidInput: a number is wrong
        """
        self.actor.act("set_concurrency")
        check_queue("queue", queue)
        check_name("name", name)
        check_limits({name: at_most}, {name: share} if share else {})
        self._may_use(queue)
        if share is None:
            with contextlib.suppress(NotFound):
                share = (await self._concurrency(queue, name)).share
        config, target = self.storage.config, target_of_limit(queue, name)
        await self._recorded(
            "set_concurrency",
            target,
            lambda: config.set_limit(queue, name, at_most, share or None),
            queue,
        )
        return await self._concurrency(queue, name)

    async def delete_concurrency(self, queue: str, name: str) -> Deleted:
        """Delete a limit of concurrency. A program that declares the limit brings the limit back.

        Jobs that wait for the limit become ready.

        :raises NotFound: the queue has no such limit
        """
        self.actor.act("delete_concurrency")
        check_queue("queue", queue)
        check_name("name", name)
        self._may_see(queue)
        config, target = self.storage.config, target_of_limit(queue, name)
        await self._recorded(
            "delete_concurrency", target, lambda: config.delete_limit(queue, name), queue
        )
        return Deleted(name=name)

    async def _concurrency(self, queue: str, name: str) -> LimitState:
        self._may_see(queue)
        for state in await self.storage.config.limits():
            if (state.queue, state.name) == (queue, name):
                return state
        raise NotFound(
            f"the queue {queue!r} has no limit {name!r}; forge-jobs limits concurrency names all"
        )

    async def _lines_by_id(
        self, queue: str, ids: Sequence[str], limit: int
    ) -> dict[str, JobSummary]:
        if not ids:
            return {}
        which = JobFilter(ids=tuple(JobId(each) for each in ids), queues=(queue,))
        page = await self.storage.jobs.list(which, limit=2 * limit)
        return {job.id: job for job in page.jobs}


def _line(state: LimitState, load: LimitLoad | None) -> ConcurrencyLine:
    """Return the limit with its load, as empty where the queue is silent."""
    if load is None:
        return widened(ConcurrencyLine, state)
    return widened(
        ConcurrencyLine,
        state,
        running=load.running,
        waiting=load.waiting,
        oldest_due_at=load.oldest_due_at,
        full=load.full,
        full_keys=load.full_keys,
    )


def _running(job: JobSummary) -> PermitJob:
    return PermitJob(id=job.id, kind=job.kind, host_id=str(job.host_id), since=job.started_at)


def _waiting(job: JobSummary) -> PermitJob:
    return PermitJob(id=job.id, kind=job.kind, host_id="", since=job.enqueued_at)
