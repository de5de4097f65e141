"""Why a job waits at a key of a limit, and when a permit of the key may come free."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from forge_jobs.model.jobs import Job
from forge_jobs.model.metrics import Histogram
from forge_jobs.model.queues import MOST_KEY_JOBS, LimitState
from forge_jobs.policy import remedies
from forge_jobs.policy.explanations import (
    Explanation,
    KeySeen,
    KeyTurn,
    Reason,
    Situation,
    at,
    count,
    name_of,
)
from forge_jobs.policy.judgement.long_runs import long_from, usual_of
from forge_jobs.policy.percentiles import percentile

_NAMED = 3
_MOST_HOLDERS = 10


def _bound(job: Job, around: Situation) -> LimitState | None:
    known = (each for each in around.limits if (each.queue, each.name) == _limit_of(job))
    return next(known, None)


def has_room(job: Job, around: Situation) -> bool:
    """Return whether the key of a job on hold has room, and takes no turns."""
    limit = _bound(job, around)
    return limit is not None and limit.share is None and not _is_full(around.key, limit)


def _is_full(key: KeySeen, limit: LimitState) -> bool:
    """Return whether no job of a key may start. No more holders are known than are counted."""
    return key.running >= min(limit.at_most, MOST_KEY_JOBS)


def limited(job: Job, around: Situation) -> Explanation:
    """The reason of a job that is on hold for a limit by key."""
    key = around.key
    limit = _bound(job, around)
    named = f" of key {job.limit_key!r}" if job.limit_key else ""
    opens_at = opens_by = None
    help = ""
    if limit is not None and limit.at_most < 1:
        most = f"its number was edited by hand ({limit.unreadable}); set the limit anew"
        help = remedies.set_limit(limit.queue, limit.name, 1)
    elif limit is None:
        most = "the limit is gone, and it is ready with the next claim"
    elif limit.share is not None and not _is_full(key, limit):
        most = (
            f"its key{named.removeprefix(' of key')} has its share of {limit.share} while others "
        )
        most += f"wait{_held_by(key)}{_before(key)}; starts when the turn of the key comes"
        most += _turn(key.turn)
    elif not _is_full(key, limit):
        most = (
            f"{count(limit.at_most, 'job')}{named} may run at once in the queue, and {key.running}"
        )
        most += f" {'does' if key.running == 1 else 'do'}{_held_by(key)}{_before(key)}"
        most += "; starts in its turn, with a claim to come"
    else:
        opens_at, opens_by = opens(key, limit, around.now)
        beyond = key.running - limit.at_most
        more = " or more" if key.running >= MOST_KEY_JOBS else ""
        do = f"{key.running}{more} do" if beyond else "as many do"
        end = f"{beyond + 1}{more} of them have ended" if beyond > 0 else "one of them ends"
        most = f"{count(limit.at_most, 'job')}{named} may run at once in the queue, and {do}"
        most += f"{_held_by(key)}{_before(key)}; starts in its turn when {end}"
        most += _opening(opens_at, opens_by, around.now)
    long = _long(key, around.now)
    most += _held_long(long, key)
    return Explanation(
        reason=Reason.LIMITED,
        text=f"waits for the limit {job.limit_name!r}: {most}",
        blocked_by=tuple(each.id for each in key.holders),
        held_by=tuple(_holder(each, around) for each in key.holders[:_MOST_HOLDERS]),
        ahead=key.place.ahead if key.place else None,
        opens_at=opens_at,
        opens_by=opens_by,
        help=remedies.show_key(*_limit_of(job), job.limit_key) if long else help,
    )


def _long(key: KeySeen, now: datetime) -> list[Job]:
    """Return the holders whose runs take far longer than runs of their kind."""
    usual = {kind: usual_of(runs) for kind, runs in key.runs.items()}
    return [
        job
        for job in key.holders
        if job.started_at is not None
        and (length := usual.get(job.kind)) is not None
        and now - job.started_at >= long_from(length)
    ]


def _held_long(long: Sequence[Job], key: KeySeen) -> str:
    if not long:
        return ""
    named = ", ".join(f"job {each.id}" for each in long[:_NAMED])
    more = f" and {len(long) - _NAMED} more" if len(long) > _NAMED else ""
    verb = "is" if len(long) == 1 else "are"
    return (
        f"; {len(long)} of {count(key.running, 'permit')} {verb} held for far longer than such "
        f"runs take: by {named}{more}"
    )


def opens(
    key: KeySeen, limit: LimitState, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return when a permit of a full key comes free: an estimate, and the time by which one is.

    Where a limit was lowered, as many jobs have to end as run beyond the new number, and one more.
    """
    beyond = max(key.running - limit.at_most, 0)
    medians = {kind: _median(runs) for kind, runs in key.runs.items()}
    usual = [
        # A job that a pod holds ahead has its run before it.
        (job.started_at or now) + median
        for job in key.holders
        if (median := medians.get(job.kind)) is not None
    ]
    bounds = [
        job.started_at + job.timeout
        for job in key.holders
        if job.started_at is not None and job.timeout is not None
    ]
    return _in_order(usual, beyond), _in_order(bounds, beyond)


def _in_order(times: Iterable[datetime], place: int) -> datetime | None:
    return next(iter(sorted(times)[place : place + 1]), None)


def _median(runs: Histogram) -> timedelta | None:
    seconds = percentile(runs, 0.5)
    return None if seconds is None else timedelta(seconds=seconds)


def _opening(opens_at: datetime | None, opens_by: datetime | None, now: datetime) -> str:
    told = ""
    if opens_at is not None:
        when = f"at about {at(opens_at)}" if opens_at > now else "at any moment"
        told = f", {when} by the usual length of runs (an estimate)"
    if opens_by is not None:
        told += f", by {at(opens_by)} at the latest: the timeout of a holder"
    return told


def _turn(turn: KeyTurn | None) -> str:
    if turn is None:
        return ""
    fewer = f"{count(turn.fewer, 'key')} with fewer jobs in progress"
    come = "comes" if turn.fewer == 1 else "come"
    same = f"of {count(turn.same, 'other')} with as many those whose turn is longer ago"
    return f": {fewer} {come} first, and {same}"


def _before(key: KeySeen) -> str:
    if key.place is None:
        return ""
    return f"; {key.place} of the key before it"


def _holder(job: Job, around: Situation) -> str:
    names = {pod.pod.host_id: name_of(pod) for pod in around.pods}
    since = job.started_at or job.claimed_at
    told = f"job {job.id} ({job.kind!r}) on pod {names.get(job.host_id, job.host_id)}"
    return f"{told} since {at(since)}" if since else told


def _held_by(key: KeySeen) -> str:
    """Name the first jobs of a key, with the pods that have them."""
    if not key.holders:
        return ""
    named = [
        f"{each.id} on pod {each.host_id}"
        + (f" since {at(each.claimed_at)}" if each.claimed_at else "")
        for each in key.holders[:_NAMED]
    ]
    left = max(key.running, len(key.holders)) - _NAMED
    more = f" and {left} more" if left > 0 else ""
    return f" ({', '.join(named)}{more})"


def _limit_of(job: Job) -> tuple[str, str]:
    return job.queue, job.limit_name
