"""Pods far from their store, in simulated time: how busy the workers are, and what is held."""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from typing import Any, cast

import pytest

from forge_jobs.config import RuntimeSettings
from forge_jobs.handlers.limits.rates import Rate
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import HostId, new_host_id, new_job_id
from forge_jobs.model.jobs import Claim, ClaimedJob
from forge_jobs.model.processes import PodLease, QueueBeat, Slots
from forge_jobs.model.queues import QueueSettings, QueueState, RateAsk, RateLimit, TokenGrant
from forge_jobs.model.transitions import Demand, Exchange, Finalization
from forge_jobs.policy.liveness import Fence
from forge_jobs.runtime.progress.sender import ProgressSender
from forge_jobs.runtime.queue.execution import Context
from forge_jobs.runtime.queue.loop import QueueLoop
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.queue.worker import Worker
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.runtime.shared.failures import FailureRecorder
from forge_jobs.runtime.shared.latencies import LatencyRecorder
from forge_jobs.runtime.shared.rates.ahead import FEWEST
from forge_jobs.runtime.shared.rates.limiter import START_PATIENCE, RateLimiter
from tests.support.factories import a_claimed_job
from tests.support.runtimes import QUEUE
from tests.support.simulated import SimulatedClock, pass_time, simulate

KIND = "waits"
WORKERS = 40
TRIP = 0.2
JOB = 0.5
HORIZON = RuntimeSettings().claim_ahead.total_seconds()
TIME = 60.0
IDEAL = TIME * WORKERS / JOB

Lasts = Callable[[], float]


