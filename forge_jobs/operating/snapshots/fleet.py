"""Pods, the leader and schedules, as a snapshot shows them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import structs

from forge_jobs.model.events import EventKind, TimelineEvent, grace_in, pod_note
from forge_jobs.model.metrics import PodMinute
from forge_jobs.model.processes import (
    MOST_RATES,
    Leadership,
    PodGauges,
    PodState,
    RateGauge,
)
from forge_jobs.model.schedules import Schedule
from forge_jobs.policy.explanations import name_of
from forge_jobs.policy.judgement.problems.snapshot import PodSeen, ScheduleSeen

_ZERO = timedelta(0)
_STARTS_WITHIN = timedelta(minutes=10)
SKEW_TOLERATED_MS = 2000.0


def is_live(pod: PodState) -> bool:
    """True while the lease of the pod runs."""
    return pod.lease_remaining > _ZERO


def pods_seen(
    now: datetime,
    pods: Sequence[PodState],
    events: Sequence[TimelineEvent],
    polling: Mapping[str, datetime],
    skewed: Mapping[str, datetime],
) -> tuple[PodSeen, ...]:
    """Return the pods, those that have just been lost too.

    :param events: of the fleet, newest first
    :param polling: pod -> since when it hears no wake-ups
    :param skewed: pod -> since when its clock is off
    """
    starts = _starts_by_label(now, events)
    newest_of_label = {pod.pod.label: pod.pod.host_id for pod in pods}
    draining = {each.host_id: each for each in events if each.kind is EventKind.POD_DRAINING}
    seen = []
    for pod in pods:
        host_id, label = pod.pod.host_id, pod.pod.label
        # Counted once, with the pod that started last.
        begun = starts.get(label, ()) if label and newest_of_label[label] == host_id else ()
        asked = draining.get(host_id) if pod.draining and is_live(pod) else None
        grace = grace_in(asked.detail) if asked else None
        one = PodSeen(
            name=name_of(pod),
            version=pod.pod.version,
            # While the lease runs a pod is not silent, however seldom that pod beats.
            last_beat_at=now if is_live(pod) else pod.last_beat_at,
            running=sum(pod.in_progress.values()),
            starts=max(len(begun), 1),
            first_start_at=begun[-1] if begun else None,
            polling_since=polling.get(host_id),
            skewed_since=skewed.get(host_id),
        )
        if is_live(pod) and pod.gauges is not None:
            one = structs.replace(
                one,
                skew=timedelta(milliseconds=pod.gauges.clock_skew_ms),
                blocked_since=pod.gauges.blocked_since,
                blocked_in=pod.gauges.blocked_in,
            )
        if asked is not None and grace is not None:
            one = structs.replace(one, draining_since=asked.at, grace=grace)
        seen.append(one)
    return tuple(seen)


def _starts_by_label(
    now: datetime, events: Sequence[TimelineEvent]
) -> Mapping[str, Sequence[datetime]]:
    """When pods of each label started lately, newest first."""
    found: defaultdict[str, list[datetime]] = defaultdict(list)
    for event in events:
        if event.kind is EventKind.POD_STARTED and event.at > now - _STARTS_WITHIN:
            found[pod_note(event.detail).label].append(event.at)
    return found


class TokensReported(NamedTuple):
    """Tokens of rate limits in the last minute, as live pods tell.

    :ivar by_limit: the sums of all pods
    :ivar is_cut: a pod has asked more limits than a pod tells of
    """

    by_limit: Mapping[str, RateGauge]
    is_cut: bool

    def of(self, scope: str) -> RateGauge | None:
        """Return the tokens of a limit. None: not known."""
        return self.by_limit.get(scope) or (None if self.is_cut else RateGauge(scope))


def tokens_reported(pods: Sequence[PodState]) -> TokensReported:
    """Return what live pods tell of rate limits. Each tells once a minute, of the minute before."""
    found: dict[str, RateGauge] = {}
    is_cut = False
    for pod in pods:
        reported = pod.gauges.rates if is_live(pod) and pod.gauges else ()
        is_cut = is_cut or len(reported) >= MOST_RATES
        for each in reported:
            before = found.get(each.scope, RateGauge(each.scope))
            found[each.scope] = RateGauge(
                each.scope, before.taken + each.taken, before.refused + each.refused
            )
    return TokensReported(found, is_cut)


def busiest(scopes: Iterable[str], pods: Sequence[PodState], at_most: int) -> tuple[RateGauge, ...]:
    """Return the tokens of the limits with most of them, in the order of their names."""
    reported = tokens_reported(pods)
    known = [each for each in map(reported.of, scopes) if each is not None]
    known.sort(key=lambda each: (-each.taken - each.refused, each.scope))
    return tuple(sorted(known[:at_most], key=lambda each: each.scope))


def hears_nothing(gauges: PodGauges) -> bool:
    """True while no wake-ups arrive."""
    return not gauges.listening


def is_skewed(gauges: PodGauges) -> bool:
    """True while the pod's wall clock is more than two seconds off."""
    return abs(gauges.clock_skew_ms) > SKEW_TOLERATED_MS


def odd_since(
    now: datetime,
    pods: Sequence[PodState],
    minutes: Sequence[PodMinute],
    is_odd: Callable[[PodGauges], bool],
) -> dict[str, datetime]:
    """Return the live pods whose gauges are odd, and since when they are without a break.

    Not since before a pod began, in the minute of its start.

    :param minutes: of all pods, oldest first
    """
    found: dict[str, datetime] = {
        pod.pod.host_id: now
        for pod in pods
        if is_live(pod) and pod.gauges is not None and is_odd(pod.gauges)
    }
    began = {pod.pod.host_id: pod.started_at for pod in pods}
    was_well = set[str]()
    for minute in reversed(minutes):
        if not is_odd(minute.gauges):
            was_well.add(minute.host_id)
        elif minute.host_id in found and minute.host_id not in was_well:
            first = max(minute.minute, began[minute.host_id])
            found[minute.host_id] = min(found[minute.host_id], first)
    return found


def leaderless_since(
    now: datetime, leader: Leadership | None, pods: Sequence[PodState]
) -> datetime | None:
    """Return since when none leads. None while one leads, or no pod is live that could."""
    started = [pod.started_at for pod in pods if is_live(pod)]
    if not started or (leader is not None and leader.remaining > _ZERO):
        return None
    # The first pod after a time without any has as long as the one that lost the lease.
    return max(min(started), now - leader.ended_for) if leader else min(started)


def schedules_seen(
    schedules: Sequence[Schedule], events: Sequence[TimelineEvent], now: datetime
) -> tuple[ScheduleSeen, ...]:
    """Return the schedules that should fire. Records that cannot be read are left out."""
    disabled = {each.detail: each.at for each in reversed(events) if each.kind is _DISABLED}
    return tuple(
        ScheduleSeen(
            name=each.spec.name,
            error=each.error,
            error_at=_error_at(each, disabled, now) if each.error else None,
            next_at=each.next_at,
        )
        for each in schedules
        if not (each.paused or each.deleted or each.unreadable)
    )


_DISABLED = EventKind.SCHEDULE_DISABLED


def _error_at(schedule: Schedule, disabled: Mapping[str, datetime], now: datetime) -> datetime:
    """When the schedule was disabled. Without an event the last that is known: it fired."""
    name = schedule.spec.name
    at = disabled.get(f"{name}: {schedule.error}")
    return at or schedule.last_fired_at or now
