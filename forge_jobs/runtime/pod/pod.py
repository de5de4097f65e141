"""A running pod: objects put together, started in order, and closed again."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import StoreTime
from forge_jobs.errors import StorageClosed, Unavailable
from forge_jobs.model.events import EventKind, PodNote
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Beat, Pod, PodLease
from forge_jobs.model.queues import Wake
from forge_jobs.outages import Outage, Pauses
from forge_jobs.policy.liveness import Fence
from forge_jobs.reports import report_counts, reporter
from forge_jobs.runtime.heartbeat.receiver import BeatReceiver
from forge_jobs.runtime.heartbeat.thread import Heartbeat
from forge_jobs.runtime.pod.loops import PodLoops
from forge_jobs.runtime.pod.requests import AskedPod
from forge_jobs.runtime.pod.served import ServedQueues
from forge_jobs.runtime.pod.startup import RuntimePlan
from forge_jobs.runtime.pod.tasks import PodTask, PodTasks
from forge_jobs.runtime.progress.sender import ProgressSender
from forge_jobs.runtime.queue.context_calls import LoopThread
from forge_jobs.runtime.queue.job_context import RunContext
from forge_jobs.runtime.queue.job_log import JobLog
from forge_jobs.runtime.queue.loop import QueueLoop
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.queue.services import PodServices, Processes
from forge_jobs.runtime.shared.capacity import Capacity
from forge_jobs.runtime.shared.events import EVENT_CAPACITY, EventBuffer
from forge_jobs.runtime.shared.failures import FailureRecorder
from forge_jobs.runtime.shared.health import PodHealth, QueueHealth
from forge_jobs.runtime.shared.latencies import LatencyRecorder
from forge_jobs.runtime.shared.pod_values import PodValues
from forge_jobs.runtime.shared.rates.limiter import RateLimiter
from forge_jobs.runtime.shared.service import Wakeup

logger = reporter(__name__)

_LISTEN_FOR = timedelta(seconds=1)
_PAUSES = Pauses(0.2, 2.0)
_EAGER_FOR, _EAGER_EVERY = 10.0, 0.5

_AWAITED_FOR = 60.0
"""Seconds within which another server is likely to replace a silent one."""

_SILENT_TOO_LONG = 5.0
"""Seconds without a turn of the heartbeat's thread, which makes several a second."""


