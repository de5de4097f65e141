"""A worker process: opens the store, runs a pod on it, and ends when it is time."""

import asyncio
import functools
import gc
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum

from forge_jobs.cli.options import storage_url
from forge_jobs.clock import SystemClock
from forge_jobs.config import Deployment
from forge_jobs.errors import Unavailable
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.queues import QueueCounts
from forge_jobs.reports import reporter
from forge_jobs.runtime.labels import pod_label
from forge_jobs.runtime.runtime import QueueRuntime, Starting
from forge_jobs.runtime.service import Wakeup
from forge_jobs.runtime.signals import on_stop_signals
from forge_jobs.storage.opening import open_storage
from forge_jobs.storage.protocols import Storage

logger = reporter(__name__)

_LOOK_EVERY = timedelta(milliseconds=100)
_READY_WITHIN = timedelta(minutes=1)
_TRY_AGAIN_AFTER = timedelta(seconds=1)


class RunMode(Enum):
    """When a worker ends by itself."""

    FOREVER = "forever"
    ONCE = "once"
    """When nothing of its queues is due or running."""
    UNTIL_EMPTY = "until_empty"
    """When nothing of its queues waits any more, retries and scheduled jobs included."""


async def serve(deployment: Deployment, registry: HandlerRegistry, mode: RunMode) -> int:
    """Run a pod until a signal, or until ``mode`` says that it is done; the exit code.

    :raises Unavailable: the store was not ready for a minute
    """
    async with await _open_patiently(storage_url(deployment)) as storage:
        runtime = _runtime(deployment, registry, storage)
        # What has been made so far stays for good. Each full collection would look through all
        # of it, and meanwhile no handler runs.
        gc.collect()
        gc.freeze()
        if mode is RunMode.FOREVER:
            return await runtime.run()
        done = _Done(storage, frozenset(deployment.queues), mode)
        return await _run_until(done, runtime.start())


async def _open_patiently(url: str) -> Storage:
    """The store, also when it starts at the same time as this process."""
    clock = SystemClock()
    until = clock.elapsed() + _READY_WITHIN.total_seconds()
    told = ""
    while True:
        try:
            return await open_storage(url)
        except Unavailable as error:
            if clock.elapsed() > until:
                raise
            if str(error) != told:
                told = str(error)
                logger.warning("the store is not ready, tried again for a minute at most: %s", told)
            await Wakeup().wait(_TRY_AGAIN_AFTER)


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
        settings=deployment.runtime,
        label=label,
        concurrency=deployment.concurrency,
        version=deployment.worker_version,
        exit_abandons_threads=True,
        logs_every_job=deployment.log_jobs,
    )
    return runtime.with_queues(**deployment.queues)


class _Done:
    """Tells when a worker that ends by itself has done its work.

    Jobs of paused queues and of kinds that nobody knows are left: they will not run.
    """

    def __init__(self, storage: Storage, queues: frozenset[str], mode: RunMode) -> None:
        self._storage = storage
        self._queues = queues
        self._remaining = _due if mode is RunMode.ONCE else _waiting

    async def __call__(self) -> bool:
        try:
            paused = {queue.name for queue in await self._storage.config.queues() if queue.paused}
            counts = await self._storage.jobs.counts(sorted(self._queues - paused))
        except Unavailable:
            return False
        return not any(self._remaining(each) for each in counts.values())


def _due(counts: QueueCounts) -> int:
    return counts.due + counts.by_status.get("in_progress", 0)


def _waiting(counts: QueueCounts) -> int:
    by_status: Mapping[str, int] = counts.by_status
    active = ("blocked", "pending", "in_progress", "failed")
    return sum(by_status.get(status, 0) for status in active) - counts.held


async def _run_until(done: _Done, starting: Starting) -> int:
    asked, look = asyncio.Event(), Wakeup()

    def drain() -> None:
        asked.set()
        look.ring()

    with on_stop_signals(drain, starting.hurry):
        handle = await starting.open()
        while not asked.is_set() and not await done():
            await look.wait(_LOOK_EVERY)
        report = await handle.stop()
    return 0 if report.is_clean else 1
