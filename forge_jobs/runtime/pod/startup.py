"""Joining the fleet: declare queues, rate limits and schedules, then register the pod."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import anyio
from msgspec import Struct, structs

from forge_jobs.clients.schedules import ensure_schedules
from forge_jobs.clock import Clock, StoreTime
from forge_jobs.config import RuntimeSettings
from forge_jobs.errors import StorageError, StorageRefused, Unavailable
from forge_jobs.handlers.preparing import DEFAULT_QUEUE
from forge_jobs.handlers.registry import HandlerRegistry
from forge_jobs.handlers.routing import Router, named_queues
from forge_jobs.handlers.schema import published
from forge_jobs.model.ids import HostId
from forge_jobs.model.processes import Pod, PodLease
from forge_jobs.model.queues import QueueSettings, QueueState, RateLimit
from forge_jobs.model.schedules import ScheduleSpec
from forge_jobs.operating.together import all_of
from forge_jobs.outages import Outage, Pauses
from forge_jobs.reports import reporter
from forge_jobs.runtime.shared.clean_texts import named
from forge_jobs.runtime.shared.service import Wakeup
from forge_jobs.runtime.shared.store_calls import CallMeter
from forge_jobs.storage.protocols import Storage

if TYPE_CHECKING:
    from forge_jobs.clients.outbox.outbox import OutboxSource

logger = reporter(__name__)

_T = TypeVar("_T")

_PAUSES = Pauses(0.1, 2.0)
_TO_UNDO = 1.0
_DEFAULT_WORKERS = QueueSettings().max_workers
_FEW = 20
_AT_ONCE = 8


class RuntimePlan(Struct, frozen=True, kw_only=True):
    """Everything a pod is made from.

    :param queues: queues to serve. None: with the settings of the store, else the defaults
    :param other_queues: declared, but not served here
    :param start_limit: how long the start waits for a store that is unavailable
    :param concurrency: handlers at once over all queues. None: as many as there are slots
    :param logs_every_job: a line for every job that ends, see ``JobLog``
    :param exit_process: ends the process at once, when the event loop hangs
    :param calls: counts the calls of ``storage``
    :param process_registry: the place of ``handlers`` for other processes, "" where no handler has
        a process of its own
    :param patterns: globs of queues that are served once they have jobs
    :param outboxes: relayed by the pod
    """

    storage: Storage
    handlers: HandlerRegistry
    settings: RuntimeSettings
    queues: Mapping[str, QueueSettings | None]
    other_queues: Mapping[str, QueueSettings]
    rate_limits: Mapping[str, RateLimit]
    schedules: Sequence[ScheduleSpec]
    router: Router | None
    clock: Clock
    label: str | Callable[[HostId], str]
    version: str
    start_limit: timedelta
    concurrency: int | None
    logs_every_job: bool
    exit_process: Callable[[int], None]
    calls: CallMeter
    process_registry: str = ""
    patterns: Mapping[str, QueueSettings | None] = {}
    outboxes: "Sequence[OutboxSource]" = ()


def describe_pod(plan: RuntimePlan, host_id: HostId) -> Pod:
    """Return the record of the pod for the store."""
    return Pod(
        host_id=host_id,
        label=plan.label if isinstance(plan.label, str) else plan.label(host_id),
        queues=tuple(plan.queues),
        kinds=tuple(sorted(plan.handlers.kinds())),
        routes=named_queues(plan.handlers, plan.router),
        version=plan.version,
        process_id=os.getpid(),
        concurrency=plan.concurrency,
    )


async def join(plan: RuntimePlan, pod: Pod) -> tuple[PodLease, float]:
    """Declare and register. Return the lease, and ``Clock.elapsed`` before the registration.

    :raises Unavailable: the store was not ready within ``plan.start_limit``
    """
    _check_pool(plan)
    _check_handlers(plan)
    warn_of_patterns(plan.queues)
    await _patiently(plan, lambda: declare(plan, plan.storage))
    queues = await _patiently(plan, plan.storage.config.queues)
    asked_at = plan.clock.elapsed()

    async def register() -> PodLease:
        nonlocal asked_at
        asked_at = plan.clock.elapsed()
        call = asyncio.ensure_future(plan.storage.procs.register(pod, plan.settings.lease))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await _undo(plan, call)
            raise

    lease = await _patiently(plan, register)
    _announce(plan, pod, queues)
    return lease, asked_at


def _announce(plan: RuntimePlan, pod: Pod, stored: Sequence[QueueState]) -> None:
    """Log which queues the pod serves, with the limits in force: operators may have set them."""
    limits = {state.name: state.settings.max_workers for state in stored}
    queues = [
        f"{name} ({limits.get(name, _DEFAULT_WORKERS)} at a time in the cluster)"
        for name in pod.queues
    ]
    queues += [f"{pattern} where there are jobs" for pattern in plan.patterns]
    logger.info(
        "pod %s on %s serves %s with %d kinds: %s",
        f"{pod.label} ({pod.host_id})" if pod.label else pod.host_id,
        plan.storage.name,
        named(queues),
        len(pod.kinds),
        named(pod.kinds) or "none",
        extra={"host_id": pod.host_id, "label": pod.label},
    )


async def read_store_time(plan: RuntimePlan) -> StoreTime:
    """Read the store's clock, so that the first event of the pod has the right time too.

    :raises Unavailable: the store was not ready within ``plan.start_limit``
    """
    store_time = StoreTime(plan.clock)

    async def read() -> None:
        asked_at = plan.clock.elapsed()
        store_time.learn(await plan.storage.cron.now(), asked_at, plan.clock.elapsed())

    await _patiently(plan, read)
    return store_time


async def declare(plan: RuntimePlan, storage: Storage, *, known: "Known | None" = None) -> None:
    """Declare the queues, limits and schedules of the code, and describe the kinds.

    Settings of operators stay.

    Called before each registration: a pod that is admitted finds the limits in force. A queue whose
    part of the store is silent is declared when the pod is admitted there.

    :param known: what stays as it is in the store. None: nothing
    """
    known = known or Known()
    if len(plan.queues) + len(plan.other_queues) > _FEW:
        known = await _with_those_alike(plan, storage, known)
    await _declare_queues(plan, storage, known)
    for scope, limit in plan.rate_limits.items():
        if scope not in known.rate_limits:
            await storage.config.ensure_rate_limit(scope, limit)
    if schedules := [each for each in plan.schedules if each.name not in known.schedules]:
        parts = [schedules[first::_AT_ONCE] for first in range(min(_AT_ONCE, len(schedules)))]
        await all_of([ensure_schedules(storage.cron, part) for part in parts])
    documents = published(plan.handlers)
    if kinds := {each: documents[each] for each in documents if each not in known.kinds}:
        await storage.procs.publish_kinds(kinds)


async def _declare_queues(plan: RuntimePlan, storage: Storage, known: "Known") -> None:
    declared = {**plan.other_queues, **plan.queues}
    at_most, shares = plan.handlers.limits()
    silent: list[Unavailable] = []
    turns = asyncio.Semaphore(_AT_ONCE)

    async def declare_one(name: str, settings: QueueSettings | None) -> None:
        limits = {each: at_most[each] for each in at_most if (name, each) not in known.limits}
        try:
            async with turns:
                if settings is not None and name not in known.queues:
                    await storage.config.ensure_queue(name, settings)
                if limits and name in plan.queues:
                    of_these = {each: shares[each] for each in limits if each in shares}
                    await storage.config.ensure_limits(name, limits, of_these)
        except Unavailable as error:
            silent.append(error)
            if not storage.is_parted or len(silent) == len(declared):
                raise

    await all_of([declare_one(name, settings) for name, settings in declared.items()])


async def declare_again(plan: RuntimePlan, storage: Storage, host_id: HostId) -> None:
    """Declare before a registration that is not the first: the store may have been emptied.

    A pod that lost its lease for a while may be one of the last of an old release. So where a
    younger pod serves one of the queues, what the store has by then stays: else the numbers of the
    old release would hold until the next deploy.
    """
    try:
        known = await _known(storage) if await _is_old(plan, storage, host_id) else None
    except Unavailable:
        # Other parts of the store need their limits.
        if not storage.is_parted:
            raise
        known = None
    await declare(plan, storage, known=known)


async def _is_old(plan: RuntimePlan, storage: Storage, host_id: HostId) -> bool:
    """Return whether a younger pod serves one of the queues. Ids of pods are in their order."""
    return any(
        state.pod.host_id > host_id
        and state.standing == "live"
        and not plan.queues.keys().isdisjoint(state.pod.queues)
        for state in await storage.procs.pods()
    )


class Known(Struct, frozen=True, kw_only=True):
    """The names of what programs have declared in a store.

    :param limits: queue and name of each
    """

    queues: Collection[str] = ()
    limits: Collection[tuple[str, str]] = ()
    rate_limits: Collection[str] = ()
    schedules: Collection[str] = ()
    kinds: Collection[str] = ()


async def _known(storage: Storage) -> Known:
    config = storage.config
    return Known(
        queues=await config.settings_of_code(),
        limits={(each.queue, each.name) for each in await config.limits()},
        rate_limits={each.scope for each in await config.rate_limits()},
        schedules={each.spec.name for each in await storage.cron.schedules()},
        kinds={each.kind for each in await storage.procs.published_kinds()},
    )


async def _with_those_alike(plan: RuntimePlan, storage: Storage, known: Known) -> Known:
    """Add the queues and limits that are in the store as the pod declares them.

    Two reads take the place of a call for each of a thousand queues.
    """
    declared = {**plan.other_queues, **plan.queues}
    at_most, shares = plan.handlers.limits()
    try:
        of_code = await storage.config.settings_of_code()
        states = await storage.config.queues()
        limits = await storage.config.limits() if at_most else []
    except Unavailable:
        # Other parts of the store are declared by themselves.
        if not storage.is_parted:
            raise
        return known
    queues = {
        each.name
        for each in states
        if of_code.get(each.name) == declared.get(each.name) and _is_in_force(each, of_code)
    }
    alike = {
        (each.queue, each.name)
        for each in limits
        if not each.unreadable
        and (
            each.overridden
            or (each.at_most, each.share) == (at_most.get(each.name), shares.get(each.name))
        )
    }
    return structs.replace(known, queues={*known.queues, *queues}, limits={*known.limits, *alike})


def _is_in_force(state: QueueState, of_code: Mapping[str, QueueSettings]) -> bool:
    """Return whether all that no operator has set is as code has declared."""
    declared = of_code.get(state.name)
    return not state.unreadable and all(
        getattr(state.settings, name) == getattr(declared, name)
        for name in QueueSettings.__struct_fields__
        if name not in state.overridden
    )


def connections_wanted(queues: int) -> int:
    """Return how many connections let no call of a pod wait for another.

    The workers of a queue share calls, so a pod needs no connection per worker: one per queue,
    one for handlers that enqueue and one for its loops.
    """
    return queues + 2


def _check_pool(plan: RuntimePlan) -> None:
    """Warn when calls of the workers would wait for each other's connections."""
    size, wanted = plan.storage.pool_size, connections_wanted(len(plan.queues))
    if size is not None and size < wanted:
        logger.warning(
            "the store's pool has %d connections and this pod has %d queues: their workers will "
            "wait for each other; give the URL pool_size=%d or more",
            size,
            len(plan.queues),
            wanted,
        )


