"""The loop of one queue and its workers, with beats that the test gives."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
from msgspec import structs

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.errors import StorageClosed
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import new_worker_id
from forge_jobs.model.jobs import ClaimedJob
from forge_jobs.model.processes import PodLease, QueueBeat, Slots
from forge_jobs.model.queues import QueueState
from forge_jobs.model.transitions import Demand, Exchange
from forge_jobs.policy.liveness import Fence
from forge_jobs.runtime.progress.sender import ProgressSender
from forge_jobs.runtime.queue.execution import Context
from forge_jobs.runtime.queue.loop import QueueLoop
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.runtime.shared.failures import FailureRecorder
from forge_jobs.runtime.shared.latencies import LatencyRecorder
from forge_jobs.runtime.shared.rates.limiter import RateLimiter
from forge_jobs.storage.protocols import Storage
from tests.support.factories import claim_for, enqueue_one, register
from tests.support.runtimes import QUEUE, quick_settings, seconds
from tests.support.waiting import wait_until


def _no_context(_: Run) -> Context:
    raise AssertionError("these handlers take none")


class Bench:
    """The loop of a queue that hears from the test alone."""

    def __init__(self, storage: Storage, lease: PodLease, state: QueueState, clock: Clock) -> None:
        self.storage = storage
        self.state = state
        self.clock = clock
        self.handlers = HandlerRegistry()
        self.started: list[int] = []
        self.doors = [anyio.Event() for _ in range(5)]

        @self.handlers.job("enters")
        async def enters(n: int) -> None:
            self.started.append(n)
            await self.doors[n].wait()

        settings = quick_settings(lease=seconds(15), fence_margin=seconds(3))
        self.services = PodServices(
            storage=storage,
            host_id=lease.host_id,
            lease=lease,
            handlers=self.handlers,
            settings=settings,
            clock=clock,
            fence=Fence(settings.lease, settings.fence_margin, clock.elapsed()),
            events=EventBuffer(storage.jobs, clock=clock),
            latencies=LatencyRecorder(storage.jobs, lease.host_id, clock=clock),
            failures=FailureRecorder(storage.jobs, clock=clock),
            rate_limit=RateLimiter(storage.config),
            progress=ProgressSender(storage.jobs, clock),
            job_context=_no_context,
            rng=random.Random(1),
        )
        self.services.strikes.are_asked = False
        self.loop = QueueLoop(QUEUE, self.services)
        self.pool = self.loop.pool

    def beat(
        self, slots: int = 1, *, paused: bool = False, due_in: timedelta | None = None
    ) -> None:
        """Apply a beat as sent now."""
        settings = structs.replace(self.state, paused=paused)
        news = QueueBeat(slots=Slots(slots, slots), state=settings, next_due_in=due_in)
        self.pool.apply(news, self.clock.elapsed())

    async def claim(self, count: int) -> list[ClaimedJob]:
        """Return claims of this pod that the pool does not know."""
        for n in range(count):
            await enqueue_one(self.storage, kind="enters", payload=f'{{"n":{n}}}')
        workers = [new_worker_id() for _ in range(count)]
        kinds = frozenset({"enters"})
        return await claim_for(self.storage, QUEUE, workers, count, kinds, self.services.lease)

    def arrive(self, claimed: Sequence[ClaimedJob], *, more: bool = False) -> None:
        """The reply to a call that brings ``claimed``.

        :param more: as many as were asked for
        """
        limit = len(claimed) + (not more)
        demand = Demand(worker_ids=(), limit=limit, kinds=self.services.kinds)
        exchange = Exchange((), tuple(claimed), None)
        self.pool.arrived(exchange, demand, self.clock.elapsed(), self.services.lease)

    async def at_rest(self) -> None:
        """The loop has seen every wake-up and waits for the next."""
        loop = self.loop
        await wait_until(
            lambda: loop.is_idle and not loop.outbox.wakeup._is_awake, description="the loop rests"
        )
        for _ in range(5):
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def bench(storage: Storage, clock: Clock | None = None) -> AsyncGenerator[Bench]:
    lease = await register(storage, kinds=("enters",))
    [state] = await storage.config.queues()
    made = Bench(storage, lease, state, clock or SystemClock())
    loop = asyncio.ensure_future(made.loop.run())
    try:
        yield made
    finally:
        for door in made.doors:
            door.set()
        await wait_until(lambda: made.pool.running == 0, description="nothing runs")
        made.pool.drain()
        made.loop.close()
        with contextlib.suppress(StorageClosed):
            await loop
