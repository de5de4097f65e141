"""The leader lease and schedules."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import (
    EnqueueOutcome,
    NewJob,
)
from forge_jobs.model.processes import (
    Leadership,
)
from forge_jobs.model.schedules import DueSchedules, Firing, Schedule, ScheduleSpec
from forge_jobs.storage.protocols.looking import LookedAtFleet


class CronStore(LookedAtFleet, Protocol):
    """The leader lease and schedules."""

    store_id: str

    async def lead(self, host_id: HostId, lease_for: timedelta) -> Leadership:
        """Take the leader lease when it is free or has run out, renew the lease when held, and
        return its state.

        The term grows with every change of holder, also back to an earlier holder, and also when a
        holder takes again a lease that ran out.
        """
        ...

    async def resign(self, host_id: HostId, term: int) -> None:
        """Give the lease up. No-op for another holder or term. Wakes coordinators elsewhere."""
        ...

    async def leader(self) -> Leadership | None:
        """Return the lease as stored, None before any pod led."""
        ...

    async def now(self) -> datetime:
        """Return the store's time."""
        ...

    async def ensure_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        """Declare a schedule from code.

        A schedule that an operator edited or deleted stays as it is. So does a stored schedule with
        the same spec, next occurrence included.

        Where the spec differs but expression and time zone do not, the stored next occurrence must
        stay: it may have been missed, and the catch-up policy decides about missed ones. With other
        times ``next_at`` replaces the stored one.
        """
        ...

    async def put_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        """Store an operator's edit: create or replace. Un-pauses nothing, clears ``error``.

        The next occurrence stays as in :meth:`ensure_schedule`. A schedule that was deleted or
        disabled has none, and takes ``next_at``.
        """
        ...

    async def pause_schedule(self, name: str, paused: bool, next_at: datetime | None) -> Schedule:
        """Pause (``next_at`` is ignored), or resume with the given next occurrence.

        :raises NotFound: no such schedule
        """
        ...

    async def delete_schedule(self, name: str) -> None:
        """Remove a schedule. :meth:`ensure_schedule` does not bring the schedule back, an edit
        does.

        :raises NotFound: no such schedule
        """
        ...

    async def schedules(self, *, with_deleted: bool = False) -> list[Schedule]:
        """Return all schedules by name, deleted ones only ``with_deleted``."""
        ...

    async def get_schedule(self, name: str) -> Schedule | None:
        """Return one schedule, None when there is none or it was deleted."""
        ...

    async def due_schedules(self, limit: int) -> DueSchedules:
        """Return schedules whose next occurrence has come."""
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Advance schedules and enqueue their jobs, each in one step. Many cost hardly more than
        one.

        Per item False, and nothing of the item written, when the schedule's version has moved on,
        also by an earlier item of the same call.

        Jobs are stored as by ``JobStore.enqueue``: a duplicate of a unique key counts as skipped, a
        repeat of an id as neither.

        :raises StorageError: a job is refused (Conflict: its id is taken). Then no item of the call
            is written, so that the others can be fired without the refused one. The same when the
            error is Locked, because a caller's open transaction holds the unique key of a job.
            After any other Unavailable each item may have been written or not
        """
        ...

    async def trigger(self, name: str, job: NewJob) -> EnqueueOutcome:
        """Enqueue a job of the schedule out of turn. The next occurrence stays.

        Counts as fired or skipped like any other.

        :raises NotFound: no such schedule
        """
        ...
