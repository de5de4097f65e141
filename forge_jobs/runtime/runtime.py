"""QueueRuntime: what a program says about the pod it wants to be."""

import asyncio
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

import anyio

from forge_jobs.clock import Clock, SystemClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import ConfigError, InvalidInput
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.model.ids import HostId
from forge_jobs.model.names import check_name
from forge_jobs.model.queues import QueueSettings, RateLimit, check_concurrency
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.reports import reporter
from forge_jobs.runtime.handle import QueueHandle
from forge_jobs.runtime.pod import start_pod
from forge_jobs.runtime.routing import Router, checked_router, default_router
from forge_jobs.runtime.schedules import declared_schedules
from forge_jobs.runtime.signals import on_stop_signals
from forge_jobs.runtime.startup import RuntimePlan
from forge_jobs.runtime.stopping import PodStopper
from forge_jobs.storage.protocols import Storage

logger = reporter(__name__)


class QueueRuntime:
    """Runs the jobs of some queues: ``QueueRuntime(storage, handlers).with_queues("gh", slack=2)``.

    Nothing happens before :meth:`start` or :meth:`run`. What is declared at the start is declared
    again whenever the pod finds its lease gone, because the store may have been emptied.

    :param rate_limits: named token buckets, declared at the start
    :param router: the queue of a kind where neither request nor handler names one; the part of
        the kind before its first dot, when that is a declared queue, when left out
    :param label: what people call the pod; a callable gets the pod's id
    :param version: the deployed version, shown with the pod
    :param ensure_schedules: recurring jobs, declared at the start
    :param start_limit: how long a store that is not ready is waited for, timedelta or seconds
    :param concurrency: how many handlers run at once in this process, over all its queues; the
        fleet gives it no more slots than that. None: as many as it gets slots. With fewer than
        it has queues, they take turns
    :param exit_abandons_threads: at the end of a stop, release the claims of handlers that
        cannot be stopped, because the process ends right after. :meth:`run` always does
    :param logs_every_job: log a line at INFO for every job that ends, and counts where more than
        20 end in a second; failures are logged either way
    :param exit_process: how to end the process when its event loop hangs
    """

    def __init__(
        self,
        storage: Storage,
        handlers: HandlerRegistry,
        *,
        settings: RuntimeSettings | None = None,
        rate_limits: Mapping[str, RateLimit] | None = None,
        router: Router | None = None,
        clock: Clock | None = None,
        label: str | Callable[[HostId], str] | None = None,
        version: str = "",
        ensure_schedules: Sequence[ScheduleSpec] = (),
        start_limit: timedelta | float = 60.0,
        concurrency: int | None = None,
        exit_abandons_threads: bool = False,
        logs_every_job: bool = False,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._storage = storage
        self._handlers = handlers
        self._settings = settings or RuntimeSettings()
        self._rate_limits = dict(rate_limits or {})
        for scope in self._rate_limits:
            check_name("rate_limits", scope)
        self._router = router
        self._clock = clock or SystemClock()
        self._label = label or ""
        self._version = version
        self._schedules = list(ensure_schedules)
        self._start_limit = check_duration("start_limit", start_limit)
        self._concurrency = None if concurrency is None else check_concurrency(concurrency)
        self._exit_abandons_threads = exit_abandons_threads
        self._logs_every_job = logs_every_job
        self._exit_process = exit_process
        self._queues: dict[str, QueueSettings | None] = {}
        self._other_queues: dict[str, QueueSettings | None] = {}
        self._is_started = False

    def with_queues(self, /, *names: str, **queues: QueueSettings | int | None) -> "QueueRuntime":
        """Serve these queues too; returns the runtime itself.

        :param names: with the settings the store has, else the defaults (one worker)
        :param queues: name -> the whole cluster's ``max_workers``, or all settings; None as for
            ``names``. What an operator has set in the store wins, and what :meth:`ensure_queue`
            said holds where no number and no settings are given
        :raises InvalidInput: a name or a number is wrong
        :raises ConfigError: the runtime has been started
        """
        self._refuse_once_started("with_queues")
        given = dict.fromkeys(names) | queues
        for name, wanted in given.items():
            check_name("queue", name)
            known = self._queues.get(name) or self._other_queues.pop(name, None)
            self._queues[name] = _queue_settings(name, wanted) or known
        return self

    def ensure_queue(self, name: str, settings: QueueSettings | None = None) -> "QueueRuntime":
        """Declare a queue at the start without serving it, unless it is served anyway.

        :param settings: left out: those that are declared elsewhere or in the store, else defaults
        :raises ConfigError: the runtime has been started
        """
        self._refuse_once_started("ensure_queue")
        check_name("queue", name)
        queues = self._queues if name in self._queues else self._other_queues
        queues[name] = settings or queues.get(name)
        return self

    def ensure_schedules(self, specs: Sequence[ScheduleSpec]) -> "QueueRuntime":
        """Declare recurring jobs at the start; what an operator edited or deleted stays so.

        :raises ConfigError: the runtime has been started
        """
        self._refuse_once_started("ensure_schedules")
        self._schedules += specs
        return self

    def start(self) -> "Starting":
        """``async with runtime.start() as handle:`` or ``handle = await runtime.start()``.

        The latter runs in the background until ``handle.stop()``.

        :raises ConfigError: no queue was declared
        :raises Unavailable: the store was not ready within ``start_limit``
        """
        return Starting(self._plan(), release_abandoned=self._exit_abandons_threads)

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT; the exit code of the process.

        The first signal drains with the grace of the settings, a second one ends the grace. The
        process is expected to end then: claims of threads that have not ended are released.

        :returns: 0; 1 when something of the pod is left in the store
        """
        asked = asyncio.Event()
        starting = Starting(self._plan(), release_abandoned=True)
        with on_stop_signals(asked.set, starting.hurry):
            waiter = asyncio.ensure_future(asked.wait())
            start = asyncio.ensure_future(starting.open())
            try:
                await asyncio.wait({waiter, start}, return_when=asyncio.FIRST_COMPLETED)
                if not start.done():
                    start.cancel()
                    await asyncio.wait({start})
                    if start.cancelled():
                        return 0
                handle = start.result()
                await waiter
                report = await handle.stop()
            except BaseException:
                await _take_down(start)
                raise
            finally:
                waiter.cancel()
        return 0 if report.is_clean else 1

    def _refuse_once_started(self, verb: str) -> None:
        if self._is_started:
            raise ConfigError(
                f"{verb}() was called after the start, when it has no effect: call it before "
                "start() or run(), or make another QueueRuntime"
            )

    def _plan(self) -> RuntimePlan:
        if not self._queues:
            raise ConfigError(
                "no queue is declared, so there is nothing to run: name queues with "
                "with_queues(...), or in FORGE_QUEUES for the worker command"
            )
        self._is_started = True
        router = checked_router(self._router or default_router(self._queues))
        return RuntimePlan(
            storage=self._storage,
            handlers=self._handlers,
            settings=self._settings,
            queues=dict(self._queues),
            other_queues={
                name: settings or QueueSettings() for name, settings in self._other_queues.items()
            },
            rate_limits=self._rate_limits,
            schedules=(*declared_schedules(self._handlers, router), *self._schedules),
            router=router,
            clock=self._clock,
            label=self._label,
            version=self._version,
            start_limit=self._start_limit,
            concurrency=self._concurrency,
            logs_every_job=self._logs_every_job,
            exit_process=self._exit_process,
        )


class Starting:
    """A start that has not happened yet: await it, or enter it."""

    def __init__(self, plan: RuntimePlan, *, release_abandoned: bool) -> None:
        self._plan = plan
        self._release_abandoned = release_abandoned
        self._handle: QueueHandle | None = None
        self._hurried = False

    def __await__(self) -> Generator[Any, None, QueueHandle]:
        return self.open().__await__()

    async def open(self) -> QueueHandle:
        """Start, once."""
        if self._handle is None:
            pod = await start_pod(self._plan)
            stopper = PodStopper(pod, release_abandoned=self._release_abandoned)
            self._handle = QueueHandle(pod, stopper)
            if self._hurried:
                self._handle.hurry()
        return self._handle

    def hurry(self) -> None:
        """End the grace, also of a stop that has not begun."""
        self._hurried = True
        if self._handle is not None:
            self._handle.hurry()

    async def __aenter__(self) -> QueueHandle:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handle is not None:
            # An enclosing scope that was cancelled would cancel the way out at every step.
            with anyio.CancelScope(shield=True):
                await self._handle.stop()


async def _take_down(start: "asyncio.Future[QueueHandle]") -> None:
    """Stop what ``start`` has made or will have made, whoever cancels the caller meanwhile."""
    with anyio.CancelScope(shield=True):
        start.cancel()
        await asyncio.wait({start})
        if not start.cancelled() and start.exception() is None:
            await start.result().stop()


def _queue_settings(name: str, given: QueueSettings | int | None) -> QueueSettings | None:
    if given is None or isinstance(given, QueueSettings):
        settings = given
    elif isinstance(given, int) and not isinstance(given, bool):
        try:
            settings = QueueSettings(max_workers=given)
        except InvalidInput as error:
            raise ConfigError(f"queue {name}: {error}") from None
    else:
        raise ConfigError(f"queue {name}: give max_workers or QueueSettings, not {given!r}")
    return settings
