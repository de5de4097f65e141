"""The store as pods see it and as it describes itself."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from forge_jobs.model.processes import PodState, StoreCall
from forge_jobs.operating.words import duration, size
from forge_jobs.policy.explanations import name_of
from forge_jobs.storage.protocols import Storage, StoreReport


class CallsView(Struct, frozen=True, kw_only=True):
    """Calls of one verb of the store by all live pods, in the last minute of each.

    :param errors: calls that the store did not answer, or answered with an error of its own
    :param p50_ms: of the pod in the middle
    :param p99_ms: of the slowest pod
    :param slowest_pod: the name of that pod
    """

    name: str
    count: int
    errors: int
    p50_ms: float
    p99_ms: float
    slowest_pod: str


class PoolView(Struct, frozen=True, kw_only=True):
    """The connections of a pod. ``size`` 0: calls need not wait for one.

    :param waits: calls that had to wait, since the pod opened its store
    """

    pod: str
    size: int
    in_use: int
    waits: int


class StoreView(Struct, frozen=True, kw_only=True):
    """All that is known of a store.

    :param name: the backend, and the part of the address that may be shown
    :param durability: which failures a commit survives, in words
    :param wakes: new work is heard of at once by this process. False: found by polling
    :param report: of the store itself. A part that this user may not ask for is null
    :param pool: of the process that answers
    :param pools: of the live pods
    :param calls: the verbs that took most time first
    """

    name: str
    server: str
    durability: str
    is_durable: bool
    wakes: bool
    report: StoreReport
    pool: PoolView
    pools: tuple[PoolView, ...]
    calls: tuple[CallsView, ...]


def store_view(storage: Storage, report: StoreReport, pods: Sequence[PodState]) -> StoreView:
    """Return all that is known of a store.

    :param pods: all pods
    """
    pods = [pod for pod in pods if pod.lease_remaining]
    health = storage.health()
    return StoreView(
        name=storage.name,
        server=storage.server,
        durability=storage.durability,
        is_durable=storage.is_durable,
        wakes=health.wakes,
        report=report,
        pool=PoolView(
            pod="",
            size=health.pool_size or storage.pool_size or 0,
            in_use=health.pool_in_use,
            waits=health.pool_waits,
        ),
        pools=tuple(
            PoolView(
                pod=name_of(pod),
                size=pod.gauges.pool_size,
                in_use=pod.gauges.pool_in_use,
                waits=pod.gauges.pool_waits,
            )
            for pod in pods
            if pod.gauges
        ),
        calls=calls_of(pods),
    )


def calls_of(pods: Iterable[PodState]) -> tuple[CallsView, ...]:
    """Return the calls of all these pods by verb, those that took most time first."""
    found: defaultdict[str, list[tuple[StoreCall, str]]] = defaultdict(list)
    for pod in pods:
        for call in pod.gauges.calls if pod.gauges else ():
            found[call.name].append((call, name_of(pod)))
    views = [_view(name, calls) for name, calls in found.items()]
    return tuple(sorted(views, key=lambda each: (-each.count * each.p50_ms, each.name)))


def _view(name: str, calls: list[tuple[StoreCall, str]]) -> CallsView:
    slowest, pod = max(calls, key=lambda each: (each[0].p99_ms, each[1]))
    middle = sorted(call.p50_ms for call, _ in calls)[len(calls) // 2]
    return CallsView(
        name=name,
        count=sum(call.count for call, _ in calls),
        errors=sum(call.errors for call, _ in calls),
        p50_ms=middle,
        p99_ms=slowest.p99_ms,
        slowest_pod=pod,
    )


def facts_of(found: StoreView) -> list[tuple[str, str]]:
    """Return what is known of a store, by name. What is not known has no line."""
    report = found.report
    bound = "" if report.memory_bound is None else f" of {size(report.memory_bound)}"
    known = (
        ("server", found.server or None),
        ("durability", found.durability or None),
        ("wake-ups", "heard at once" if found.wakes else "found by polling"),
        ("schema", report.schema_version),
        ("size", _size(report.size_bytes)),
        ("write-ahead log", _size(report.wal_bytes)),
        ("memory", None if report.memory_bytes is None else f"{size(report.memory_bytes)}{bound}"),
        ("free on disk", _size(report.disk_free)),
        ("dead rows", None if report.dead_rows is None else f"{report.dead_rows:,}"),
        ("oldest transaction", _open(found)),
        ("replicas", report.replicas),
        *((f"connections of {each.pod}", _pool(each)) for each in found.pools if each.size),
    )
    return [(name, str(value)) for name, value in known if value is not None]


def _size(value: int | None) -> str | None:
    return None if value is None else size(value)


def _open(found: StoreView) -> str | None:
    oldest = found.report.oldest_transaction
    if oldest is None:
        return None
    return duration(oldest) if oldest else "none is open"


def _pool(pool: PoolView) -> str:
    return f"{pool.in_use} of {pool.size} in use, {pool.waits:,} calls had to wait"