def _check_handlers(plan: RuntimePlan) -> None:
    """Warn when no job can reach a handler of this pod by default.

    Jobs for queues that are served by a pattern are meant to name their queue.
    """
    kinds = sorted(plan.handlers.kinds())
    if not kinds:
        logger.warning(
            "the registry has no handlers, so this pod runs no job: import the modules that "
            "decorate functions with @handlers.job(...) before the runtime starts"
        )
        return
    routes = named_queues(plan.handlers, plan.router)
    led_to = {routes.get(kind, DEFAULT_QUEUE) for kind in kinds}
    if not plan.patterns and not led_to & plan.queues.keys():
        logger.warning(
            "this pod serves %s, but jobs of its %d kinds (%s) go to %s where a request names no "
            "queue: give the handlers queue=..., or the runtime a router",
            _names(plan.queues),
            len(kinds),
            _names(kinds),
            _names(sorted(led_to)),
        )


def warn_of_patterns(names: Iterable[str]) -> None:
    """Warn of queues whose names look like patterns. They are names like others."""
    for name in names:
        if "*" in name:
            logger.warning(
                "this pod serves a queue that is named %r, and no other whose name matches: for "
                "all of these give the pattern to with_patterns(...) or FORGE_QUEUE_PATTERNS",
                name,
            )


