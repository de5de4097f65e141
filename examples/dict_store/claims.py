"""Claims of due jobs."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from ends import Ends
from msgspec.structs import replace
from records import SHARED, WAITING, claim_of

from forge_jobs.clock import to_us
from forge_jobs.model.ids import HostId, WorkerId
from forge_jobs.model.jobs import ClaimedJob, Hold, Job, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Exchange, Finalization


class Claims(Ends):
    """``exchange``, and what decides who gets which job."""

    async def exchange(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        settled = tuple(await self.finalize(finalizations))
        now = await self.now()
        claimed = self._claim(queue, demand, lease, now) if demand.limit else []
        return Exchange(
            settled,
            tuple(claimed),
            self._next_due_in(queue, now) if len(claimed) < demand.limit else None,
        )

    def _claim(
        self, queue: str, demand: Demand, lease: PodLease, now: datetime
    ) -> list[ClaimedJob]:
        member, state = self.members.get(lease.host_id), self.queues_by_name[queue]
        if member is None or member.epoch != lease.epoch or member.until <= now:
            return []
        cools = state.cools_until is not None and state.cools_until > now
        if queue not in member.pod.queues or state.paused or cools:
            return []
        claimed: list[ClaimedJob] = []
        published = self._published(now)
        waiting = sorted(self._due(queue, now), key=lambda job: (job.priority, job.due_at, job.id))
        for job in waiting:
            if len(claimed) == demand.limit:
                break
            is_ahead = len(claimed) >= len(demand.worker_ids)
            if job.kind not in published:
                self.rows[job.id].job = replace(job, hold=Hold.UNKNOWN_KIND)
            elif job.kind in demand.kinds and not (is_ahead and job.crashes):
                worker = "" if is_ahead else demand.worker_ids[len(claimed)]
                claimed.append(self._give(job, lease.host_id, WorkerId(worker), now))
        return claimed

    def _due(self, queue: str, now: datetime) -> list[Job]:
        return [
            job
            for job in (row.job for row in self.rows.values())
            if (job.queue, job.hold) == (queue, None)
            and job.status in WAITING
            and job.due_at <= now
            and not (job.expires_at and job.expires_at <= now)
        ]

    def _next_due_in(self, queue: str, now: datetime) -> timedelta | None:
        jobs = [row.job for row in self.rows.values() if row.job.queue == queue]
        times = [job.due_at for job in jobs if job.status in WAITING and job.hold is None]
        return max(min(times) - now, timedelta(0)) if times else None

    def _give(self, job: Job, host_id: HostId, worker: WorkerId, now: datetime) -> ClaimedJob:
        row = self.rows[job.id]
        row.job = job = replace(
            job,
            status=JobStatus.IN_PROGRESS,
            attempt=job.attempt + 1,
            token=max(to_us(now), job.token + 1),
            claimed_at=now,
            heartbeat_at=now,
            started_at=None,
            host_id=host_id,
            worker_id=worker,
        )
        self.count(job.queue, "claimed", now)
        shared = {
            name: getattr(job, name) for name in ClaimedJob.__struct_fields__ if name in SHARED
        }
        return ClaimedJob(
            claim=claim_of(job),
            run_at=job.due_at,
            metadata=row.request.metadata,
            **shared,
        )

    def _published(self, now: datetime) -> set[str]:
        live = (member for member in self.members.values() if member.until > now)
        return {kind for member in live for kind in member.pod.kinds}
