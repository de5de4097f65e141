"""A store with an hour behind it, lived through by a clock that the test moves."""

from datetime import datetime, timedelta

from forge_jobs.clock import ManualClock
from forge_jobs.model.events import EventKind, PodNote, TimelineEvent
from forge_jobs.model.failures import FailureSample
from forge_jobs.model.metrics import MINUTE, Histogram
from forge_jobs.model.processes import Pod, PodGauges, PodLease
from forge_jobs.model.queues import QueueSettings
from forge_jobs.model.series import FlowSample
from forge_jobs.operating.access import ALL, Actor
from forge_jobs.operating.operator import Operator
from forge_jobs.policy.percentiles import bucket_of
from forge_jobs.runtime.passes.depths import record_depths_once
from forge_jobs.storage.protocols import Storage
from tests.support.factories import a_pod, claim, done, enqueue_one, finish

KIND = "order.notify"
MINUTES = 40
PAUSED, RESUMED, LOST = 10, 15, 25
"""The minutes in which ada paused mail and resumed mail, and in which the pod was lost."""

_LEASE = timedelta(minutes=2)
_ADA = Actor(name="ada", surface="web", access=ALL)


class Past:
    """A store, the clock, and the minutes that passed."""

    def __init__(self, storage: Storage, clock: ManualClock) -> None:
        self.storage = storage
        self.clock = clock
        self.start = clock.now().replace(second=0, microsecond=0)
        self.pod: Pod = a_pod(label="web-1", version="7a11", queues=("gh", "mail"), kinds=(KIND,))
        self.dies_at = LOST
        self._lived = 0
        self._lease: PodLease | None = None

    def at(self, minute: int) -> datetime:
        """Return the begin of a minute."""
        return self.start + minute * MINUTE

    async def live(self, minutes: int = MINUTES) -> None:
        """Let the first minutes pass. The pod works in gh, and is lost in the midst of them."""
        await self.live_to(minutes)

    async def live_to(self, minute: int) -> None:
        """Let the minutes pass up to the begin of one."""
        if self._lease is None:
            self._lease = await self._begin()
        for each in range(self._lived, minute):
            await self._minute(each, self._lease)
            self.clock.advance(MINUTE)
        self._lived = minute
        while await self.storage.jobs.roll_up(1_000):
            pass

    async def _begin(self) -> PodLease:
        for name, most in (("gh", 4), ("mail", 2)):
            await self.storage.config.ensure_queue(name, QueueSettings(max_workers=most))
        lease = await self.storage.procs.register(self.pod, _LEASE)
        note = PodNote(version="7a11", label="web-1", queues=self.pod.queues)
        await self.tell(EventKind.POD_STARTED, detail=str(note), host_id=self.pod.host_id)
        await self.tell(EventKind.LEADER, detail="term 1", host_id=self.pod.host_id)
        return lease

    async def _minute(self, minute: int, lease: PodLease) -> None:
        await enqueue_one(self.storage, queue="mail", kind=KIND)
        for _ in range(3):
            await enqueue_one(self.storage, queue="gh", kind=KIND)
        if minute == PAUSED:
            async with Operator(self.storage, _ADA) as operator:
                await operator.pause_queue("mail")
        if minute == RESUMED:
            async with Operator(self.storage, _ADA) as operator:
                await operator.resume_queue("mail")
        if minute < self.dies_at:
            await self._work(lease)
        elif minute == self.dies_at:
            await self.tell(EventKind.POD_LOST, detail=self.pod.host_id)
        await record_depths_once(self.storage.jobs, self.storage.procs)

    async def _work(self, lease: PodLease) -> None:
        jobs, procs, now = self.storage.jobs, self.storage.procs, self.clock.now()
        await jobs.heartbeat(lease, (), _LEASE)
        for claimed in await claim(self.storage, lease, limit=3, queue="gh", kinds=(KIND,)):
            await finish(self.storage, claimed, done())
        minute = now.replace(second=0, microsecond=0)
        await procs.record_gauges(
            lease,
            minute,
            PodGauges(
                cpu_percent=41.0,
                memory_bytes=200 << 20,
                disk_free_bytes=9 << 30,
                store_latency_ms=1.5,
                loop_lag_ms=2.0,
                running=3,
            ),
        )
        delay, run = Histogram({bucket_of(0.5): 3}), Histogram({bucket_of(2.0): 3})
        await jobs.add_flows(
            [
                FlowSample(
                    queue="gh",
                    kind=KIND,
                    minute=minute,
                    counts={"succeeded": 3},
                    delay=delay,
                    processing=run,
                    total=run,
                )
            ]
        )
        await jobs.add_failures(
            [
                FailureSample(
                    queue="gh",
                    group="g1",
                    kind=KIND,
                    type="ValueError",
                    message="card … declined",
                    minute=minute,
                    first_at=now,
                    last_at=now,
                    dead=1,
                )
            ]
        )

    async def tell(self, kind: EventKind, **more: str) -> None:
        """Write an event of now."""
        await self.storage.jobs.append_events(
            [TimelineEvent(at=self.clock.now(), kind=kind, **more)]
        )