def _names(names: Iterable[str], most: int = 5) -> str:
    """Return the first few of the names, for people."""
    given = list(names)
    more = [f"{len(given) - most} more"] if len(given) > most else []
    return ", ".join(given[:most] + more)


async def _undo(plan: RuntimePlan, registering: "asyncio.Future[PodLease]") -> None:
    """Unregister a pod whose start was cancelled, which would keep the slots for a lease."""
    with anyio.CancelScope(shield=True):
        await asyncio.wait({registering}, timeout=_TO_UNDO)
        if registering.done() and not registering.cancelled() and not registering.exception():
            with contextlib.suppress(StorageError):
                await plan.storage.procs.unregister(registering.result())


async def _patiently(plan: RuntimePlan, call: Callable[[], Awaitable[_T]]) -> _T:
    """Repeat ``call``, which must be repeatable, while the store is not ready."""
    until = plan.clock.elapsed() + plan.start_limit.total_seconds()
    failures, outage = 0, Outage()
    while True:
        try:
            return await call()
        except StorageRefused:
            # An operator has to mend this, and learns of it soonest when the program ends.
            raise
        except Unavailable as error:
            failures += 1
            if plan.clock.elapsed() + _PAUSES.at_most(failures) > until:
                raise
            if outage.is_new():
                logger.warning("the store is not ready, the start waits: %s", error)
            await Wakeup().wait(timedelta(seconds=_PAUSES.after(failures)))