class FarQueue:
    """A queue of jobs at the other end of a long line, for any number of pods."""

    def __init__(self, trip: float) -> None:
        self.store_id = "far"
        self.exchange_at_once = 1_000
        self.jobs = self.procs = self.config = self
        self.waiting = 0
        """Jobs that are due."""
        self.ended = 0
        self.released = 0
        self.on_exchange: Callable[[], None] = lambda: None
        self._half = trip / 2
        self._tokens = count(1)

    async def exchange(
        self, queue: str, ends: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        self.on_exchange()
        await pass_time(self._half)
        self.ended += len(ends)
        taken = min(self.waiting, demand.limit)
        self.waiting -= taken
        claimed = tuple(self._claimed(lease.host_id) for _ in range(taken))
        await pass_time(self._half)
        return Exchange((True,) * len(ends), claimed, None)

    async def take_or_turn(self, asks: Sequence[RateAsk], within: timedelta) -> list[TokenGrant]:
        await pass_time(2 * self._half)
        return [TokenGrant(True, timedelta(0))] * len(asks)

    async def lower_grants(self, lease: PodLease, grants: Mapping[str, int]) -> None:
        await pass_time(2 * self._half)

    async def release(self, claims: Sequence[Claim]) -> list[bool]:
        await pass_time(self._half)
        self.waiting += len(claims)
        self.released += len(claims)
        await pass_time(self._half)
        return [True] * len(claims)

    def announce_changes(self, queues: Iterable[str] | None) -> None:
        """Nothing watches this queue."""

    def _claimed(self, host_id: HostId) -> ClaimedJob:
        claim = Claim(QUEUE, new_job_id(), next(self._tokens), host_id)
        return a_claimed_job(claim=claim, kind=KIND, keep_result=False)


def _no_context(_: Run) -> Context:
    raise AssertionError("the handler takes none")


class FarPod:
    """A loop of the queue in one pod, with a grant for all workers."""

    def __init__(
        self, store: FarQueue, lasts: Lasts, workers: int = WORKERS, rate: Rate | None = None
    ) -> None:
        handlers = HandlerRegistry()

        @handlers.job(KIND, rate=rate)
        async def waits() -> None:
            await pass_time(lasts())

        clock = SimulatedClock()
        settings = RuntimeSettings()
        lease = PodLease(new_host_id(), "1")
        storage = cast(Any, store)
        services = PodServices(
            storage=storage,
            host_id=lease.host_id,
            lease=lease,
            handlers=handlers,
            settings=settings,
            clock=clock,
            fence=Fence(timedelta(days=1), settings.fence_margin, clock.elapsed()),
            events=EventBuffer(storage, clock=clock),
            latencies=LatencyRecorder(storage, lease.host_id, clock=clock),
            failures=FailureRecorder(storage, clock=clock),
            rate_limit=RateLimiter(storage, clock=clock),
            progress=ProgressSender(storage, clock),
            job_context=_no_context,
            rng=random.Random(1),
        )
        services.strikes.are_asked = False
        self.loop = QueueLoop(QUEUE, services)
        self.pool = self.loop.pool
        self._running = asyncio.ensure_future(self.loop.run())
        self._slots = Slots(workers, workers)

    def beat(self) -> None:
        """Apply a beat as sent now."""
        state = QueueState(
            name=QUEUE,
            settings=QueueSettings(),
            overridden=frozenset(),
            paused=False,
            cooldown_remaining=timedelta(0),
            cooldown_level=0,
            cooldown_ended_for=None,
        )
        news = QueueBeat(slots=self._slots, state=state, next_due_in=None)
        self.pool.apply(news, now())

    async def stop(self) -> None:
        """Give back what is not started, and let the rest end."""
        self.pool.drain()
        while self.pool.running:
            await pass_time(TRIP)
        self.loop.close()
        await self._running


def now() -> float:
    return SimulatedClock().elapsed()


def steady() -> float:
    return JOB


def slow() -> float:
    return 2 * JOB


_chance = random.Random(1)


def uneven() -> float:
    return _chance.uniform(0.2 * JOB, 1.8 * JOB)


@pytest.mark.parametrize("trip", [0.02, 0.1, TRIP, 0.4])
@pytest.mark.parametrize("lasts", [steady, uneven])
def test_what_is_held_ahead_covers_the_trip(trip: float, lasts: Lasts) -> None:
    async def ended() -> int:
        store = FarQueue(trip)
        store.waiting = 1_000_000
        pod = FarPod(store, lasts)
        pod.beat()
        await pass_time(TIME)
        ended = store.ended
        await pod.stop()
        return ended

    assert simulate(ended()) >= 0.8 * IDEAL


def test_it_is_no_more_than_two_trips_of_work() -> None:
    async def held() -> int:
        store = FarQueue(TRIP)
        store.waiting = 1_000_000
        pod = FarPod(store, uneven)
        pod.beat()
        # Of the first runs the short ones end first, and look like the pace.
        await pass_time(10 * JOB)
        most = 0
        while now() < TIME:
            most = max(most, pod.pool.held_ahead)
            await pass_time(0.01)
        await pod.stop()
        return most

    # The measured pace of uneven jobs is not the mean at every moment.
    assert WORKERS * TRIP / JOB <= simulate(held()) <= 1.5 * WORKERS * 2 * TRIP / JOB


def test_an_idle_pod_gets_what_comes_to_an_empty_queue() -> None:
    """A busy one takes no more than beside a near store, as long as one call brings all."""

    async def taken() -> tuple[int, int]:
        store = FarQueue(TRIP)
        store.waiting = 10 * WORKERS
        busy, idle = FarPod(store, slow), FarPod(store, slow)
        busy.beat()
        while store.ended < 10 * WORKERS:
            await pass_time(TRIP)
        store.waiting = WORKERS
        busy.pool.hint()
        await pass_time(1.1 * TRIP)
        assert busy.pool.running == WORKERS
        idle.beat()
        await pass_time(1.1 * TRIP)
        store.waiting = WORKERS
        for pod in (busy, idle):
            pod.pool.hint()
        await pass_time(1.1 * TRIP)
        found = busy.pool.held_ahead, idle.pool.running
        for pod in (busy, idle):
            await pod.stop()
        return found

    held, running = simulate(taken())
    assert 0 < held <= WORKERS * HORIZON / slow()
    assert held + running == WORKERS


def test_a_stop_gives_back_what_is_held() -> None:
    async def counts() -> tuple[int, int, int, int]:
        store = FarQueue(TRIP)
        store.waiting = jobs = 10_000
        pod = FarPod(store, steady)
        pod.beat()
        await pass_time(10.3)
        held = pod.pool.held_ahead
        await pod.stop()
        return jobs, store.waiting + store.ended, held, store.released

    jobs, accounted, held, released = simulate(counts())
    assert accounted == jobs
    assert released >= held > 0


def test_what_is_held_when_a_backlog_ends_is_run_here() -> None:
    """A hand-back and the next claim would take two trips."""

    async def released(jobs: int) -> int:
        store = FarQueue(TRIP)
        store.waiting = jobs
        pod = FarPod(store, steady)
        pod.beat()
        while store.ended < jobs:
            await pass_time(JOB)
        await pod.stop()
        return store.released

    assert [simulate(released(jobs)) for jobs in range(300, 500, 10)] == [0] * 20


@pytest.mark.parametrize("capacity", [FEWEST - 1, FEWEST])
def test_jobs_that_begin_ask_for_their_tokens_before_the_queue_calls(
    monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    """Their short call would else wait behind that of the queue, and each worker with it."""
    begun: list[Worker] = []
    begin = Worker.begin

    def noted(worker: Worker) -> None:
        begun.append(worker)
        begin(worker)

    monkeypatch.setattr(Worker, "begin", noted)

    async def late() -> tuple[int, int]:
        store = FarQueue(TRIP)
        store.waiting = 1_000_000
        pod = FarPod(store, steady, rate=Rate(capacity))
        calls: list[bool] = []
        limiter = pod.loop.pool._services.rate_limit
        store.on_exchange = lambda: calls.append(len(begun) > limiter.asked)
        pod.beat()
        await pass_time(TIME)
        await pod.stop()
        return len(calls), sum(calls)

    calls, late_ones = simulate(late())
    assert calls > TIME
    assert late_ones == 0


def test_each_job_stops_waiting_for_an_answer_after_its_own_time() -> None:
    async def waited() -> list[float]:
        store = FarQueue(3 * START_PATIENCE)
        limiter = RateLimiter(cast(Any, store), clock=SimulatedClock())

        async def start(after: float) -> float:
            await pass_time(after)
            begun = now()
            with pytest.raises(TimeoutError):
                await limiter.start(RateAsk("api"), lambda: RateLimit(1))
            return now() - begun

        found = await asyncio.gather(*map(start, (0, 0.5, 1.5, 1.9, 5)))
        await pass_time(10)
        store._half = 0
        grant = await limiter.start(RateAsk("api"), lambda: RateLimit(1))
        assert grant.granted
        return found

    assert simulate(waited()) == pytest.approx([START_PATIENCE] * 5)
