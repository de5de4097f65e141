"""Flow and depth of late, as a snapshot shows them: growth, objectives, usual lengths of runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, structs

from forge_jobs.model.metrics import HOUR, MINUTE
from forge_jobs.model.objectives import Objective
from forge_jobs.model.queues import QueueState
from forge_jobs.model.series import SeriesAsk, SeriesStep
from forge_jobs.policy.cooldowns import begun_by_counts
from forge_jobs.policy.judgement.growth import growth
from forge_jobs.policy.judgement.long_runs import SHORTEST, usual_of
from forge_jobs.policy.judgement.objectives import (
    Delays,
    burning_since,
    overdue,
    standing,
)
from forge_jobs.policy.judgement.problems.snapshot import FullKeySeen, QueueSeen, RunSeen
from forge_jobs.policy.percentiles import add
from forge_jobs.storage.protocols import Storage

_LATELY, _BURNING, _WHOLE = timedelta(hours=1), timedelta(hours=2), timedelta(hours=1)
"""How far back series are read: of each queue, of one with an objective, of the whole store."""

_USUAL = timedelta(days=1)
_MOST_KINDS = 20


class Lately(Struct, frozen=True, kw_only=True):
    """The last minutes, as the series tell them.

    :param minutes: queue -> minutes, oldest first
    :param whole: minutes of the whole store
    :param usual: queue and kind -> 99 of 100 runs end within this. Kinds with few runs are left out
    """

    minutes: Mapping[str, Sequence[SeriesStep]]
    whole: Sequence[SeriesStep]
    usual: Mapping[tuple[str, str], timedelta]


async def read_lately(
    storage: Storage,
    now: datetime,
    states: Sequence[QueueState],
    runs: Sequence[RunSeen],
    keys: Sequence[FullKeySeen] = (),
) -> Lately:
    """Read what the series say, in one call.

    :raises Unavailable: the store is silent
    """
    until = now + MINUTE
    asked = [SeriesAsk(since=now - _WHOLE, until=until)]
    for state in states:
        back = _BURNING if state.settings.objective else _LATELY
        if state.cooldown_remaining:
            # As far as to the run that was throttled.
            back = max(back, min(state.settings.cooldown.cap + MINUTE, _USUAL))
        asked.append(SeriesAsk(since=now - back, until=until, queue=state.name))
    long = [run for run in runs if now - run.started_at >= SHORTEST]
    still = [key for key in keys if now - key.since >= SHORTEST]
    wanted = {(run.queue, run.kind) for run in long}
    wanted |= {(key.queue, kind) for key in still for kind in key.kinds}
    kinds = sorted(wanted)[:_MOST_KINDS]
    asked += [
        SeriesAsk(since=now - _USUAL, until=now + HOUR, step=HOUR, queue=queue, kind=kind)
        for queue, kind in kinds
    ]
    whole, *found = await storage.jobs.many_series(asked)
    of_kinds = dict(zip(kinds, found[len(states) :], strict=True))
    usual = {of: _usual(hours) for of, hours in of_kinds.items()}
    return Lately(
        minutes={state.name: each for state, each in zip(states, found, strict=False)},
        whole=whole,
        usual={of: length for of, length in usual.items() if length is not None},
    )


def _usual(hours: Sequence[SeriesStep]) -> timedelta | None:
    if not hours:
        return None
    runs = hours[0].processing
    for each in hours[1:]:
        runs = add(runs, each.processing)
    return usual_of(runs)


def with_usual(runs: Sequence[RunSeen], lately: Lately) -> tuple[RunSeen, ...]:
    """Return the runs with what is usual for their kinds."""
    return tuple(
        structs.replace(run, usual=lately.usual.get((run.queue, run.kind))) for run in runs
    )


def keys_with_usual(keys: Sequence[FullKeySeen], lately: Lately) -> tuple[FullKeySeen, ...]:
    """Return the full keys with how long runs of their kinds take."""
    return tuple(structs.replace(key, usual=_longest(key, lately)) for key in keys)


def _longest(key: FullKeySeen, lately: Lately) -> timedelta | None:
    known = [lately.usual.get((key.queue, kind)) for kind in key.kinds]
    lengths = [each for each in known if each is not None]
    return max(lengths) if lengths and len(lengths) == len(known) else None


def with_series(
    queue: QueueSeen, now: datetime, aim: Objective | None, lately: Lately
) -> QueueSeen:
    """Return the queue with how its backlog grows, since when the queue cools down, and how it
    stands to its objective.

    The standing rests on the last two hours: a look does not read a month of each queue.
    """
    minutes = lately.minutes.get(queue.name, ())
    queue = structs.replace(queue, growth=growth(minutes, now))
    if queue.cooling_since is not None:
        began = begun_by_counts(queue.cooling_since, minutes)
        queue = structs.replace(queue, cooling_since=began)
    if aim is None:
        return queue
    waits = None if queue.oldest_due_at is None else now - queue.oldest_due_at
    late = overdue(queue.due, waits, aim.within)
    delays = delays_of(minutes)
    before = {
        each.at + each.length: overdue(each.depth.due, each.depth.oldest_due_for, aim.within)
        for each in minutes
        if each.depth is not None
    }
    return structs.replace(
        queue,
        standing=standing(aim, delays, now, overdue=late),
        burning_since=burning_since(aim, delays, now, overdue=late, overdue_before=before),
    )


def delays_of(steps: Sequence[SeriesStep]) -> list[Delays]:
    """Return the delays of the steps in which anything started."""
    return [
        Delays(start=each.at, delays=each.delay, length=each.length)
        for each in steps
        if each.delay.counts
    ]
