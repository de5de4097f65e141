"""The objects and settings that the parts of one pod share."""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from forge_jobs.clients.strikes import Strikes
from forge_jobs.clock import Clock
from forge_jobs.config import RuntimeSettings
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import PodLease
from forge_jobs.outages import Outages
from forge_jobs.policy.liveness import Fence
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.runtime.progress.sender import ProgressSender
from forge_jobs.runtime.queue.execution import Context
from forge_jobs.runtime.queue.job_log import JobLog
from forge_jobs.runtime.queue.overruns import Overruns
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.shared.capacity import Capacity
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.runtime.shared.failures import FailureRecorder
from forge_jobs.runtime.shared.held_claims import HeldClaims
from forge_jobs.runtime.shared.latencies import LatencyRecorder
from forge_jobs.runtime.shared.pod_values import PodValues
from forge_jobs.runtime.shared.rates.ahead import TokensAhead
from forge_jobs.runtime.shared.rates.limiter import RateLimiter
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.runtime.shared.threads import ThreadSupply
from forge_jobs.storage.protocols import Storage

_CLEAN_UP_OF_MARGIN = 0.75
"""The part of the fence's margin that is left to handlers. A fenced pod asks handlers to end at the
start of the margin, and cancels them again before the margin ends."""


def _wake_none() -> None:
    pass


class Processes(Protocol):
    """Runs handlers in other processes: ``executors.runner``."""

    @property
    def problem(self) -> str:
        """Why no process can be started, else ""."""
        ...

    def run(self, run: Run) -> Coroutine[Any, Any, AttemptEnd | None]:
        """Run the handler. None: the claim was lost."""
        ...

    async def close(self) -> None:
        """End all processes."""
        ...


class NoProcesses:
    """In the place of :class:`Processes` for a registry without such handlers."""

    problem = ""

    async def run(self, run: Run) -> AttemptEnd | None:
        """Refuse."""
        raise LookupError(f"{run.job.kind}: this pod was started without processes")

    async def close(self) -> None:
        """Do nothing."""


class PodServices:
    """The objects and settings that the queues and workers of one pod share.

    :param capacity: how many handlers run at once over all queues. None: as many as have slots
    :ivar lease: changes when the pod registers again
    :ivar outages: of queues whose calls fail
    :ivar lost_claims: how many claims turned out to be lost
    :ivar ended_runs: how many runs of handlers have ended
    """

    def __init__(
        self,
        *,
        storage: Storage,
        host_id: HostId,
        lease: PodLease,
        handlers: HandlerRegistry,
        settings: RuntimeSettings,
        clock: Clock,
        fence: Fence,
        events: EventBuffer,
        latencies: LatencyRecorder,
        failures: FailureRecorder,
        rate_limit: RateLimiter,
        strikes: Strikes | None = None,
        progress: ProgressSender,
        job_context: Callable[[Run], Context],
        job_log: JobLog | None = None,
        values: PodValues | None = None,
        capacity: Capacity | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.storage = storage
        self.jobs = storage.jobs
        self.host_id = host_id
        self.lease = lease
        self.handlers = handlers
        self.kinds = handlers.kinds()
        """The kinds that may be claimed and started now."""
        self.settings = settings
        self.patience = settings.patience_within(settings.grace).total_seconds()
        """Seconds between two cancellations of a handler."""
        self.claims_last = (settings.lease - settings.fence_margin).total_seconds()
        """Seconds after which the claims of an unanswered call may be another pod's."""
        self.fenced_patience = _CLEAN_UP_OF_MARGIN * settings.fence_margin.total_seconds()
        """Seconds between two cancellations of a handler while the pod is fenced."""
        self.clock = clock
        self.fence = fence
        self.events = events
        self.latencies, self.failures = latencies, failures
        self.rate_limit, self.strikes = rate_limit, strikes or Strikes(storage.config)
        self.tokens = TokensAhead(rate_limit, handlers, clock)
        self.progress, self.job_context = progress, job_context
        self.values = values or PodValues(None)
        self.job_log = job_log or JobLog(host_id)
        self.capacity = capacity
        self.rng, self.outages = rng or random.Random(), Outages(clock.elapsed)
        self.held = HeldClaims()
        self.loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()
        """Handlers run in copies of this context, so that no handler sees another's variables."""
        self.run_ended = Wakeup()
        """Wakes when a handler has ended while the queue drains."""
        self.threads = ThreadSupply(self.loop, self._threads_changed)
        self.processes: Processes = NoProcesses()
        self._has_threads = self._has_processes = True
        self.kinds_changed: Callable[[], None] = _wake_none
        """Called when more kinds may be claimed than before."""
        self.overruns = Overruns(events)
        self.lost_claims = self.ended_runs = 0
        self.given_up: dict[Claim, float] = {}
        """Claims without a stored end that the pod holds no more -> ``Clock.elapsed`` of that
        moment. Only a reaper may end these claims: jobs that were handed back would run again and
        again, uncounted."""

    def _threads_changed(self, are_there: bool) -> None:
        self._has_threads = are_there
        self._kinds_changed(more=are_there)

    def processes_changed(self, are_there: bool) -> None:
        """Take note whether processes for handlers can be started."""
        self._has_processes = are_there
        self._kinds_changed(more=are_there)

    def _kinds_changed(self, *, more: bool) -> None:
        self.kinds = frozenset(kind for kind in self.handlers.kinds() if self._can_run(kind))
        if more:
            self.kinds_changed()

    def _can_run(self, kind: str) -> bool:
        handler = self.handlers.get(kind)
        if handler is None:
            return False
        if handler.in_process:
            return self._has_processes
        return not handler.needs_thread or self._has_threads

    def claim_lost(self, queue: str, job_id: str, detail: str) -> None:
        """Count a lost claim, and record an event."""
        self.lost_claims += 1
        self.events.record(EventKind.CLAIM_LOST, queue=queue, job_id=job_id, detail=detail)
