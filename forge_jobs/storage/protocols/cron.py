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


class CronStore(Protocol):
    """The leader lease and schedules."""

    store_id: str

    async def lead(self, host_id: HostId, lease_for: timedelta) -> Leadership:
        """Take the leader lease when it is free or has run out, renew it when held, and say how
        it stands. The term grows with every change of holder, also back to an earlier one and
        also when the old holder's lease simply ran out and it takes it again."""
        ...

    async def resign(self, host_id: HostId, term: int) -> None:
        """Give the lease up; no-op for another holder or term. Wakes coordinators elsewhere."""
        ...

    async def leader(self) -> Leadership | None:
        """The lease as it stands; None before anyone led."""
        ...

    async def now(self) -> datetime:
        """The store's time."""
        ...

    async def ensure_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        """Declare a schedule from code. One that an operator edited or deleted stays as it is;
        one that is there with the same spec too, its next occurrence included.

        Where the spec differs but expression and time zone do not, the stored next occurrence must
        stay: it may have been missed, and is for the catch-up policy to judge. With other times
        ``next_at`` replaces it.
        """
        ...

    async def put_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        """An operator's edit: create or replace; un-pauses nothing, clears ``error``.

        The next occurrence stays as in :meth:`ensure_schedule`. One that was deleted or disabled
        has none, and takes ``next_at``.
        """
        ...

    async def pause_schedule(self, name: str, paused: bool, next_at: datetime | None) -> Schedule:
        """Pause (``next_at`` is ignored), or resume with the given next occurrence.

        :raises NotFound: no such schedule
        """
        ...

    async def delete_schedule(self, name: str) -> None:
        """Remove it; a later :meth:`ensure_schedule` does not bring it back, an edit does.

        :raises NotFound: no such schedule
        """
        ...

    async def schedules(self, *, with_deleted: bool = False) -> list[Schedule]:
        """All schedules by name, those that were deleted only ``with_deleted``."""
        ...

    async def get_schedule(self, name: str) -> Schedule | None:
        """One schedule, None when there is none or it was deleted."""
        ...

    async def due_schedules(self, limit: int) -> DueSchedules:
        """Schedules whose next occurrence has come."""
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        """Advance schedules and enqueue their jobs, each in one step; many cost hardly more than
        one. Per item False, and nothing written of it, when its version has moved on: also by an
        item before it in the same call.

        Jobs go in as by ``JobStore.enqueue``: a duplicate of a unique key counts as skipped,
        a repeat of an id as neither.

        :raises StorageError: a job is refused (Conflict: its id is taken). Then no item of the
            call is written, so that the others can be fired without the one it belongs to. The
            same when it is Locked, because somebody's open transaction holds the unique key of a
            job. After any other Unavailable each item may have been written or not
        """
        ...

    async def trigger(self, name: str, job: NewJob) -> EnqueueOutcome:
        """Enqueue a job of the schedule out of turn; the next occurrence stays. Counts as
        fired or skipped like any other.

        :raises NotFound: no such schedule
        """
        ...
