"""The ends of claims, beats, and what becomes of claims without beats."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace
from records import Records, Row, claim_of, is_stale

from forge_jobs.model.filters import BulkOutcome, JobFilter, Refusal
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ERROR_HISTORY, TERMINAL, Cause, Claim, JobStatus
from forge_jobs.model.processes import Beat, ClaimState, HeldClaim, PodLease
from forge_jobs.model.transitions import (
    Finalization,
    Revival,
    StaleClaim,
    StaleClaims,
    Transition,
)

_CANCELLED = Transition(status=JobStatus.CANCELLED, cause=Cause.CANCELLED)


class Ends(Records):
    """``finalize`` and the like. A claim that is not the job's current one ends nothing."""

    async def finalize(
        self, finalizations: Sequence[Finalization], *, connection: object | None = None
    ) -> Sequence[bool | None]:
        now = await self.now()
        return [self._end(each.claim, each.transition, now) for each in finalizations]

    def _end(self, claim: Claim, transition: Transition, now: datetime) -> bool:
        row = self.rows.get(claim.job_id)
        if row is None or claim != claim_of(row.job) or row.job.status != JobStatus.IN_PROGRESS:
            return row is not None and row.settled == claim
        row.settled = claim
        self._apply(row, transition, now)
        return True

    def _apply(self, row: Row, transition: Transition, now: datetime) -> None:
        job, status, cause = row.job, transition.status, transition.cause
        is_overruled = job.cancel_requested and status is not JobStatus.DONE
        if is_overruled:
            status, cause = JobStatus.CANCELLED, Cause.CANCELLED
        errors = job.errors
        if transition.error is not None:
            errors = (*errors, replace(transition.error, at=now))[-ERROR_HISTORY:]
        delay = transition.delay
        row.job = replace(
            job,
            status=status,
            cause=cause,
            due_at=min(job.due_at, now) if delay is None else now + delay,
            attempt=job.attempt - transition.hand_back,
            snoozes=job.snoozes + transition.count_snooze,
            crashes=job.crashes + transition.count_crash,
            errors=errors,
            result=None if is_overruled else transition.result,
            finished_at=now if status in TERMINAL else None,
            rate_limit=transition.rate_limit,
        )
        if transition.cooldown is not None:
            queue = self.queues_by_name[job.queue]
            queue.cools_until = max(queue.cools_until or now, now + transition.cooldown.length)
        self.count(job.queue, cause, now)

    async def release(self, claims: Sequence[Claim]) -> Sequence[bool | None]:
        handed_back = Transition(
            status=JobStatus.PENDING, cause=Cause.RELEASED, delay=None, hand_back=True
        )
        return await self.finalize([Finalization(claim, handed_back) for claim in claims])

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        now = await self.now()
        member = self.members.get(lease.host_id)
        is_held = member is not None and member.epoch == lease.epoch and member.until > now
        if member is not None and is_held:
            member.until = now + lease_for
        current = {
            claim_of(row.job): row
            for row in self.rows.values()
            if (row.job.status, row.job.host_id) == (JobStatus.IN_PROGRESS, lease.host_id)
        }
        states: dict[Claim, ClaimState] = {}
        for held in claims:
            row = current.pop(held.claim, None)
            states[held.claim] = ClaimState.LOST
            if row is not None:
                started_at = row.job.started_at or (now if held.worker_id else None)
                row.job = replace(row.job, heartbeat_at=now, started_at=started_at)
                asked = row.job.cancel_requested
                states[held.claim] = ClaimState.CANCEL_REQUESTED if asked else ClaimState.HELD
        return Beat(
            lease_held=is_held,
            claims=states,
            unknown=tuple(current),
            queues={},
            handovers=False,
            now=now,
        )

    async def stale_claims(self, stale_after: timedelta, limit: int) -> StaleClaims:
        now = await self.now()
        stale = [job for row in self.rows.values() if is_stale(job := row.job, stale_after, now)]
        stale.sort(key=lambda job: job.heartbeat_at or now)
        return StaleClaims(
            (
                StaleClaim(
                    claim=claim_of(job),
                    kind=job.kind,
                    attempt=job.attempt,
                    max_attempts=job.max_attempts,
                    crashes=job.crashes,
                    started=job.started_at is not None,
                    cancel_requested=job.cancel_requested,
                )
                for job in stale[:limit]
            ),
            read_at={"": now},
        )

    async def revive(self, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
        now = await self.now()
        outcomes = []
        for each in revivals:
            row = self.rows.get(each.claim.job_id)
            revived = (
                row is not None
                and claim_of(row.job) == each.claim
                and is_stale(row.job, stale_after, now)
            )
            if row is not None and revived:
                self._apply(row, each.transition, now)
            outcomes.append(revived)
        return outcomes

    async def cancel(
        self, which: JobFilter, *, cursor: str | None = None, limit: int = 500
    ) -> BulkOutcome:
        now = await self.now()
        changed, requested, refused = [], [], dict[JobId, Refusal]()
        for job_id in which.ids or ():
            row = self.rows.get(job_id)
            if row is None:
                refused[job_id] = Refusal.NOT_FOUND
            elif row.job.status is JobStatus.IN_PROGRESS:
                row.job = replace(row.job, cancel_requested=True)
                requested.append(job_id)
            elif row.job.status in TERMINAL:
                refused[job_id] = Refusal.FINISHED
            else:
                self._apply(row, _CANCELLED, now)
                changed.append(job_id)
        return BulkOutcome(tuple(changed), tuple(requested), refused, None)
