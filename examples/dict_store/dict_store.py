"""A store of jobs in the memory of one process: a backend as small as one can be.

Of the contract, four parts are kept, those of claims and their ends. The conformance suite says so:

    python -m forge_jobs.testing.conformance dict_store:open_store \
        --part claim --part exchange --part place_in_queue --part retry_time

All else is missing and says so. Each verb runs to its end without waiting for anything, so no other
caller of the event loop ever sees half of one.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

from claims import Claims
from msgspec.structs import replace
from records import Member, Row, a_job

from forge_jobs import Conflict, NotFound, Storage
from forge_jobs.clock import Clock, SystemClock
from forge_jobs.model.ids import JobId, new_job_id
from forge_jobs.model.jobs import ACTIVE, Cause, EnqueueOutcome, Hold, Job, NewJob
from forge_jobs.model.metrics import Histogram, MetricBucket
from forge_jobs.model.processes import Pod, PodLease

_NOTHING = Histogram({})


class DictStore(Claims):
    """The four views of one store, as one object: no two verbs share a name."""

    # -- in ------------------------------------------------------------------------------------

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        now = await self.now()
        stored: dict[JobId, Row] = {}
        outcomes = []
        for request in requests:
            if request.id in self.rows or request.id in stored:
                raise Conflict(f"job {request.id} is stored already")
            parents = tuple(sorted(each.job_id for each in request.after))
            if missing := [parent for parent in parents if parent not in self.rows | stored]:
                raise NotFound(f"parent {missing[0]} is not stored")
            holder = self._holder(request, stored)
            if holder is None:
                stored[request.id] = Row(a_job(request, parents, now), request)
            elif request.unique is not None and request.unique.mode == "error":
                raise Conflict(f"key {request.unique.key!r} is held by {holder}")
            outcomes.append(EnqueueOutcome(holder or request.id, deduplicated=holder is not None))
        self.rows |= stored
        for row in stored.values():
            self.count(row.job.queue, Cause.ENQUEUED, now)
        return outcomes

    def _holder(self, request: NewJob, beside: dict[JobId, Row]) -> JobId | None:
        if request.unique is None:
            return None
        rows = [*self.rows.values(), *beside.values()]
        wanted = (request.queue, request.unique.key)
        jobs = (row.job for row in rows if row.job.status in ACTIVE)
        return next((job.id for job in jobs if (job.queue, job.unique_key) == wanted), None)

    # -- reads ---------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> dict[JobId, Job]:
        return {job_id: self.rows[job_id].job for job_id in ids if job_id in self.rows}

    async def metrics(self, queue: str, since: datetime, until: datetime) -> list[MetricBucket]:
        return [
            MetricBucket(
                queue=queue, minute=minute, counts=counts, processing=_NOTHING, total=_NOTHING
            )
            for (name, minute), counts in sorted(self.counted.items())
            if name == queue and since <= minute < until
        ]

    # -- pods and queues -----------------------------------------------------------------------

    async def register(self, pod: Pod, lease_for: timedelta) -> PodLease:
        now = await self.now()
        lease = PodLease(pod.host_id, new_job_id())
        self.members[pod.host_id] = Member(pod, lease.epoch, now + lease_for)
        for row in self.rows.values():
            if row.job.hold is Hold.UNKNOWN_KIND and row.job.kind in pod.kinds:
                row.job = replace(row.job, hold=None)
        return lease

    async def unregister(self, lease: PodLease) -> None:
        member = self.members.get(lease.host_id)
        if member is not None and member.epoch == lease.epoch:
            del self.members[lease.host_id]

    async def set_paused(self, name: str, paused: bool) -> None:
        self.queues_by_name[name].paused = paused

    async def clear_cooldown(self, name: str) -> None:
        self.queues_by_name[name].cools_until = None


_STORES: dict[Path, DictStore] = {}


@asynccontextmanager
async def open_store(folder: Path, clock: Clock | None) -> AsyncIterator[Storage]:
    """Open the store of a folder: see ``forge_jobs.testing.conformance.OpenStore``."""
    store = _STORES.setdefault(folder, DictStore(str(folder), clock or SystemClock()))
    yield _bundle(store)


def _bundle(store: DictStore) -> Storage:
    async def reopen() -> Storage:
        return _bundle(store)

    async def close() -> None: ...

    view = cast("Any", store)
    return Storage(view, view, view, view, reopen=reopen, close=close, name="dicts")
