"""The objects and settings that the parts of one pod share."""

import asyncio
import contextvars
import random
from collections.abc import Callable

from forge_jobs.clock import Clock
from forge_jobs.config import RuntimeSettings
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.events import EventKind
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import PodLease
from forge_jobs.policy.liveness import Fence
from forge_jobs.runtime.queue.execution import Context
from forge_jobs.runtime.queue.job_log import JobLog
from forge_jobs.runtime.queue.overruns import Overruns
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.shared.capacity import Capacity
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.runtime.shared.held_claims import HeldClaims
from forge_jobs.runtime.shared.latencies import LatencyRecorder
from forge_jobs.runtime.shared.rate_limits import RateLimiter
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.runtime.shared.threads import ThreadSupply
from forge_jobs.storage.protocols import Storage

_CLEAN_UP_OF_MARGIN = 0.75
"""The part of the fence's margin that is left to handlers. A fenced pod asks handlers to end at the
start of the margin, and cancels them again before the margin ends."""


def _wake_none() -> None:
    pass


class PodServices:
    """The objects and settings that the queues and workers of one pod share.

    :param capacity: how many handlers run at once over all queues. None: as many as have slots
    :ivar lease: changes when the pod registers again
    :ivar lost_claims: how many claims turned out to be lost
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
        rate_limit: RateLimiter,
        job_context: Callable[[Run], Context],
        job_log: JobLog | None = None,
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
        self.latencies = latencies
        self.rate_limit = rate_limit
        self.job_context = job_context
        self.job_log = job_log or JobLog(host_id)
        self.capacity = capacity
        self.rng = rng or random.Random()
        self.held = HeldClaims()
        self.loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()
        """Handlers run in copies of this context, so that no handler sees another's variables."""
        self.run_ended = Wakeup()
        """Wakes when a handler has ended while the queue drains."""
        self.threads = ThreadSupply(self.loop, self._threads_changed)
        self.kinds_changed: Callable[[], None] = _wake_none
        """Called when more kinds may be claimed than before."""
        self.overruns = Overruns(events)
        self.lost_claims = 0
        self.given_up: dict[Claim, float] = {}
        """Claims without a stored end that the pod holds no more -> ``Clock.elapsed`` of that
        moment. Only a reaper may end these claims: jobs that were handed back would run again and
        again, uncounted."""

    def _threads_changed(self, are_there: bool) -> None:
        kinds = self.handlers.kinds()
        if not are_there:
            kinds = frozenset(kind for kind in kinds if self._runs_on_the_loop(kind))
        self.kinds = kinds
        if are_there:
            self.kinds_changed()

    def _runs_on_the_loop(self, kind: str) -> bool:
        handler = self.handlers.get(kind)
        return handler is not None and handler.is_async

    def claim_lost(self, queue: str, job_id: str, detail: str) -> None:
        """Count a lost claim, and record an event."""
        self.lost_claims += 1
        self.events.record(EventKind.CLAIM_LOST, queue=queue, job_id=job_id, detail=detail)
