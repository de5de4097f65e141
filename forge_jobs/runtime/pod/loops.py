"""The periodic loops of a pod: which pass runs how often, and on which pod."""

import random
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.strikes import READ_EVERY, Strikes
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import PodLease
from forge_jobs.model.retention import Kept
from forge_jobs.operating.actions.continuing import Continuing
from forge_jobs.policy.liveness import ReaperGuard
from forge_jobs.runtime.passes.bisecting import BisectingSender
from forge_jobs.runtime.passes.cleanup import Cleanup, hand_over_once, roll_up_once, sweep_once
from forge_jobs.runtime.passes.coordinator import CoordinatorMemory, coordinate_once
from forge_jobs.runtime.passes.cron import fire_due_once
from forge_jobs.runtime.passes.depths import record_depths_once
from forge_jobs.runtime.passes.gauges import PodMeter, gauges_once
from forge_jobs.runtime.passes.letters import LetterRelay
from forge_jobs.runtime.passes.patterns import LOOK_EVERY, PatternQueues, ServedByName
from forge_jobs.runtime.passes.reaper import reap_once, rest_of
from forge_jobs.runtime.passes.seeds import SEED_EVERY, seed_once, seeded
from forge_jobs.runtime.passes.struck import StruckJobs
from forge_jobs.runtime.pod.startup import RuntimePlan
from forge_jobs.runtime.progress.sender import ProgressSender
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.runtime.shared.failures import FailureRecorder
from forge_jobs.runtime.shared.latencies import LatencyRecorder
from forge_jobs.runtime.shared.rates.meter import RateMeter
from forge_jobs.runtime.shared.service import PeriodicLoop

if TYPE_CHECKING:
    from forge_jobs.runtime.passes.outbox import OutboxLoop

_WOKEN_PAUSE = timedelta(minutes=1)
"""The pause of a loop that wake-ups run when there is work."""

_AWAY_PAUSE = timedelta(seconds=5)
"""Between two tries of letters for a queue whose part of the store is silent."""

_SWEEP_EVERY = 5
"""Reaper intervals between two passes that also look for expired jobs and dead pods."""

_SWEEP_STORE_EVERY = timedelta(minutes=1)

_CONTINUE_EVERY = timedelta(seconds=30)
"""Between two looks for actions of operators whose program has died."""

_MOVE_ON_AFTER = timedelta(seconds=1)
"""Between two passes that bring a store to its newest layout."""

_STARVED_AFTER = 2
"""Coordinator intervals that a kind with due jobs goes without slots before it gets some."""

_Pass = Callable[[], Awaitable[timedelta | None]]