class RunningPod:
    """A registered pod with loops. Made by ``start_pod``."""

    def __init__(
        self,
        plan: RuntimePlan,
        pod: Pod,
        lease: PodLease,
        fence: Fence,
        *,
        store_time: StoreTime,
        values: PodValues,
    ) -> None:
        jobs = plan.storage.jobs
        self.plan = plan
        self.host_id: HostId = pod.host_id
        self.note = str(PodNote(version=pod.version, label=pod.label, queues=pod.queues))
        """Of the pod, for its events."""
        self._store_time = store_time
        self.events = EventBuffer(
            jobs,
            host_id=pod.host_id,
            clock=store_time,
            # Events that would be removed at once are not written.
            capacity=EVENT_CAPACITY if plan.settings.keep_events else 0,
        )
        latencies = LatencyRecorder(jobs, pod.host_id, clock=store_time)
        failures = FailureRecorder(jobs, version=pod.version, clock=store_time)
        self.values = values
        self.client: JobClient = values.client
        self.rate_limit = RateLimiter(plan.storage.config, clock=plan.clock)
        self.progress = ProgressSender(jobs, store_time)
        self._home = LoopThread()
        self.services = PodServices(
            storage=plan.storage,
            host_id=pod.host_id,
            lease=lease,
            handlers=plan.handlers,
            settings=plan.settings,
            clock=plan.clock,
            fence=fence,
            events=self.events,
            latencies=latencies,
            failures=failures,
            rate_limit=self.rate_limit,
            strikes=self.client.known_strikes,
            progress=self.progress,
            job_context=self._job_context,
            capacity=None if plan.concurrency is None else Capacity(plan.concurrency),
            values=values,
            job_log=JobLog(pod.host_id, every_job=plan.logs_every_job),
        )
        self.tasks = PodTasks(plan.clock, self._lost)
        self.served = ServedQueues(plan, pod, self.services, self.tasks)
        self.queues = self.served.loops
        self.services.kinds_changed = self._hint_all
        if plan.process_registry:
            self.services.processes = self._process_runner(plan.process_registry)
        self.loops = PodLoops(
            plan,
            pod.host_id,
            events=self.events,
            latencies=latencies,
            failures=failures,
            progress=self.progress,
            running=self.running,
            lease=lambda: self.services.lease,
            client=self.client,
            served=self.served,
            strikes=self.services.strikes,
            rates=self.rate_limit.meter,
        )
        self.receiver = BeatReceiver(
            self.services,
            self.queues,
            self.loops.handover.wakeup.wake,
            self.loops.letters.wakeup.wake,
        )
        self.heartbeat = Heartbeat(
            storage=plan.storage,
            declaration=self.served.declaration,
            lease=lease,
            held=self.services.held,
            fence=fence,
            listener=self,
            requests=AskedPod(self, plan.clock),
            settings=plan.settings,
            clock=plan.clock,
            exit_process=plan.exit_process,
        )
        self.served.heartbeat = self.heartbeat
        self.heartbeat.watchdog.last_gauges = lambda: self.loops.meter.last
        self.draining = False
        self._eager_until = 0.0
        self._eager: asyncio.TimerHandle | None = None
        self._heard_all_at = 0.0
        self.listener: PodTask | None = None
        self.loop_tasks: list[asyncio.Future[None]] = []
        """Futures, each done when a periodic loop has ended for good."""
        self.when_lost: Callable[[], object] = self.heartbeat.leave
        """Called when a task of the pod has ended for good. Begins the stop of the pod."""
        self.when_asked: Callable[[], object] = self.heartbeat.leave
        """Called when an operator asks for a stop. Begins the stop of the pod."""

    def _process_runner(self, registry: str) -> Processes:
        # Imported by the pods that have such handlers.
        from forge_jobs.runtime.executors.runner import ProcessRunner

        services = self.services
        return ProcessRunner(
            registry,
            self.host_id,
            self._job_context,
            self.plan.storage.jobs,
            services.processes_changed,
        )

    def _job_context(self, run: Run) -> RunContext:
        return RunContext(
            run,
            self.client,
            self.plan.storage.jobs,
            self.rate_limit,
            self._home,
            progress=self.progress,
            state=self.values.state,
        )

    def start(self) -> None:
        """Begin to beat, to listen, and to work."""
        self._heard_all_at = self.plan.clock.elapsed()
        self._eager_until = self._heard_all_at + _EAGER_FOR
        self.events.record(EventKind.POD_STARTED, detail=self.note)
        self.heartbeat.start()
        self.served.begin()
        for loop in self.loops.all:
            self.loop_tasks.append(self.tasks.start(loop.name, loop.run).over)
        self.listener = self.tasks.start("listener", self._listen)
        self.tasks.keep_guard()

    # -- the end -----------------------------------------------------------------------------

    def _lost(self, _: str, storage_closed: bool) -> None:
        """Stop, as far as possible: the program has ended one of the tasks of the pod."""
        for queue in self.queues.values():
            queue.pool.drain()
        if storage_closed:
            # The heartbeat thread has connections of its own.
            self.heartbeat.leave()
        # Later: asyncio.run cancels while its loop stands still.
        self._home.loop.call_soon(self._begin_stop)

    def _begin_stop(self) -> None:
        try:
            self.when_lost()
        except Exception:
            logger.exception("the stop of this pod failed: the heartbeat thread gives the slots up")
            self.heartbeat.leave()
            self.tasks.close()

    def stop_ended(self, stop: "asyncio.Future[Any]") -> None:
        """Close up after the task that stopped the pod."""
        if stop.cancelled() or stop.exception() is not None:
            # No task is left on this loop that would give the slots up.
            logger.error(
                "the stop of this pod was cut short: the heartbeat thread gives the slots up",
                exc_info=None if stop.cancelled() else stop.exception(),
            )
            self.heartbeat.leave()
        self.tasks.close()

    # -- calls from the heartbeat ------------------------------------------------------------

    def beat_arrived(self, beat: Beat, sent_at: float) -> None:
        """Apply a beat.

        The next beat follows soon while slots are still being shared out, and while a part of the
        store is silent that may soon be back.
        """
        pools = {name: queue.pool for name, queue in self.queues.items()}
        grants = {name: pool.grant for name, pool in pools.items()}
        self.receiver.beat_arrived(beat, sent_at)
        self.served.beat_arrived(beat)
        now = self.plan.clock.elapsed()
        self._store_time.learn(beat.now, sent_at, now)
        self.loops.meter.observe_store_call(now - sent_at)
        # The beat has a bundle of its own.
        self.loops.meter.calls.observe("heartbeat", now - sent_at)
        self.loops.meter.observe_loop_lag(self.heartbeat.watchdog.lag)
        self.loops.meter.overruns = self.services.overruns.count
        if any(grants[name] != pool.grant for name, pool in pools.items()):
            self._eager_until = now + _EAGER_FOR
        if not beat.silent:
            self._heard_all_at = now
        short = any(pool.grant < max(pool.target, 1) for pool in pools.values())
        is_eager = (short and now < self._eager_until) or (
            now < self._heard_all_at + _AWAITED_FOR and bool(beat.silent)
        )
        if is_eager and not (self.draining or self.heartbeat.quiet) and self._eager is None:
            interval = self.plan.settings.heartbeat_interval.total_seconds()
            self._eager = self._home.loop.call_later(min(_EAGER_EVERY, interval), self._be_eager)

    def registered_again(self, lease: PodLease, at: float) -> None:
        """Go on under the new lease."""
        self._eager_until = self.plan.clock.elapsed() + _EAGER_FOR
        # This pod was cut off. Others may have been cut off too: their claims are not stale yet.
        self.loops.guard.reset()
        self.loops.memory.look_again()
        self.receiver.registered_again(lease, at)

    def fenced(self) -> None:
        """Stop the handlers while their claims still belong to this pod."""
        self.receiver.fenced()

    def _be_eager(self) -> None:
        self._eager = None
        self.heartbeat.wake()

    # -- wake-ups ----------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Distribute the store's wake-ups. No other task has a store call that may be cancelled."""
        failures, outage = 0, Outage()
        while True:
            queues = frozenset(self.queues)
            try:
                wake = await self.plan.storage.jobs.wait_for_work(queues, _LISTEN_FOR, self)
            except StorageClosed:
                raise
            except Exception as error:  # polling goes on without wake-ups
                failures += 1
                if outage.is_new():
                    logger.warning(
                        "no wake-ups arrive, so work of other pods is found by polling: %s: %s",
                        type(error).__name__,
                        error,
                        exc_info=None if isinstance(error, Unavailable) else error,
                    )
                await Wakeup().wait(timedelta(seconds=_PAUSES.after(failures)))
                continue
            failures = 0
            if outage.is_over():
                logger.info("wake-ups arrive again")
                wake = Wake(queues=queues, handover=True, beat=True, fleet=True, letters=True)
            self._distribute(wake)

    def _hint_all(self) -> None:
        for queue in self.queues.values():
            queue.pool.hint()

    def _distribute(self, wake: Wake) -> None:
        for name in wake.queues:
            if queue := self.queues.get(name):
                queue.pool.hint()
        if wake.handover:
            self.loops.handover.wakeup.wake()
        if wake.letters:
            self.loops.letters.wakeup.wake()
        if wake.beat:
            self.heartbeat.wake()
            self.loops.strikes.wakeup.wake()
        if wake.fleet:
            self.loops.coordinator.wakeup.wake()
            self.loops.patterns.wakeup.wake()

    # -- health ------------------------------------------------------------------------------

    def runs(self) -> Iterator[Run]:
        """Return all runs of all queues."""
        for queue in self.queues.values():
            yield from queue.pool.runs()

    def running(self) -> int:
        """Return how many handlers run now."""
        return sum(queue.pool.running for queue in self.queues.values())

    def health(self) -> PodHealth:
        """Return the health of the pod."""
        beat, store = self.heartbeat, self.plan.storage.health()
        now = self.plan.clock.elapsed()
        return PodHealth(
            host_id=self.host_id,
            problems=tuple(self._problems(now)),
            draining=self.draining,
            last_beat_ago=None if beat.last_success is None else now - beat.last_success,
            lost_claims=self.services.lost_claims,
            overruns=self.services.overruns.count,
            blocked_count=beat.watchdog.blocked_count,
            stuck=sum(run.stop_reason is not None for run in self.runs()),
            unlogged=report_counts().unlogged,
            listening=store.wakes,
            queues={
                name: _queue_health(each, name in beat.silent, store.unreadable.get(name, ""))
                for name, each in self.queues.items()
            },
            loops={loop.name: loop.health() for loop in self.loops.all},
            overdue=tuple(loop.name for loop in self.loops.all if loop.is_overdue),
            set_aside=self.loops.set_aside,
        )

    def ailments(self) -> list[str]:
        """Return problems that only a new process can mend. Outages of the store are left out."""
        silent_for = self.heartbeat.silent_for()
        if self.draining or silent_for < _SILENT_TOO_LONG:
            return []  # a pod that leaves ends its beats
        return [f"the heartbeat thread has not turned for {silent_for:.0f} s"]

    def _problems(self, now: float) -> Iterator[str]:
        if self.tasks.lost_because:
            yield self.tasks.lost_because
        for pod_task, problem in self.tasks.problems():
            yield f"{pod_task.name}: {problem}"
        if self.draining:
            yield "draining"
        if self.receiver.is_fenced or self.services.fence.must_stop(now):
            yield "fenced: no beat has reached the store for too long"
        if problem := self.plan.storage.health().problem:
            yield problem
        yield from self.heartbeat.problems(now)
        yield from self._problems_of_work(now)

    def _problems_of_work(self, now: float) -> Iterator[str]:
        for problem in (self.services.threads.problem, self.services.processes.problem):
            if problem:
                yield problem
        silent = self.heartbeat.silent
        if self.queues and silent.issuperset(self.queues):
            yield "the store answers for no queue of this pod"
        for name, each in self.queues.items():
            # A queue whose part alone is silent does not hinder the others. See its health.
            if name not in silent and (each.failures or each.is_overdue(now)):
                yield f"queue {name}: {each.trouble or 'the store does not answer'}"


def _queue_health(queue: QueueLoop, silent: bool, unreadable: str) -> QueueHealth:
    pool, outbox = queue.pool, queue.outbox
    return QueueHealth(
        grant=pool.grant,
        target=pool.target,
        running=pool.running,
        held_ahead=pool.held_ahead,
        waiting_ends=len(outbox.claims()),
        set_aside=outbox.aside.because,
        store_failures=queue.failures,
        silent=silent,
        unreadable=unreadable or (pool.state.unreadable if pool.state else ""),
    )
