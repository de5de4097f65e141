"""A worker process: opens the store, runs a pod on it, and ends in time."""

import asyncio
import contextlib
import functools
import gc
import math
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from enum import Enum

from forge_jobs.cli.event_loop import run_on_loop
from forge_jobs.cli.health_server import HealthServer
from forge_jobs.cli.last_exit import BEYOND_GRACE, LastExit
from forge_jobs.cli.loading import load_router
from forge_jobs.cli.metrics import Metrics
from forge_jobs.cli.options import storage_url
from forge_jobs.cli.processes.link import LEAVES, READY, STARTED, ParentLink, StopLevels
from forge_jobs.cli.processes.recycling import Recycling, limits_of
from forge_jobs.clock import SystemClock
from forge_jobs.config import Deployment, RuntimeSettings
from forge_jobs.durations import format_duration
from forge_jobs.errors import StorageRefused, Unavailable
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.queues import QueueCounts
from forge_jobs.reports import reporter
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.pod.labels import pod_label
from forge_jobs.runtime.pod.signals import StopRequest, on_stop_signals
from forge_jobs.runtime.runtime import QueueRuntime
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage

logger = reporter(__name__)

_READY_WITHIN = timedelta(minutes=1)
_READY_LOOK = timedelta(milliseconds=50)
_TRY_AGAIN_AFTER = timedelta(seconds=1)
_CLOSED_WITHIN = 1.0
"""Seconds for the store's connections to close."""


class RunMode(Enum):
    """When a worker ends by itself."""

    FOREVER = "forever"
    ONCE = "once"
    """Ends when nothing of the worker's queues is due or running."""
    UNTIL_EMPTY = "until_empty"
    """Ends when nothing of the worker's queues waits any more, retries and scheduled jobs
    included."""


def run_worker(
    deployment: Deployment,
    registry: HandlerRegistry,
    mode: RunMode,
    *,
    owns_process: bool = True,
    use_uvloop: bool = False,
    health_port: int | socket.socket | None = None,
    health_host: str = "",
    parent: ParentLink | None = None,
    is_successor: bool = False,
) -> int:
    """Run a pod until a signal, or until ``mode`` says that the work is done. Return the exit code.

    :param owns_process: the process is expected to end then, and is ended when something in the
        process does not let it. False: the process goes on
    :param health_port: answer ``/healthz``, ``/readyz`` and ``/metrics`` there: at a port, or at
        a socket that listens already
    :param health_host: the address of that port. "" for all addresses
    :param parent: the parent that keeps the process alive
    :param is_successor: answer probes once the pod runs: another process does until then
    :raises Unavailable: the store was not ready for a minute
    """
    settings = deployment.runtime
    patience = settings.patience_within(settings.grace)
    last_exit = LastExit(settings.grace, patience, is_armed=owns_process)
    worker = _Worker(deployment, registry, mode, last_exit, parent)
    serving = worker.serve(health_port, health_host, at_once=not is_successor)
    return run_on_loop(serving, use_uvloop=use_uvloop)


class _Worker:
    """A worker process, from the first signal to the exit code."""

    def __init__(
        self,
        deployment: Deployment,
        registry: HandlerRegistry,
        mode: RunMode,
        last_exit: LastExit,
        parent: ParentLink | None,
    ) -> None:
        self._deployment = deployment
        self._registry = registry
        self._mode = mode
        self._last_exit = last_exit
        self._parent = parent
        self._request = StopRequest()
        self._health: HealthServer | None = None
        self._metrics = Metrics()
        self._recycling: Recycling | None = None
        self._opening: asyncio.Task[None] | None = None
        self._handle: QueueHandle | None = None
        self._levels: StopLevels | None = None

    async def serve(
        self, health_port: int | socket.socket | None, health_host: str, *, at_once: bool
    ) -> int:
        """Run until the end. Return the exit code.

        :param at_once: answer probes before the pod runs
        """
        code = 1
        self._last_exit.loop = asyncio.get_running_loop()
        self._levels = levels = StopLevels(self._request, self._last_exit)
        if self._parent is not None:
            self._parent.on_stop(levels.asked)
        with on_stop_signals(levels.follow, levels.follow, levels.signalled):
            try:
                async with contextlib.AsyncExitStack() as stack:
                    if health_port is not None:
                        probes = {"/healthz": self._ailments, "/readyz": self._obstacles}
                        self._health = HealthServer(
                            health_port, probes, {"/metrics": self._metrics.text}, health_host
                        )
                        stack.push_async_exit(self._health)
                        if at_once:
                            await self._health.open()
                    code = await self._work()
            except asyncio.CancelledError:
                # Signals are caught elsewhere, so this came from within, and was logged.
                code = 1
            finally:
                self._last_exit.stopped(code)
        return code

    async def _work(self) -> int:
        storage = await _open_patiently(storage_url(self._deployment), self._request)
        if storage is None:
            return 0
        self._metrics.open(storage)
        opened = [storage]
        try:
            runtime = _runtime(self._deployment, self._registry, storage)
            if url := self._deployment.outbox:
                from forge_jobs.cli.outboxes import OutboxOpener

                opener = OutboxOpener(url, self._deployment.outbox_name, opened)
                runtime.with_outbox(opener)
                self._metrics.watch(opener.states)
            # Objects made so far stay for good. Each full collection would look through
            # all of them, and meanwhile no handler runs.
            gc.collect()
            gc.freeze()
            _tell_limits(self._deployment.runtime)
            return await runtime.run_until(self._request, self._end(storage), self._started)
        finally:
            await asyncio.gather(*map(_close, opened))

    def _end(self, storage: Storage) -> Callable[[], Awaitable[bool]] | None:
        """Return the question whether the worker ends by itself now. None: no worker does."""
        is_done = None
        if self._mode is not RunMode.FOREVER:
            is_done = _Done(storage, frozenset(self._deployment.queues), self._mode)
        if self._parent is None or not self._deployment.recycles:
            return is_done

        async def is_over() -> bool:
            if self._recycling is not None and self._recycling.is_over():
                return True
            return is_done is not None and await is_done()

        return is_over

    def _started(self, handle: QueueHandle) -> None:
        self._handle = handle
        self._last_exit.jobs_left = handle.jobs_held
        self._last_exit.hand_back = handle.hand_back
        handle.tell_when_asked_to_stop(self._asked_to_stop)
        if self._parent is None:
            return
        self._parent.say(STARTED)
        self._opening = asyncio.ensure_future(self._be_ready())
        limits = limits_of(self._deployment).drawn(random.Random())
        self._recycling = Recycling(limits, self._parent, handle, self._leave_probes)

    def _asked_to_stop(self) -> None:
        """Stop as by a signal. The parent is to start no other process for this one."""
        if self._parent is not None:
            self._parent.say(LEAVES)
        if self._levels is not None:
            self._levels.requested()

    async def _be_ready(self) -> None:
        """Once the pod is able to claim, answer probes, if another process has done so until now,
        and tell the parent."""
        assert self._parent is not None
        while self._obstacles():
            await Wakeup().wait(_READY_LOOK)
        if self._health is not None and not self._health.is_open:
            await self._health.open()
        self._parent.say(READY)

    def _leave_probes(self) -> None:
        """Leave the port to the successor, which is ready while this process is not."""
        if self._health is not None:
            self._health.close()

    def _ailments(self) -> list[str]:
        """Problems that only a new process can mend. Trouble of the store is none of them."""
        return [] if self._handle is None else self._handle.ailments()

    def _obstacles(self) -> list[str]:
        """Why no job is claimed."""
        if self._handle is None:
            return ["starting: the store is not ready"]
        return list(self._handle.health().problems)


