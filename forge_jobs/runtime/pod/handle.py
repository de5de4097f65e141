"""A running pod, as a program sees one."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar, Unpack, overload

from forge_jobs.clients.bulk import BulkTotals
from forge_jobs.clients.client import JobClient
from forge_jobs.clients.flows.plans import EnqueuedGroup, Group
from forge_jobs.clients.flows.workflows import EnqueuedWorkflow, Workflow
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.requests import EnqueueOptions, EnqueueRequest
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import HostId
from forge_jobs.model.jobs import EnqueueOutcome
from forge_jobs.model.names import check_queue
from forge_jobs.model.queues import QueueSettings
from forge_jobs.runtime.pod.pod import RunningPod
from forge_jobs.runtime.pod.served import queue_settings
from forge_jobs.runtime.pod.stop_report import StopReport
from forge_jobs.runtime.pod.stopping import PodStopper
from forge_jobs.runtime.shared.health import PodHealth
from forge_jobs.runtime.shared.rates.limiter import RateLimiter
from forge_jobs.storage.protocols import Storage

R = TypeVar("R")


class QueueHandle:
    """A running pod, from ``await runtime.start()`` until :meth:`stop`."""

    def __init__(self, pod: RunningPod, stopper: PodStopper) -> None:
        self._pod = pod
        self._stopper = stopper

    @property
    def host_id(self) -> HostId:
        """The id of this pod, new at each start."""
        return self._pod.host_id

    @property
    def storage(self) -> Storage:
        """The store of the pod, which stays open when the runtime stops."""
        return self._pod.plan.storage

    @property
    def client(self) -> JobClient:
        """The client of the methods below, closed by :meth:`stop`."""
        return self._pod.client

    @property
    def rate_limit(self) -> RateLimiter:
        """The named token buckets of the cluster."""
        return self._pod.rate_limit

    async def enqueue(
        self,
        request: EnqueueRequest[R],
        *,
        connection: object | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> EnqueueOutcome[R]:
        """Store one job, and return its id and whether it is new. As :meth:`JobClient.enqueue`."""
        return await self.client.enqueue(request, connection=connection, **options)

    async def enqueue_many(
        self,
        requests: Iterable[EnqueueRequest[R]],
        *,
        spread: timedelta | float | None = None,
        connection: object | None = None,
    ) -> list[EnqueueOutcome[R]]:
        """Store many jobs, outcomes in their order. As :meth:`JobClient.enqueue_many`."""
        return await self.client.enqueue_many(requests, spread=spread, connection=connection)

    async def enqueue_group(
        self, group: Group, *, connection: object | None = None
    ) -> EnqueuedGroup:
        """Store jobs that belong together. As :meth:`JobClient.enqueue_group`."""
        return await self.client.enqueue_group(group, connection=connection)

    async def enqueue_workflow(
        self, workflow: Workflow, *, connection: object | None = None
    ) -> EnqueuedWorkflow:
        """Store named steps, checked first. As :meth:`JobClient.enqueue_workflow`."""
        return await self.client.enqueue_workflow(workflow, connection=connection)

    @overload
    async def result(self, job_id: EnqueueOutcome[R], timeout: timedelta | float) -> R: ...
    @overload
    async def result(self, job_id: str, timeout: timedelta | float) -> Any: ...
    @overload
    async def result(
        self, job_id: str | EnqueueOutcome, timeout: timedelta | float, type: type[R]
    ) -> R: ...
    async def result(self, job_id: Any, timeout: timedelta | float, type: Any = None) -> Any:
        """Wait for the end, and return the result or raise. As :meth:`JobClient.result`."""
        return await self.client.result(job_id, timeout, type)

    async def cancel(self, which: str | Iterable[str] | JobFilter) -> BulkTotals:
        """Cancel waiting jobs, ask running ones to stop. As :meth:`JobClient.cancel`."""
        return await self.client.cancel(which)

    async def add_queue(self, name: str, settings: QueueSettings | int | None = None) -> None:
        """Serve a queue too, from now on. Returns when the store knows, within about two beats.

        The queue has its slots shortly after. While the store is away the call waits. A
        cancellation of the call leaves the queue served.
        Calling again with other settings declares these. What an operator has set wins.

        :param settings: the ``max_workers`` of the whole fleet, or all settings. None: those of the
            store, else the defaults
        :raises InvalidInput: a wrong name
        :raises ConfigError: a wrong number, wrong settings, or the pod stops
        :raises Unavailable: the store did not take the settings, and nothing has changed
        """
        await self._pod.served.add(name, queue_settings(name, settings))

    async def remove_queue(self, name: str) -> None:
        """Serve a queue no longer, and return when the store knows.

        The pod claims nothing more there at once and lets running handlers end. Until then the call
        waits. A cancellation does not end the removal. Jobs that wait are left to other pods. A
        queue that the pod does not serve is no error. Where a pattern of the pod matches, the queue
        comes back while the queue has jobs.

        :raises ConfigError: the pod stops
        """
        await self._pod.served.remove(check_queue("queue", name))

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the pod serves now, by name, those that are about to go too."""
        return tuple(sorted(self._pod.served.names))

    @property
    def lost_because(self) -> str:
        """Why the pod stops or has stopped by itself, else "".

        A pod does so when the program has cancelled the tasks of the pod, or closed the storage.
        """
        return self._pod.tasks.lost_because

    def tell_when_lost(self, callback: Callable[[], object]) -> None:
        """Call ``callback``, on the event loop, when the pod begins to stop by itself."""
        self._pod.tasks.tell_when_lost(callback)

    def tell_when_asked_to_stop(self, callback: Callable[[], object]) -> None:
        """Call ``callback``, on the event loop, when an operator asks this pod to stop.

        The program is to stop the pod then. Without a callback the pod stops by itself, with the
        grace of the settings, and the program goes on without a pod.
        """
        self._pod.when_asked = callback

    def health(self) -> PodHealth:
        """Return whether the pod is able to claim, and if not, why."""
        return self._pod.health()

    def ailments(self) -> list[str]:
        """Return problems that only a new process can mend. Outages of the store are left out."""
        return self._pod.ailments()

    def jobs_held(self) -> list[str]:
        """Return the ids of the jobs that are in progress in this pod. Callable from any thread."""
        return [held.claim.job_id for held in self._pod.services.held.snapshot()]

    @property
    def ended_runs(self) -> int:
        """How many runs of handlers have ended in this pod, whatever the end."""
        return self._pod.services.ended_runs

    def hand_back(self, at_most: float) -> bool:
        """Give all claims to other pods although handlers go on, because the process ends now.

        Called by any thread, when the event loop does not turn.

        :returns: False: the store has not taken the claims within ``at_most`` seconds
        """
        return self._pod.heartbeat.hand_back(at_most)

    async def drain(self, timeout: timedelta | float | None = None) -> bool:
        """Claim nothing more and let running handlers finish. There is no way back.

        Handlers that still run after ``timeout`` are interrupted, and their attempts handed back.

        :param timeout: the grace, a timedelta or seconds. None: the setting ``grace``
        :returns: no handler runs any more
        """
        return await self._stopper.drain(self._grace(timeout))

    async def stop(self, timeout: timedelta | float | None = None) -> StopReport:
        """Drain, then leave the fleet: nothing of this pod stays in the store.

        Handlers are cancelled before ``timeout`` is over, by the setting ``patience``, and may
        clean up until then. The stop takes at most a second longer than ``timeout``, also when the
        store is known to be down. A store that is slow, or has just gone silent, has three seconds
        more to take the last ends. Stopping twice is fine. A cancellation hurries the stop, which
        goes on to its end before the cancellation is raised.

        Plain functions run in threads, which cannot be stopped: threads that still run are
        reported, and keep their claims until they end.

        :param timeout: as for :meth:`drain`
        """
        return await self._stopper.stop(self._grace(timeout))

    def hurry(self) -> None:
        """End the grace of a :meth:`drain` or :meth:`stop` that is under way."""
        self._stopper.hurry()

    def _grace(self, timeout: timedelta | float | None) -> timedelta:
        if timeout is None:
            return self._pod.plan.settings.grace
        return check_duration("timeout", timeout)
