"""Materials of incidents: pods, gauges, minutes, and calls of the HTTP API."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import httpx
from msgspec import Struct

from forge_jobs.clock import ManualClock
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.processes import PodGauges, PodLease
from forge_jobs.model.series import FlowSample
from forge_jobs.storage.protocols import Storage
from tests.support.factories import KIND, QUEUE, claim_one, enqueue_one, held
from tests.support.fleets import HOUR, MINUTE, Fleet
from tests.support.simulated_queues import histogram

API = "/api/v1"


class Planted(Struct, frozen=True):
    """An incident that has been made.

    :param since: when the cause began
    :param end: what an operator does, with a client of the HTTP API
    :param slack: how far the problem's own begin may be from ``since``
    """

    since: datetime
    end: Callable[[httpx.AsyncClient], Awaitable[None]]
    slack: timedelta = timedelta(0)


class Drill:
    """The surroundings of an incident."""

    def __init__(self, storage: Storage, fleet: Fleet, clock: ManualClock) -> None:
        self.storage, self.fleet, self.clock = storage, fleet, clock

    async def pod(self, **options: Any) -> PodLease:
        """Start a pod of the queue of the incident."""
        return await self.fleet.start(QUEUE, **options)

    async def running(self, lease: PodLease) -> ClaimedJob:
        """Let the pod run a new job."""
        await enqueue_one(self.storage)
        claimed = await claim_one(self.storage, lease)
        await self.storage.jobs.heartbeat(lease, [held(claimed, "worker")], 24 * HOUR)
        return claimed

    async def gauges(self, lease: PodLease, **measured: Any) -> None:
        """Let a pod say what it measured."""
        await self.storage.procs.record_gauges(lease, self.minute(), PodGauges(**measured))

    def minute(self) -> datetime:
        """Return the begin of the present minute."""
        return self.clock.now().replace(second=0, microsecond=0)

    def next_minute(self) -> datetime:
        """Go to the begin of the next minute."""
        self.clock.advance(self.minute() + MINUTE - self.clock.now())
        return self.clock.now()

    async def flow(self, *, delays: list[float], runs: list[float]) -> None:
        """Let a pod say what ended in the present minute."""
        sample = FlowSample(
            queue=QUEUE,
            kind=KIND,
            minute=self.minute(),
            counts={"succeeded": len(runs)},
            delay=histogram(delays),
            processing=histogram(runs),
            total=histogram(runs),
        )
        assert await self.storage.jobs.add_flows([sample]) == []

    async def roll_up(self) -> None:
        """Roll up all minutes that have ended."""
        while await self.storage.jobs.roll_up(100):
            pass


async def asked(
    caller: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None = None
) -> None:
    """Do something over HTTP, which must go well."""
    answer = await caller.request(method, API + path, json=body)
    assert answer.status_code == 200, answer.text
