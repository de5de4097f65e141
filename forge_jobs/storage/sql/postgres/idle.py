"""The calls of an idle pod: one or two statements each, without a transaction around.

They are the statements of the scripts, which do the rest where one is not enough.
"""

from datetime import timedelta

from sqlalchemy import bindparam, select, text

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Beat, Leadership, PodLease
from forge_jobs.model.schedules import DueSchedules
from forge_jobs.model.transitions import StaleClaims
from forge_jobs.storage.sql.base.tables import CLAIMED, jobs
from forge_jobs.storage.sql.cron import schedules, store
from forge_jobs.storage.sql.cron.store import SqlCronStore
from forge_jobs.storage.sql.fleet import pods
from forge_jobs.storage.sql.fleet.registering import of_lease
from forge_jobs.storage.sql.jobs import finalize
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.postgres.direct import DirectScript

_OWNED = select(jobs.c.id).where(text(CLAIMED), jobs.c.host_id == bindparam("by"))
_RENEW = DirectScript(pods.RENEW.returning(_OWNED.exists().label("owns")))
_QUEUE_BEATS = DirectScript(pods.QUEUE_BEATS)
_STALE = DirectScript(finalize.STALE)
_LEAD = DirectScript(store.LEAD)
_STANDING = DirectScript(store.STANDING)
_DUE = DirectScript(schedules.DUE)


async def beat(database: PostgresDatabase, lease: PodLease, lease_for: timedelta) -> Beat | None:
    """Beat for a pod that holds no claims. None when the script has to find the answer."""
    mine = of_lease(lease)
    renewed = await database.ask(_RENEW, {**mine, "lease_us": duration_us(lease_for)})
    if not renewed or renewed[0].owns:
        return None
    # Only after the renewal is committed: a transaction that found the lease lapsed has removed the
    # slots before.
    found = await database.ask(_QUEUE_BEATS, mine)
    if found is None:
        return None
    return Beat(
        lease_held=True,
        claims={},
        unknown=(),
        queues=pods.queue_beats_of(found),
        handovers=renewed[0].handovers,
        letters=renewed[0].letters,
        requests=renewed[0].requests,
        now=from_us(renewed[0].now),
    )


async def stale_claims(
    database: PostgresDatabase, stale_after: timedelta, limit: int
) -> StaleClaims | None:
    """See ``JobStore.stale_claims``. None when the script has to find them."""
    values = {"silent_us": duration_us(stale_after), "count": limit}
    found = await database.ask(_STALE, values)
    return None if found is None else finalize.stale_of(found)


class PostgresCronStore(SqlCronStore):
    """:class:`~forge_jobs.storage.protocols.CronStore` on Postgres."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database

    async def lead(self, host_id: HostId, lease_for: timedelta) -> Leadership:
        values = {"by": host_id, "lease_us": duration_us(lease_for)}
        standing = await self._postgres.ask(_LEAD, values)
        if standing == []:  # Another pod leads.
            standing = await self._postgres.ask(_STANDING, {})
        if not standing:
            return await super().lead(host_id, lease_for)
        return store.answer_to(host_id, store.leadership_of(standing[0]))

    async def due_schedules(self, limit: int) -> DueSchedules:
        found = await self._postgres.ask(_DUE, {"at_most": limit + 1})
        return (
            await super().due_schedules(limit) if found is None else schedules.due_of(found, limit)
        )
