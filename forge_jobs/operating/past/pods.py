"""Pods of an earlier minute, from their gauges and from events of the fleet."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from forge_jobs.model.events import EventKind, TimelineEvent, pod_note
from forge_jobs.model.ids import HostId
from forge_jobs.model.metrics import PodMinute
from forge_jobs.model.processes import Pod, PodGauges, PodState

_LIVE, _GONE = timedelta(seconds=1), timedelta(0)


class PodThen(Struct, frozen=True, kw_only=True):
    """A pod at an earlier minute.

    :param started_at: None where no event of the start is left
    :param gauges: of the minute. None where none were recorded
    """

    host_id: str
    label: str = ""
    version: str = ""
    queues: tuple[str, ...] = ()
    started_at: datetime | None = None
    draining: bool = False
    gauges: PodGauges | None = None


def pods_then(
    until: datetime,
    known: Sequence[PodState],
    events: Sequence[TimelineEvent],
    minutes: Iterable[PodMinute],
) -> list[PodThen]:
    """Return the pods that lived until the end of a minute.

    :param known: pods that the store knows today
    :param events: of the fleet, newest first
    :param minutes: gauges of that minute
    """
    found: dict[str, PodThen] = {
        state.pod.host_id: _of_state(state) for state in known if state.started_at < until
    }
    for event in reversed(events):
        if event.at >= until:
            break
        _follow(found, event)
    for minute in minutes:
        pod = found.get(minute.host_id) or PodThen(host_id=minute.host_id)
        found[minute.host_id] = structs.replace(pod, gauges=minute.gauges)
    return sorted(found.values(), key=lambda pod: (pod.label, pod.host_id))


def _of_state(state: PodState) -> PodThen:
    return PodThen(
        host_id=state.pod.host_id,
        label=state.pod.label,
        version=state.pod.version,
        queues=state.pod.queues,
        started_at=state.started_at,
    )


def _follow(found: dict[str, PodThen], event: TimelineEvent) -> None:
    """Apply an event to the pods before."""
    if event.kind is EventKind.POD_STARTED:
        note = pod_note(event.detail)
        found[event.host_id] = PodThen(
            host_id=event.host_id,
            label=note.label,
            version=note.version,
            queues=note.queues,
            started_at=event.at,
        )
    elif event.kind is EventKind.POD_STOPPED:
        found.pop(event.host_id, None)
    elif event.kind is EventKind.POD_LOST:
        found.pop(event.detail, None)
    elif event.kind is EventKind.POD_DRAINING and event.host_id in found:
        found[event.host_id] = structs.replace(found[event.host_id], draining=True)


def states_of(pods: Iterable[PodThen], until: datetime) -> list[PodState]:
    """Return the pods as the rules of problems look at them: live until the end of the minute."""
    return [
        PodState(
            pod=Pod(
                host_id=HostId(pod.host_id),
                label=pod.label,
                queues=pod.queues,
                kinds=(),
                version=pod.version,
                process_id=0,
            ),
            started_at=pod.started_at or until,
            last_beat_at=until,
            lease_remaining=_LIVE,
            draining=pod.draining,
            slots={},
            in_progress=_running(pod),
            gauges=pod.gauges,
        )
        for pod in pods
    ]


def _running(pod: PodThen) -> Mapping[str, int]:
    # Gauges tell of the sum over all queues.
    return {"": pod.gauges.running} if pod.gauges else {}
