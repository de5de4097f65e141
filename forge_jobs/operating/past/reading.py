"""Reads how an installation stood at an earlier minute, or in an earlier hour."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from msgspec import Struct, structs

from forge_jobs.model.actions import Action
from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.looks import MOST_EVENTS
from forge_jobs.model.metrics import HOUR, MINUTE, PodMinute
from forge_jobs.model.queues import QueueCounts, QueueState
from forge_jobs.model.series import Depth, SeriesAsk, SeriesStep
from forge_jobs.operating.past.pods import PodThen, pods_then, states_of
from forge_jobs.operating.snapshots.errors import errors_seen, read_groups
from forge_jobs.operating.snapshots.fleet import hears_nothing, is_skewed, odd_since, pods_seen
from forge_jobs.operating.snapshots.queues import queues_seen
from forge_jobs.operating.snapshots.series import Lately, with_series
from forge_jobs.policy.judgement.problems import judging
from forge_jobs.policy.judgement.problems.problem import Problem
from forge_jobs.policy.judgement.problems.snapshot import PodSeen, QueueSeen, Snapshot, StoreSeen
from forge_jobs.storage.protocols import Storage

_BACK = timedelta(hours=2)
"""How far series are read before the minute: growth and objectives rest on them."""

_ACTIONS, _PAGES = 1_000, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO = timedelta(0)

NOT_KEPT = (
    "Which jobs ran, were held or blocked, cool-downs, open transactions, the leader, rate limits "
    "and schedules are not kept of the past, so no problem tells of them."
)


class QueueThen(Struct, frozen=True, kw_only=True):
    """A queue at an earlier minute.

    :param depth: None where none was recorded
    :param step: what flowed. None where nothing was
    :param pods: how many pods served the queue. None where that is not known
    :param paused_by: who had paused the queue. "" while it was open, as far as actions tell
    """

    name: str
    depth: Depth | None = None
    step: SeriesStep | None = None
    pods: int | None = None
    paused_since: datetime | None = None
    paused_by: str = ""


class Then(Struct, frozen=True, kw_only=True):
    """An installation at an earlier minute, or in an earlier hour.

    :param at: begin of the minute or hour
    :param unknown: what cannot be said, in sentences
    """

    at: datetime
    length: timedelta
    queues: tuple[QueueThen, ...]
    pods: tuple[PodThen, ...]
    problems: tuple[Problem, ...]
    unknown: tuple[str, ...]


class _Fleet(NamedTuple):
    """Pods of the minute, and the events before its end, newest first."""

    pods: Sequence[PodThen]
    events: Sequence[TimelineEvent]


async def read_then(storage: Storage, at: datetime) -> Then:
    """Read how the installation stood at the minute that begins at ``at``, in seven calls or more.

    Where minutes are folded the hour counts. Problems are judged by the same rules as those of now,
    over a snapshot from series, gauges, events and actions. Queues that are gone are left out.

    :raises Unavailable: the store is silent, or the part with pods
    """
    states = await storage.config.queues()
    hour = at - (at - _EPOCH) % HOUR
    # From the full hour, so that an hour whose minutes are gone is found.
    since = min(hour, at - _BACK)
    asked = [SeriesAsk(since=since, until=at + MINUTE)]
    asked += [SeriesAsk(since=since, until=at + MINUTE, queue=state.name) for state in states]
    whole, *series = await storage.jobs.many_series(asked)
    own = await storage.procs.gauges(hour, at + MINUTE)
    step = _step_at(whole, at) or next(iter(filter(None, (_step_at(e, at) for e in series))), None)
    length = step.length if step else _length_of(own, at)
    begin = hour if length == HOUR else at
    until = begin + length
    events = await storage.jobs.events(queue="", limit=MOST_EVENTS)
    before = [event for event in events if event.at < until]
    known = await storage.procs.pods()
    gauges = [each for each in own if each.minute == begin]
    pods = pods_then(until, known, events, gauges)
    reaches = len(events) < MOST_EVENTS or events[-1].at < begin
    pauses = await _pauses(storage, until)
    queues = [
        _queue(state.name, _step_at(steps, at), pods if reaches else None, pauses)
        for state, steps in zip(states, series, strict=True)
    ]
    by_name = dict(zip((state.name for state in states), series, strict=True))
    snapshot = Snapshot(
        now=until,
        queues=_seen(until, states, queues, _Fleet(pods, before), by_name),
        errors=errors_seen(await read_groups(storage, until - MINUTE), until - MINUTE),
        pods=_pods_seen(until, pods, before, own),
        store=StoreSeen(name=storage.name),
    )
    return Then(
        at=begin,
        length=length,
        queues=tuple(queues),
        pods=tuple(pods),
        problems=judging.problems(snapshot),
        unknown=tuple(_unknown(reaches=reaches, length=length, is_empty=step is None)),
    )


def _step_at(steps: Sequence[SeriesStep], at: datetime) -> SeriesStep | None:
    """Return the step that covers a minute."""
    return next((each for each in steps if each.at <= at < each.at + each.length), None)


def _length_of(minutes: Sequence[PodMinute], at: datetime) -> timedelta:
    covering = (each.length for each in minutes if each.minute <= at < each.minute + each.length)
    return next(covering, MINUTE)


def _queue(
    name: str,
    step: SeriesStep | None,
    pods: Sequence[PodThen] | None,
    pauses: Mapping[str, Action],
) -> QueueThen:
    pause = pauses.get(name)
    return QueueThen(
        name=name,
        depth=step.depth if step else None,
        step=step,
        pods=None if pods is None else sum(name in pod.queues for pod in pods),
        paused_since=pause.at if pause else None,
        paused_by=pause.actor if pause else "",
    )


async def _pauses(storage: Storage, until: datetime) -> dict[str, Action]:
    """Return the queues that operators had paused and not resumed, with the actions."""
    last: dict[str, Action] = {}
    below = None
    for _ in range(_PAGES):
        found = await storage.jobs.actions(below=below, limit=_ACTIONS)
        for record in found:
            action = record.action
            if action.verb in _PAUSING and action.at is not None and action.at < until:
                last.setdefault(action.target, action)
        if len(found) < _ACTIONS:
            break
        below = found[-1].action.id
    return {name: action for name, action in last.items() if action.verb == "pause_queue"}


_PAUSING = ("pause_queue", "resume_queue")


def _seen(
    until: datetime,
    states: Sequence[QueueState],
    queues: Sequence[QueueThen],
    fleet: _Fleet,
    series: Mapping[str, Sequence[SeriesStep]],
) -> tuple[QueueSeen, ...]:
    """Return the queues as the rules look at them, those with a known depth."""
    then = {queue.name: queue for queue in queues if queue.depth is not None}
    past = [_state(state, then[state.name]) for state in states if state.name in then]
    counts = {name: _counts(queue.depth) for name, queue in then.items() if queue.depth}
    found = queues_seen(until, past, counts, states_of(fleet.pods, until), fleet.events)
    lately = Lately(minutes=series, whole=(), usual={})
    aims = {state.name: state.settings.aim for state in states}
    return tuple(
        with_series(_with_slots(seen, then[seen.name]), until, aims.get(seen.name), lately)
        for seen in found
    )


def _with_slots(seen: QueueSeen, queue: QueueThen) -> QueueSeen:
    """Return the queue with the slots that were granted, and served where pods are not known."""
    assert queue.depth is not None
    seen = structs.replace(seen, granted=queue.depth.granted, paused_by=queue.paused_by)
    if queue.depth.granted:
        seen = structs.replace(seen, ungranted_since=None)
    if queue.pods is None or (queue.depth.granted and not queue.pods):
        return structs.replace(seen, pods=1, unserved_since=None, ungranted_since=None)
    return seen


def _state(state: QueueState, queue: QueueThen) -> QueueState:
    assert queue.depth is not None
    return structs.replace(
        state,
        settings=structs.replace(state.settings, max_workers=queue.depth.max_workers),
        paused=queue.paused_since is not None,
        paused_since=queue.paused_since,
        cooldown_remaining=_ZERO,
    )


def _counts(depth: Depth) -> QueueCounts:
    return QueueCounts(
        by_status={},
        due=depth.due,
        held=0,
        running=depth.running,
        oldest_due_for=depth.oldest_due_for,
    )


def _pods_seen(
    until: datetime,
    pods: Sequence[PodThen],
    events: Sequence[TimelineEvent],
    minutes: Sequence[PodMinute],
) -> tuple[PodSeen, ...]:
    states = states_of(pods, until)
    polling = odd_since(until, states, minutes, hears_nothing)
    skewed = odd_since(until, states, minutes, is_skewed)
    return pods_seen(until, states, events, polling, skewed)


def _unknown(*, reaches: bool, length: timedelta, is_empty: bool) -> list[str]:
    said = [NOT_KEPT]
    if is_empty:
        said.insert(0, "No numbers are kept of that minute: no pod led then, or they are too old.")
    if length == HOUR:
        said.append("The minutes of that hour are folded. Numbers are the greatest of the hour.")
    if not reaches:
        said.append("Events do not reach back so far: pods that had ended by now may be missing.")
    said.append("Queues are those of today, and pauses those of operators: code leaves no record.")
    return said