class PodLoops:
    """Makes the loops of one pod and holds what they remember.

    :param running: how many handlers run now
    :param lease: the pod's lease as it is now
    :param client: enqueues seeded jobs
    :param served: the queues that the pod serves now
    :param rates: counts the tokens that the pod takes
    """

    def __init__(
        self,
        plan: RuntimePlan,
        host_id: HostId,
        *,
        events: EventBuffer,
        latencies: LatencyRecorder,
        failures: FailureRecorder,
        progress: ProgressSender,
        running: Callable[[], int],
        lease: Callable[[], PodLease],
        client: JobClient,
        served: ServedByName,
        strikes: Strikes,
        rates: RateMeter,
    ) -> None:
        settings = plan.settings
        self._plan = plan
        self._host_id = host_id
        self._events = events
        self._latencies = latencies
        self._failures = failures
        self._progress = progress
        self._running = running
        self._lease = lease
        self._client = client
        self._strikes = strikes
        self._struck = StruckJobs(plan.storage.jobs, clock=plan.clock)
        self._seeds = seeded(plan.handlers)
        self._rng = random.Random()
        self._swept_at = plan.clock.elapsed()
        self.guard = ReaperGuard(settings.lease, rest_of(settings))
        self.memory = CoordinatorMemory(
            plan.clock, starved_after=_STARVED_AFTER * settings.coordinate_interval
        )
        kept = Kept(
            events=settings.keep_events,
            minutes=settings.keep_minutes,
            hours=settings.keep_hours,
            errors=settings.keep_errors,
            series=settings.keep_series,
        )
        self._cleanup = Cleanup(plan.storage.jobs, kept=kept)
        self._actions = Continuing(plan.storage)
        self._revivals = BisectingSender("the revival of job", clock=plan.clock)
        self._deliveries = BisectingSender("the handover to child", clock=plan.clock)
        self._sent_letters = BisectingSender("the letter", clock=plan.clock)
        self._letters = LetterRelay(plan.storage.jobs, plan.storage.jobs, self._sent_letters)
        self._patterns = PatternQueues(
            plan.storage,
            served,
            plan.patterns,
            idle_after=settings.queue_idle,
            clock=plan.clock,
        )
        self.meter = PodMeter(clock=plan.clock, calls=plan.calls, rates=rates)
        self.coordinator = self._loop("coordinator", self._coordinate, settings.coordinate_interval)
        self.handover = self._loop("handover", self._hand_over, settings.handover_interval)
        self.letters = self._loop("letters", self._relay, settings.handover_interval)
        self.cron = self._loop("cron", self._fire, settings.cron_interval)
        telling = self._loop("progress", self._tell, _WOKEN_PAUSE)
        progress.wakeup = telling.wakeup
        self.patterns = self._loop("patterns", self._look_for_queues, LOOK_EVERY)
        self.strikes = self._loop("strikes", self._read_strikes, READ_EVERY)
        self._relays = tuple(self._outboxes())
        self.all = (
            self.strikes,
            self.coordinator,
            self.handover,
            self.letters,
            self.cron,
            self._loop("reaper", self._reap, settings.reap_interval),
            self._loop("rollup", self._roll_up, settings.rollup_interval),
            self._loop("gauges", self._measure, settings.rollup_interval),
            self._loop("cleanup", self._clean_up, settings.cleanup_interval),
            self._loop("actions", self._continue, _CONTINUE_EVERY),
            self._loop("sweep", self._sweep, _SWEEP_STORE_EVERY),
            self._loop("events", self._flush, settings.event_flush_interval),
            telling,
            # Every pod with a seed: a leader may not know the handlers of others.
            *((self.patterns,) if plan.patterns else ()),
            *self._relays,
            *((self._loop("seeds", self._seed, SEED_EVERY),) if self._seeds else ()),
        )

    def _loop(self, name: str, run_once: _Pass, interval: timedelta) -> PeriodicLoop:
        return PeriodicLoop(name, run_once, interval, clock=self._plan.clock, rng=self._rng)

    def _outboxes(self) -> "Iterator[OutboxLoop]":
        if self._plan.outboxes:
            # Imported by the pods that relay an outbox.
            from forge_jobs.runtime.passes.outbox import OutboxLoop

            for n, source in enumerate(self._plan.outboxes, start=1):
                name = "outbox" if n == 1 else f"outbox {n}"
                yield OutboxLoop(name, source, clock=self._plan.clock, rng=self._rng)

    @property
    def set_aside(self) -> tuple[str, ...]:
        """Revivals, deliveries and letters that the store alone refuses, a line per reason."""
        return self._revivals.refusals + self._deliveries.refusals + self._sent_letters.refusals

    async def flush(self, *, is_last: bool = True) -> None:
        """Write buffered events, latencies and failures.

        :param is_last: also counts that would wait for the end of the minute
        :raises StorageError: the store did not take them
        """
        await self._events.flush_once()
        await self._latencies.flush_once(all_minutes=is_last)
        await self._failures.flush_once()

    async def _coordinate(self) -> timedelta | None:
        plan = self._plan
        led = self.memory.is_leader()
        report = await coordinate_once(
            plan.storage, self._host_id, plan.settings, self.memory, events=self._events
        )
        if report.leading and not led:
            self.cron.wakeup.wake()
        return report.next_in

    async def _hand_over(self) -> timedelta | None:
        # The end of a parent wakes this loop, and a beat finds handovers whose wake-up was lost.
        applied = await hand_over_once(self._plan.storage.jobs, self._deliveries)
        return None if applied else _WOKEN_PAUSE

    async def _relay(self) -> timedelta | None:
        # A death wakes this loop, and a beat finds letters whose wake-up was lost.
        report = await self._letters.relay_once()
        return _AWAY_PAUSE if report.away else None if report.relayed else _WOKEN_PAUSE

    async def _fire(self) -> timedelta | None:
        if not self.memory.is_leader():
            return None
        if self._strikes.are_asked and self._strikes.judge is None:
            await self._strikes.refresh()  # none were read yet
        report = await fire_due_once(
            self._plan.storage.cron,
            self._plan.settings,
            self._rng,
            events=self._events,
            judge=self._strikes.judge,
        )
        return report.next_in

    async def _reap(self) -> timedelta | None:
        plan = self._plan
        now = plan.clock.elapsed()
        sweep = now - self._swept_at >= _SWEEP_EVERY * plan.settings.reap_interval.total_seconds()
        report = await reap_once(
            plan.storage.jobs,
            plan.storage.procs,
            plan.settings,
            self.guard,
            plan.handlers,
            clock=plan.clock,
            events=self._events,
            sweep=sweep,
            sender=self._revivals,
            failures=self._failures,
        )
        if sweep and report.is_swept:
            self._swept_at = now
        return report.next_in

    async def _roll_up(self) -> timedelta | None:
        if self.memory.is_leader():
            storage = self._plan.storage
            await record_depths_once(storage.jobs, storage.procs)
            await roll_up_once(storage.jobs, clock=self._plan.clock)
        return None

    async def _measure(self) -> timedelta | None:
        if self._relays:
            from forge_jobs.runtime.passes.outbox import measure_all

            now = await self._plan.storage.cron.now()
            self.meter.outboxes = await measure_all(self._relays, now)
        await gauges_once(self._plan.storage, self._lease(), self.meter, running=self._running())
        return None

    async def _clean_up(self) -> timedelta | None:
        if not self.memory.is_leader():
            self._cleanup.give_up()
            self.meter.kept = ()
            return None
        # A clock step back and forth between two passes of the reaper leaves no other trace.
        self.guard.must_look = True
        report = await self._cleanup.go_on()
        self.meter.kept = self._cleanup.in_the_way
        return report.next_in

    async def _sweep(self) -> timedelta | None:
        if self.memory.is_leader():
            swept = await sweep_once(self._plan.storage.jobs, events=self._events)
            return _MOVE_ON_AFTER if swept.moved else None
        return None

    async def _continue(self) -> timedelta | None:
        if self.memory.is_leader():
            await self._actions.go_on_once()
        return None

    async def _seed(self) -> timedelta | None:
        await seed_once(self._plan.storage, self._client, self._seeds)
        return SEED_EVERY * self._rng.uniform(0.5, 1.0)

    async def _look_for_queues(self) -> timedelta | None:
        await self._patterns.look_once()
        return None

    async def _read_strikes(self) -> timedelta | None:
        judge = await self._strikes.read()
        return await self._struck.release_once(judge.marks) if self.memory.is_leader() else None

    async def _tell(self) -> timedelta | None:
        await self._progress.send_once()
        return None

    async def _flush(self) -> timedelta | None:
        await self.flush(is_last=False)
        return None
