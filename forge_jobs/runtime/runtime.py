"""QueueRuntime: what a program declares about a pod."""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from forge_jobs.clients.schedules import declared_schedules
from forge_jobs.clock import Clock, SystemClock
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import ConfigError, InvalidInput, a_type
from forge_jobs.handlers.durations import check_duration
from forge_jobs.handlers.registry import HandlerRegistry, check_registry
from forge_jobs.handlers.routing import Router, checked_router
from forge_jobs.model.ids import HostId
from forge_jobs.model.names import check_name, check_queue
from forge_jobs.model.processes import check_concurrency
from forge_jobs.model.queues import QueueSettings, RateLimit
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.reports import reporter
from forge_jobs.runtime.pod.handle import QueueHandle
from forge_jobs.runtime.pod.served import queue_settings
from forge_jobs.runtime.pod.signals import StopRequest, on_stop_signals
from forge_jobs.runtime.pod.starting import Starting, run_until
from forge_jobs.runtime.pod.startup import RuntimePlan
from forge_jobs.runtime.shared.store_calls import CallMeter, metered
from forge_jobs.storage.protocols import Storage, check_storage

if TYPE_CHECKING:
    from forge_jobs.clients.outbox.outbox import OutboxSource

logger = reporter(__name__)


class QueueRuntime:
    """Runs the jobs of some queues: ``QueueRuntime(storage, handlers).with_queues("gh", slack=2)``.

    Nothing happens before :meth:`start` or :meth:`run`. Queues, rate limits and schedules are
    declared at the start. A pod that finds the lease gone declares all of these again, because the
    store may have been emptied.

    :param rate_limits: named token buckets, declared at the start
    :param router: chooses the queue of a kind where neither request nor handler names one, see
        ``prefix_router``. Without a router, or where the router names no queue: ``default``
    :param label: the name of the pod for people. A callable gets the pod's id
    :param version: the deployed version, shown with the pod
    :param ensure_schedules: recurring jobs, declared at the start
    :param start_limit: how long the start waits for a store that is not ready, timedelta or seconds
    :param concurrency: how many handlers run at once in this process, over all queues. The fleet
        grants the pod no more slots than that. None: no limit but the slots. A pod with a lower
        limit than queues serves the queues in turn
    :param exit_abandons_threads: a stop ends the process when handlers are left that cannot be
        stopped. The last call of the stop gives their claims to other pods, then the stop calls
        ``exit_process``. :meth:`run` always does so when a signal has asked for the stop
    :param logs_every_job: log a line at INFO for every job that ends, and counts where more than 20
        jobs end in a second. Failures are logged either way
    :param exit_process: ends the process at once with an exit code: after a stop as above, and when
        the event loop hangs
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
        self._storage = check_storage(storage)
        self._handlers = check_registry(handlers)
        self._settings = RuntimeSettings() if settings is None else settings
        if not isinstance(self._settings, RuntimeSettings):
            fix = "give RuntimeSettings(...)"
            raise InvalidInput("settings", f"is {a_type(settings)}", fix)
        self._rate_limits = dict(rate_limits or {})
        for scope, limit in self._rate_limits.items():
            check_name("rate_limits", scope)
            if not isinstance(limit, RateLimit):
                fix = "give RateLimit(count, per=seconds)"
                raise InvalidInput("rate_limits", f"has {limit!r} for {scope!r}", fix)
        self._router = None if router is None else checked_router(router)
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
        self._patterns: dict[str, QueueSettings | None] = {}
        self._other_queues: dict[str, QueueSettings | None] = {}
        self._outboxes: list[OutboxSource] = []
        self._is_started = False

    def with_queues(self, /, *names: str, **queues: QueueSettings | int | None) -> "QueueRuntime":
        """Serve these queues too, and return the runtime.

        :param names: queues with the settings of the store, else the defaults (one worker)
        :param queues: name -> the ``max_workers`` of the whole cluster, or all settings. None as
            for ``names``. What an operator has set in the store wins. Settings given to
            :meth:`ensure_queue` hold where no number and no settings are given here
        :raises InvalidInput: a name is wrong
        :raises ConfigError: a number is wrong, or the runtime has been started
        """
        self._refuse_once_started("with_queues")
        fix = 'give names one by one, as with_queues("gh", slack=2) or with_queues(*names)'
        _check_texts("queue", names, fix)
        given = dict.fromkeys(names) | queues
        for name, wanted in given.items():
            settings = queue_settings(name, wanted)
            known = self._queues.get(name) or self._other_queues.pop(name, None)
            self._queues[name] = settings or known
        return self

    def with_patterns(
        self, /, *patterns: str, **settings: QueueSettings | int | None
    ) -> "QueueRuntime":
        """Serve every queue that has jobs and whose name matches, and return the runtime.

        A queue that appears is served within a few seconds. A queue without jobs is left after
        ``queue_idle`` of the settings, and served again when jobs come. So a queue for every tenant
        costs something only while the tenant has work.

        :param patterns: globs, in which ``*`` stands for any text, ``?`` for a character and
            ``[ab]`` for one of some: ``with_patterns("tenant-*")``. The first that matches counts
        :param settings: glob -> as in :meth:`with_queues`, for each queue that appears:
            ``with_patterns(**{"tenant-*": 4})``
        :raises InvalidInput: a pattern is wrong
        :raises ConfigError: a number is wrong, or the runtime has been started
        """
        self._refuse_once_started("with_patterns")
        fix = """give globs one by one, as with_patterns("a-*", **{"b-*": 4})"""
        _check_texts("pattern", patterns, fix)
        for pattern, wanted in (dict.fromkeys(patterns) | settings).items():
            self._patterns[pattern] = queue_settings(pattern, wanted)
        return self

    def with_outbox(self, outbox: "OutboxSource") -> "QueueRuntime":
        """Relay an outbox in this pod, and return the runtime. May be called for several.

        The relay is one of the loops of the pod. While a store of the outbox is away the pod serves
        its queues, and tries again after pauses of 30 seconds at most. A stop ends the relay
        between two calls of a store. Any number of pods may relay one outbox, and one alone keeps
        the order. The storages of the outbox stay open.

        :param outbox: or a coroutine function that opens one, called until it raises no
            ``StorageError``: the start does not wait for the database then
        :raises InvalidInput: the value is neither
        :raises ConfigError: the runtime has been started
        """
        from forge_jobs.clients.outbox.outbox import Outbox

        self._refuse_once_started("with_outbox")
        if not (isinstance(outbox, Outbox) or callable(outbox)):
            fix = "give Outbox(here, there), or a coroutine function that returns one"
            raise InvalidInput("outbox", f"is {a_type(outbox)}", fix)
        self._outboxes.append(outbox)
        return self

    def ensure_queue(self, name: str, settings: QueueSettings | None = None) -> "QueueRuntime":
        """Declare a queue at the start without serving it, unless :meth:`with_queues` names it.

        :param settings: None: settings that are declared elsewhere or in the store, else the
            defaults
        :raises ConfigError: the runtime has been started
        """
        self._refuse_once_started("ensure_queue")
        check_queue("queue", name)
        queues = self._queues if name in self._queues else self._other_queues
        queues[name] = settings or queues.get(name)
        return self

    def ensure_schedules(self, specs: Sequence[ScheduleSpec]) -> "QueueRuntime":
        """Declare recurring jobs at the start. Edits of operators stay.

        :raises ConfigError: the runtime has been started
        """
        self._refuse_once_started("ensure_schedules")
        self._schedules += specs
        return self

    def start(self) -> "Starting":
        """Start a pod: ``async with runtime.start() as handle:``, or ``await runtime.start()``.

        After the latter the pod runs in the background until ``handle.stop()``.

        :raises ConfigError: no queue was declared
        :raises Unavailable: the store was not ready within ``start_limit``
        """
        return Starting(self._plan(), exit_with_stuck=self._exit_abandons_threads)

    async def run(self) -> int:
        """Run until SIGTERM, SIGINT, SIGHUP or SIGQUIT, and return the exit code of the process.

        The first signal drains with the grace of the settings. A second signal ends the grace, a
        third ends the patience with handlers that were cancelled. The process is expected to end
        after the return. When handlers are left that cannot be stopped, threads or coroutines that
        swallow their cancellation, this call ends the process.

        :returns: 0. 1 when something of the pod is left in the store, or when the pod stopped by
            itself because the tasks were cancelled or the storage was closed
        """
        request = StopRequest()
        with on_stop_signals(request.drain, request.hurry):
            return await self.run_until(request)

    async def run_until(
        self,
        request: StopRequest,
        is_done: Callable[[], Awaitable[bool]] | None = None,
        started: Callable[[QueueHandle], None] | None = None,
    ) -> int:
        """Run as :meth:`run` does, for a program that handles signals itself.

        :param is_done: asked ten times a second. True ends the run as a signal does
        :param started: called with the handle once the pod runs
        """
        starting = Starting(self._plan(), exit_with_stuck=self._exit_abandons_threads)
        return await run_until(request, starting, self._exit_process, is_done, started)

    def _refuse_once_started(self, verb: str) -> None:
        if self._is_started:
            raise ConfigError(
                f"{verb}() was called after the start, when it has no effect: call it before "
                "start() or run(), or make another QueueRuntime"
            )

    def _plan(self) -> RuntimePlan:
        if not (self._queues or self._patterns):
            raise ConfigError(
                "no queue is declared, so there is nothing to run: name queues with "
                "with_queues(...), or in FORGE_QUEUES for the worker command"
            )
        self._is_started = True
        router, calls = self._router, CallMeter()
        return RuntimePlan(
            storage=metered(self._storage, calls, clock=self._clock),
            handlers=self._handlers,
            settings=self._settings,
            queues=dict(self._queues),
            other_queues={
                name: settings or QueueSettings() for name, settings in self._other_queues.items()
            },
            rate_limits={**self._handlers.rates(), **self._rate_limits},
            schedules=(*declared_schedules(self._handlers, router), *self._schedules),
            router=router,
            clock=self._clock,
            label=self._label,
            version=self._version,
            start_limit=self._start_limit,
            concurrency=self._concurrency,
            logs_every_job=self._logs_every_job,
            exit_process=self._exit_process,
            calls=calls,
            process_registry=_process_registry(self._handlers),
            patterns=dict(self._patterns),
            outboxes=tuple(self._outboxes),
        )


def _process_registry(handlers: HandlerRegistry) -> str:
    if not any(handler.in_process for handler in handlers):
        return ""
    from forge_jobs.runtime.executors.runner import registry_place

    return registry_place(handlers)


def _check_texts(field: str, given: Iterable[object], fix: str) -> None:
    for each in given:
        if not isinstance(each, str):
            raise InvalidInput(field, f"is {a_type(each)}", fix)
