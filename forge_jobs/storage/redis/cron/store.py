"""The leader lease and schedules."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.model.looks import MOST_EVENTS, FleetLook
from forge_jobs.model.processes import Leadership
from forge_jobs.model.schedules import DueSchedules, Firing, Schedule, ScheduleSpec
from forge_jobs.storage.batches import check_batch
from forge_jobs.storage.redis.base.answers import Decoder
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.config import rate_limits
from forge_jobs.storage.redis.config.store import queues_and_limited
from forge_jobs.storage.redis.cron import fire, schedules
from forge_jobs.storage.redis.fleet.allocations import MaybeStored, fleet_version, read_queues
from forge_jobs.storage.redis.fleet.pods import list_pods
from forge_jobs.storage.redis.jobs.metrics import read_events
from forge_jobs.storage.salvage import rest_of

_decode_allocation = Decoder(MaybeStored).decode


class _Standing(msgspec.Struct, frozen=True, array_like=True):
    """How the leader lease stands, and what queues there are.

    :param remaining: below zero once the lease ran out
    """

    host: str
    term: int
    remaining: int
    queues: list[str]


_decode_standing = Decoder(_Standing).decode


class RedisCronStore:
    """The ``CronStore`` on Redis."""

    def __init__(self, database: Database) -> None:
        self.store_id = database.store_id
        self._database = database
        # The queues there were when this pod last led. Asked for in the step that renews the
        # lease, so that a leader's pass costs one command on one server.
        self._queues: Sequence[str] = ()

    async def lead(self, host_id: HostId, lease_for: timedelta) -> Leadership:
        keys, asked = self._database.keys, self._queues
        own = request_of("lead", host=host_id, lease_for=duration_us(lease_for))
        requests: dict[str, object] = {keys.fleet: own}
        requests |= {keys.queue(name): () for name in asked}
        answers, silent = await self._database.run_some("lead", requests, msgspec.Raw)
        if keys.fleet in silent:
            raise silent[keys.fleet]
        standing = _decode_standing(answers[keys.fleet])
        if standing.host != host_id:
            self._queues = ()
            return _leadership(standing, "")
        seen = {
            name: _decode_allocation(answers[base])
            for name in asked
            if (base := keys.queue(name)) in answers
        }
        self._queues = standing.queues
        return _leadership(standing, await self._fleet_version(standing, seen))

    async def resign(self, host_id: HostId, term: int) -> None:
        fleet = self._database.keys.fleet
        request = request_of("resign", host=host_id, term=term)
        await self._database.run_one("resign", fleet, request, bool)

    async def leader(self) -> Leadership | None:
        fleet = self._database.keys.fleet
        found = await self._database.run_one("leader", fleet, [], list[_Standing])
        if not found:
            return None
        return _leadership(found[0], await self._fleet_version(found[0], {}))

    async def _fleet_version(self, standing: _Standing, seen: Mapping[str, MaybeStored]) -> str:
        unseen = [name for name in standing.queues if name not in seen]
        return fleet_version({**seen, **await read_queues(self._database, unseen)})

    async def look(self) -> FleetLook:
        db = self._database
        queues, limited = await queues_and_limited(db)
        now, strikes = await db.run_one("fleet_moment", db.keys.fleet, [], tuple[int, int])
        return FleetLook(
            now=from_us(now),
            leader=await self.leader(),
            schedules=tuple(await self.schedules()),
            queues=tuple(queues),
            limited=limited,
            limits=tuple(await rate_limits.states(db)),
            pods=tuple(await list_pods(db)),
            events=tuple(await read_events(db, None, "", MOST_EVENTS)),
            may_strike=strikes > 0,
        )

    async def now(self) -> datetime:
        return from_us(await self._database.run_one("time", self._database.keys.fleet, [], int))

    async def ensure_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        return await schedules.ensure(self._database, spec, next_at)

    async def put_schedule(self, spec: ScheduleSpec, next_at: datetime | None) -> Schedule:
        return await schedules.put(self._database, spec, next_at)

    async def pause_schedule(self, name: str, paused: bool, next_at: datetime | None) -> Schedule:
        return await schedules.pause(self._database, name, paused, next_at)

    async def delete_schedule(self, name: str) -> None:
        await schedules.delete(self._database, name)

    async def schedules(self, *, with_deleted: bool = False) -> list[Schedule]:
        found = sorted((await schedules.read(self._database)).items())
        return [stored.public() for _, stored in found if with_deleted or not stored.deleted]

    async def get_schedule(self, name: str) -> Schedule | None:
        found = (await schedules.read(self._database, [name])).get(name)
        return None if found is None or found.deleted else found.public()

    async def due_schedules(self, limit: int) -> DueSchedules:
        due = await schedules.read_due(self._database, limit)
        if due.has_outbox:
            # A leader that died, or another pod that is about to take its place.
            await fire.deliver_outbox(self._database)
            due = await schedules.read_due(self._database, limit)
        return due.public()

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        check_batch([job for one in firings for job in one.jobs])
        return await fire.fire(self._database, firings)

    async def trigger(self, name: str, job: NewJob) -> EnqueueOutcome:
        return await fire.trigger(self._database, name, job)


def _leadership(standing: _Standing, version: str) -> Leadership:
    remaining, ended_for = rest_of(standing.remaining, 0)
    return Leadership(
        host_id=HostId(standing.host),
        term=standing.term,
        remaining=remaining,
        ended_for=ended_for,
        fleet_version=version,
    )
