"""Runs what is due in a store, here and now, one job after the other."""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any, overload

from msgspec import Struct, structs

from forge_jobs.clients.client import JobClient
from forge_jobs.clock import Clock, SystemClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import Locked
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.routing import named_queues
from forge_jobs.model.ids import JobId, new_host_id, new_worker_id
from forge_jobs.model.jobs import Cause, ClaimedJob, ErrorRecord, JobStatus
from forge_jobs.model.processes import Pod, PodLease
from forge_jobs.model.queues import QueueState
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.policy.liveness import Fence
from forge_jobs.policy.transitions import AttemptEnd
from forge_jobs.privacy.encryption import Part, decrypted
from forge_jobs.runtime.passes.cleanup import hand_over_once
from forge_jobs.runtime.passes.letters import LetterRelay
from forge_jobs.runtime.progress.sender import ProgressSender
from forge_jobs.runtime.queue.context_calls import LoopThread
from forge_jobs.runtime.queue.ends import decide, tell
from forge_jobs.runtime.queue.job_context import RunContext
from forge_jobs.runtime.queue.run import Run
from forge_jobs.runtime.queue.services import PodServices
from forge_jobs.runtime.queue.worker import Worker
from forge_jobs.runtime.shared.events import EventBuffer
from forge_jobs.runtime.shared.failures import FailureRecorder
from forge_jobs.runtime.shared.latencies import LatencyRecorder
from forge_jobs.runtime.shared.pod_values import PodValues
from forge_jobs.runtime.shared.rates.limiter import RateLimiter
from forge_jobs.runtime.shared.threads import HandlerThread, ThreadSupply
from forge_jobs.storage.protocols import Storage
from forge_jobs.testing.kit.passing import declare, fire_and_expire
from forge_jobs.testing.kit.standing_in import in_this_process

_LEASE = timedelta(days=365)
"""The pod of a drain sends no beats."""

_FAILURES = frozenset({Cause.FAILED, Cause.TIMED_OUT, Cause.REJECTED})


class _Longest(random.Random):
    """Draws the end of each range: a retry has the longest pause of the policy.

    Pauses are drawn from zero on. With a short one the retry would be due within the same drain.
    """

    def random(self) -> float:
        return 1.0


class Ran(Struct, frozen=True, kw_only=True):
    """A run within a drain.

    :param status: of the job after the run. None: the claim was lost meanwhile
    :param cause: how the run ended
    :param delay: until the job is due again. None when the job keeps the due time, or has ended
    :param result: JSON text of what the handler returned, None where no result is kept
    :param exception: what the handler raised
    """

    job_id: JobId
    kind: str
    queue: str
    attempt: int
    status: JobStatus | None
    cause: Cause
    delay: timedelta | None = None
    result: str | None = None
    error: ErrorRecord | None = None
    exception: BaseException | None = None

    def __str__(self) -> str:
        where = "its claim was lost" if self.status is None else self.status.in_words
        why = f": {self.error.type}: {self.error.message}" if self.error else ""
        again = f", again in {self.delay}" if self.delay else ""
        return f"{self.kind} {self.job_id}, attempt {self.attempt}: {where}{again}{why}"


class Drained(Sequence[Ran]):
    """The runs of a drain in their order."""

    def __init__(self, runs: Sequence[Ran]) -> None:
        self._runs = tuple(runs)

    @overload
    def __getitem__(self, index: int) -> Ran: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Ran, ...]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Ran]:
        return iter(self._runs)

    @property
    def counts(self) -> dict[str, int]:
        """Runs by the status in which they left their job: ``{"done": 2, "failed": 1}``."""
        return dict(Counter("lost" if run.status is None else str(run.status) for run in self))

    @property
    def failures(self) -> tuple[Ran, ...]:
        """The runs that failed, timed out, or ended with ``Dead``."""
        return tuple(run for run in self if run.cause in _FAILURES)

    def __repr__(self) -> str:
        return "\n".join([f"Drained({len(self)} runs)", *(f"  {run}" for run in self)])


