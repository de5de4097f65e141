"""The store, as a snapshot shows it: by the gauges of pods, and by the store's own report."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import structs

from forge_jobs.model.metrics import MINUTE, PodMinute
from forge_jobs.model.processes import OutboxGauge, PodGauges, PodState, StoreCall
from forge_jobs.operating.snapshots.fleet import is_live
from forge_jobs.policy.judgement.problems.snapshot import PodSeen, StoreSeen
from forge_jobs.storage.protocols import StoreReport

SLOW_MS = 1_000.0
MANY_CALLS = 20
"""Of fewer calls in a minute the slowest says nothing. Their half does, from a few calls on."""

_FEW_CALLS = 3
_FULL = 0.9
_ZERO = timedelta(0)


def is_exhausted(gauges: PodGauges) -> bool:
    """True when all connections were in use, and calls have had to wait for one."""
    return 0 < gauges.pool_size <= gauges.pool_in_use and gauges.pool_waits > 0


def is_slow(gauges: PodGauges) -> bool:
    """True when a call by name was slow in the last minute."""
    return any(_is_slow(call) for call in gauges.calls)


def _is_slow(call: StoreCall) -> bool:
    if call.count >= MANY_CALLS:
        return call.p99_ms > SLOW_MS
    return call.count >= _FEW_CALLS and call.p50_ms > SLOW_MS


def exhausted_since(
    odd: Mapping[str, datetime], minutes: Sequence[PodMinute]
) -> dict[str, datetime]:
    """Return the pods whose calls have waited for a connection for longer than a moment.

    A pool may be in use as a whole at the moment of the measurement, so it takes two minutes, in
    which more calls had to wait. The minute in which the pod began is one of them.

    :param odd: pod -> since when its connections were all in use at every measurement
    :param minutes: of all pods, oldest first
    """
    found = {}
    for host_id, since in odd.items():
        waits = [
            each.gauges.pool_waits
            for each in minutes
            if each.host_id == host_id and each.minute + MINUTE > since
        ]
        if len(waits) > 1 and waits[-1] > waits[0]:
            found[host_id] = since
    return found


def with_pools(
    seen: Iterable[PodSeen], pods: Sequence[PodState], exhausted: Mapping[str, datetime]
) -> tuple[PodSeen, ...]:
    """Return the pods with what is known of their connections.

    :param seen: of ``pods``, in the same order
    """
    return tuple(
        structs.replace(
            one,
            pool_size=pod.gauges.pool_size if pod.gauges else 0,
            exhausted_since=exhausted.get(pod.pod.host_id),
        )
        for one, pod in zip(seen, pods, strict=True)
    )


def store_seen(
    now: datetime,
    report: StoreReport,
    pods: Sequence[PodState],
    slow: Mapping[str, datetime],
    *,
    name: str,
    rolled_up_to: datetime | None,
) -> StoreSeen:
    """Return the store.

    :param slow: pod -> since when its calls are slow
    """
    oldest = report.oldest_transaction or _ZERO
    used, bound = _room(report)
    calls = [
        call
        for pod in pods
        if is_live(pod) and pod.gauges
        for call in pod.gauges.calls
        if _is_slow(call)
    ]
    slowest = max(calls, key=lambda call: (call.p99_ms, call.name), default=None)
    return StoreSeen(
        name=name,
        slow_since=min(slow.values(), default=None),
        slowest=slowest.name if slowest else "",
        slowest_p99=timedelta(milliseconds=slowest.p99_ms) if slowest else _ZERO,
        used=used,
        bound=bound,
        # No history says when the room was first short.
        full_since=now if bound and used >= _FULL * bound else None,
        transaction_since=now - oldest if oldest > _ZERO else None,
        rolled_up_to=rolled_up_to,
    )


def _room(report: StoreReport) -> tuple[int, int]:
    """Return how many bytes are used and how many there may be. Zeros where there is no bound."""
    if report.memory_bytes is not None and report.memory_bound:
        return report.memory_bytes, report.memory_bound
    if report.disk_free is not None and report.size_bytes is not None:
        used = report.size_bytes + (report.wal_bytes or 0)
        return used, used + report.disk_free
    return 0, 0


def outboxes_seen(pods: Sequence[PodState]) -> tuple[OutboxGauge, ...]:
    """Return the outboxes that live pods relay. Of several pods the worse measurement counts, which
    is at most a minute old.
    """
    found: dict[str, OutboxGauge] = {}
    for pod in pods:
        for each in pod.gauges.outboxes if is_live(pod) and pod.gauges else ():
            found[each.name] = _worse(found.get(each.name, each), each)
    return tuple(found[name] for name in sorted(found))


def _worse(one: OutboxGauge, other: OutboxGauge) -> OutboxGauge:
    return OutboxGauge(
        name=one.name,
        waiting=max(one.waiting, other.waiting),
        waiting_since=_earlier(one.waiting_since, other.waiting_since),
        set_aside=max(one.set_aside, other.set_aside),
        aside_since=_earlier(one.aside_since, other.aside_since),
        # One relay that works is enough.
        relayed_at=max(
            (at for at in (one.relayed_at, other.relayed_at) if at is not None), default=None
        ),
    )


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((each for each in (one, other) if each is not None), default=None)