def _tell_limits(settings: RuntimeSettings) -> None:
    """Log the limits that the starter must allow: killed too early, a worker's jobs count a
    crash."""
    longest = math.ceil(settings.grace.total_seconds() + BEYOND_GRACE)
    logger.info(
        "a stop takes up to %d s: docker stop -t %d (default 10), "
        "terminationGracePeriodSeconds: %d (default 30); FORGE_GRACE is %s",
        longest,
        longest + 1,
        longest + 1,
        format_duration(settings.grace),
    )


async def _close(storage: Storage) -> None:
    """Close, within a time that the process's supervisor can bear."""
    closing = asyncio.ensure_future(storage.aclose())
    done, _ = await asyncio.wait({closing}, timeout=_CLOSED_WITHIN)
    for each in done:
        if error := each.exception():
            logger.warning(
                "closing the store failed, and the process ends all the same: %s: %s",
                type(error).__name__,
                error,
            )


async def _open_patiently(url: str, request: StopRequest) -> Storage | None:
    """Open the store, also when the store starts at the same time as this process.

    None: a stop was asked for before the store was there.
    """
    clock = SystemClock()
    until = clock.elapsed() + _READY_WITHIN.total_seconds()
    told = ""
    while not request.is_asked:
        try:
            return await _open(url, request)
        except Unavailable as error:
            if isinstance(error, StorageRefused) or clock.elapsed() > until:
                raise
            if str(error) != told:
                told = str(error)
                logger.warning(
                    "the store is not ready; opening it is tried again for a minute at most: %s",
                    told,
                )
            await request.wait(_TRY_AGAIN_AFTER)
    return None


async def _open(url: str, request: StopRequest) -> Storage | None:
    opening = asyncio.ensure_future(open_storage(url))
    asked = asyncio.ensure_future(request.wait())
    try:
        await asyncio.wait({opening, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening}, timeout=_CLOSED_WITHIN)
            if not opening.done() or opening.cancelled():
                return None
        return opening.result()
    finally:
        asked.cancel()


def _runtime(deployment: Deployment, registry: HandlerRegistry, storage: Storage) -> QueueRuntime:
    label = functools.partial(
        pod_label,
        prefix=deployment.worker_prefix,
        version=deployment.worker_version,
        worker_id=deployment.worker_id,
    )
    runtime = QueueRuntime(
        storage,
        registry,
        rate_limits=deployment.rate_limits,
        router=load_router(deployment),
        settings=deployment.runtime,
        label=label,
        concurrency=deployment.concurrency,
        version=deployment.worker_version,
        exit_abandons_threads=True,
        logs_every_job=deployment.log_jobs,
    )
    return runtime.with_queues(**deployment.queues).with_patterns(**deployment.queue_patterns)


class _Done:
    """Decides when a worker that ends by itself has done all work.

    Jobs of paused queues and of unknown kinds are left: they will not run.
    """

    def __init__(self, storage: Storage, queues: frozenset[str], mode: RunMode) -> None:
        self._storage = storage
        self._queues = queues
        self._remaining = _due if mode is RunMode.ONCE else _waiting

    async def __call__(self) -> bool:
        try:
            paused = {queue.name for queue in await self._storage.config.queues() if queue.paused}
            open_queues = sorted(self._queues - paused)
            counts = await self._storage.jobs.counts(open_queues, ended_at_most=1)
        except Unavailable:
            return False
        return not any(self._remaining(each) for each in counts.values())


def _due(counts: QueueCounts) -> int:
    return counts.due + counts.by_status.get("in_progress", 0)


def _waiting(counts: QueueCounts) -> int:
    by_status: Mapping[str, int] = counts.by_status
    active = ("blocked", "pending", "in_progress", "failed")
    return sum(by_status.get(status, 0) for status in active) - counts.held