class TooManyRuns(AssertionError):
    """A drain has run as many jobs as allowed, and another is due.

    :ivar drained: the runs so far
    """

    def __init__(self, drained: Drained, waiting: ClaimedJob) -> None:
        self.drained = drained
        kinds = Counter(run.kind for run in drained)
        listed = ", ".join(f"{kind} ({count})" for kind, count in kinds.most_common())
        super().__init__(
            f"drain has run {len(drained)} jobs, and {waiting.kind} {waiting.claim.job_id} is due"
            f" too. Ran: {listed}. A job that enqueues itself, begins again at once, or snoozes for"
            " no time, would go on without end; if all of these are meant to run, give a larger"
            " at_most"
        )


class Drain:
    """The pod of one drain.

    :param threads: where ``def`` handlers run. None: on threads, as in a worker
    """

    def __init__(
        self,
        storage: Storage,
        handlers: HandlerRegistry,
        *,
        clock: Clock,
        settings: RuntimeSettings | None = None,
        thread: Callable[[], HandlerThread] | None = None,
    ) -> None:
        self._storage = storage
        self._handlers = in_this_process(handlers)
        self._settings = settings or RuntimeSettings()
        self._thread = thread
        self._clock = clock
        self._host_id = new_host_id()
        self._client = JobClient(storage, handlers)
        self._limits = RateLimiter(storage.config)
        self._values = PodValues(self._client)
        self._home = LoopThread()
        self._progress = ProgressSender(storage.jobs, clock)
        self._letters = LetterRelay(storage.jobs, storage.jobs)

    async def run(
        self, queues: Collection[str] | None, at_most: int, *, reraise: bool = False
    ) -> Drained:
        """Run what is due in ``queues``, None: in all, until nothing is.

        :raises TooManyRuns: ``at_most`` jobs have run, and another is due
        """
        runs: list[Ran] = []
        lease: PodLease | None = None
        served: tuple[str, ...] = ()
        services: PodServices | None = None
        try:
            await declare(self._storage.cron, self._handlers)
            await fire_and_expire(self._storage, self._settings)
            await self._values.open(self._handlers.lifespans())
            while True:
                await hand_over_once(self._storage.jobs)
                await self._letters.relay_once()
                states = {
                    state.name: state
                    for state in await self._storage.config.queues()
                    if queues is None or state.name in queues
                }
                if lease is None or tuple(states) != served:
                    # A handler has enqueued into a queue that was not there before.
                    served = tuple(states)
                    lease = await self._register(served, lease)
                    services = self._services(lease)
                assert services is not None
                before = len(runs)
                for state in states.values():
                    await self._run_queue(state, lease, services, runs, at_most, reraise=reraise)
                if len(runs) == before:
                    return Drained(runs)
        finally:
            if lease is not None:
                await self._storage.procs.unregister(lease)
            if services is not None:
                services.threads.dismiss()
            until = asyncio.get_running_loop().time() + self._settings.grace.total_seconds()
            await self._values.close(lambda: until)
            await self._client.aclose()

    async def _register(self, queues: tuple[str, ...], lease: PodLease | None) -> PodLease:
        if lease is not None:
            await self._storage.procs.unregister(lease)
        pod = Pod(
            host_id=self._host_id,
            label="drain",
            queues=queues,
            kinds=tuple(sorted(self._handlers.kinds())),
            routes=named_queues(self._handlers, None),
            version="",
            process_id=os.getpid(),
        )
        return await self._storage.procs.register(pod, _LEASE)

    def _services(self, lease: PodLease) -> PodServices:
        jobs, clock = self._storage.jobs, SystemClock()
        services = PodServices(
            storage=self._storage,
            host_id=self._host_id,
            lease=lease,
            handlers=self._handlers,
            settings=self._settings,
            clock=clock,
            fence=Fence(_LEASE, timedelta(0), clock.elapsed()),
            # A test does not look at the timeline of a job.
            events=EventBuffer(jobs, capacity=0),
            latencies=LatencyRecorder(jobs, self._host_id, clock=self._clock),
            failures=FailureRecorder(jobs, clock=self._clock),
            rate_limit=self._limits,
            progress=self._progress,
            job_context=self._context,
            values=self._values,
            rng=_Longest(),
        )
        if self._thread is not None:
            services.threads = _GivenThread(self._thread())
        return services

    def _context(self, run: Run) -> RunContext:
        return RunContext(
            run,
            self._client,
            self._storage.jobs,
            self._limits,
            self._home,
            progress=self._progress,
            state=self._values.state,
        )

    async def _run_queue(
        self,
        state: QueueState,
        lease: PodLease,
        services: PodServices,
        runs: list[Ran],
        at_most: int,
        *,
        reraise: bool,
    ) -> None:
        """Run what is due in one queue, each end stored together with the next claim."""
        jobs, ends = self._storage.jobs, list[Finalization]()
        kinds = self._handlers.kinds()
        while True:
            demand = Demand(worker_ids=(new_worker_id(),), limit=1, kinds=kinds)
            exchange = await jobs.exchange(state.name, ends, demand, lease)
            _note_end(runs, exchange.settled)
            if not exchange.claimed:
                return
            [job] = exchange.claimed
            if len(runs) >= at_most:
                await jobs.release([job.claim])
                raise TooManyRuns(Drained(runs), job)
            run, transition = await self._run_one(job, state, services)
            if self._progress.waiting:
                await self._progress.settle([job.claim], lambda _: True)
            ends = [] if transition is None else [Finalization(job.claim, transition)]
            runs.append(run)
            if reraise and run.cause in _FAILURES and run.exception is not None:
                _note_end(runs, await jobs.finalize(ends))
                raise run.exception

    async def _run_one(
        self, job: ClaimedJob, state: QueueState, services: PodServices
    ) -> tuple[Ran, Transition | None]:
        ended: asyncio.Future[tuple[Run, AttemptEnd | None]] = (
            asyncio.get_running_loop().create_future()
        )
        began = services.clock.elapsed()

        def on_end(_worker: Worker, run: Run, end: AttemptEnd | None) -> None:
            if not ended.done():
                ended.set_result((run, end))

        Worker(services, on_end).take(job, state, began).begin()
        run, end = await ended
        now = services.clock.elapsed()
        if end is None:
            return _ran(job, None, None, None), None
        transition = run.decided or decide(end, job, state, now - began, services)
        tell(job, end, transition, now - began, services, now=now)
        result = transition.result
        if result is not None:
            keys = run.handler.options.encryption
            job_id = job.claim.job_id
            result = decrypted(keys, result, job_id=job_id, kind=job.kind, part=Part.RESULT)
        return _ran(job, end, transition, result), transition


def _note_end(runs: list[Ran], settled: Sequence[bool | None]) -> None:
    """Take note of what the store answered to the end of the last run.

    :raises Locked: the store cannot take the end now
    """
    if not settled:
        return
    if settled[0] is None:
        raise Locked(
            f"a transaction holds job {runs[-1].job_id}, so its end cannot be stored: commit or"
            " roll back what the test or the handler has left open, then drain"
        )
    if not settled[0]:
        runs[-1] = structs.replace(runs[-1], status=None)


def _ran(
    job: ClaimedJob, end: AttemptEnd | None, transition: Transition | None, result: str | None
) -> Ran:
    return Ran(
        job_id=job.claim.job_id,
        kind=job.kind,
        queue=job.claim.queue,
        attempt=job.attempt,
        status=None if transition is None else transition.status,
        cause=Cause.RELEASED if end is None else end.cause,
        delay=None if transition is None else transition.delay or None,
        result=result,
        error=None if end is None else end.error,
        exception=None if end is None else end.exception,
    )


class _GivenThread(ThreadSupply):
    """Lends one thread that belongs to the caller."""

    def __init__(self, thread: HandlerThread) -> None:
        super().__init__(asyncio.get_running_loop(), lambda _: None)
        self._thread = thread

    def take(self) -> HandlerThread:
        return self._thread

    def give_back(self, thread: HandlerThread) -> None:
        """Do nothing: the thread stays with the caller."""

    def dismiss(self) -> None:
        """Do nothing: the thread stays with the caller."""
