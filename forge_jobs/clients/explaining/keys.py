"""Reads the key of a limit at which a job waits, and says when the job starts."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import structs

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Job
from forge_jobs.model.metrics import HOUR, Histogram
from forge_jobs.model.queues import MOST_KEY_JOBS, LimitState, LinePlace
from forge_jobs.model.series import SeriesAsk
from forge_jobs.policy.explanations import Explanation, KeySeen, KeyTurn, count
from forge_jobs.policy.judgement.forecast import forecast
from forge_jobs.policy.judgement.load import Load
from forge_jobs.policy.percentiles import add, moments
from forge_jobs.storage.protocols import Storage

MEASURED = timedelta(days=1)
"""How far back runs are measured. Jobs of a limit may be few and long."""

_HOLDERS, _KINDS, _KEYS = 20, 5, 500
"""Holders that are read, kinds whose runs are, and keys among which one has its turn."""


async def read_key(
    storage: Storage, job: Job, limits: Sequence[LimitState], now: datetime
) -> KeySeen:
    """Read the key at which a job waits: its holders, the place of the job, how long runs take.

    Three calls, and one more for a limit with a share.

    :param limits: all of them
    """
    key = job.queue, job.limit_name, job.limit_key
    ids = await storage.config.limit_holders(*key, limit=MOST_KEY_JOBS)
    first = [JobId(each) for each in ids.running[:_HOLDERS]]
    found = await storage.jobs.get(first)
    holders = tuple(found[each] for each in first if each in found)
    kinds = sorted({job.kind, *(each.kind for each in holders)})[:_KINDS]
    shares = {(each.queue, each.name): each.share for each in limits}
    running, turn = len(ids.running), None
    if shares.get((job.queue, job.limit_name)) is not None:
        turn = await _read_turn(storage, job, running)
    return KeySeen(
        holders=holders,
        running=running,
        place=_place(job.id, ids.waiting),
        runs=await _read_runs(storage, job.queue, kinds, now),
        turn=turn,
    )


def _place(job_id: JobId, waiting: Sequence[str]) -> LinePlace | None:
    if job_id in waiting:
        return LinePlace(ahead=waiting.index(job_id))
    # With fewer on hold than are read the job has left the key meanwhile.
    is_more = len(waiting) >= MOST_KEY_JOBS
    return LinePlace(ahead=MOST_KEY_JOBS, is_more=True) if is_more else None


async def _read_turn(storage: Storage, job: Job, running: int) -> KeyTurn:
    keys = await storage.config.limit_keys(job.queue, job.limit_name, limit=_KEYS)
    others = [each.running for each in keys if each.key != job.limit_key]
    return KeyTurn(fewer=sum(each < running for each in others), same=others.count(running))


async def _read_runs(
    storage: Storage, queue: str, kinds: Sequence[str], now: datetime
) -> Mapping[str, Histogram]:
    asked = [
        SeriesAsk(since=now - MEASURED, until=now + HOUR, step=HOUR, queue=queue, kind=kind)
        for kind in kinds
    ]
    found = await storage.jobs.many_series(asked)
    return {
        kind: _together([each.processing for each in steps])
        for kind, steps in zip(kinds, found, strict=True)
    }


def _together(runs: Sequence[Histogram]) -> Histogram:
    whole = Histogram({})
    for each in runs:
        whole = add(whole, each)
    return whole


def with_start(
    told: Explanation, key: KeySeen, limit: LimitState | None, now: datetime
) -> Explanation:
    """Add when a job starts that waits at a full key. As it is where no run ended in the last day,
    and for a key that waits for its turn.

    :param limit: None where the limit is gone
    """
    if limit is None or key.place is None or not 0 < limit.at_most <= key.running:
        return told
    runs = _together([*key.runs.values()])
    load = Load(
        over=MEASURED,
        arrived=0,
        runs=runs,
        waiting=key.place.ahead,
        running=key.running,
        max_workers=limit.at_most,
    )
    found, measured = forecast(key.place, load, slots=limit.at_most, now=now), moments(runs)
    if found is None or measured is None:
        return told
    return structs.replace(
        told,
        text=f"{told.text}; {found.text(now)}",
        starts_after=found.earliest,
        starts_before=found.latest,
        rests_on=f"{key.place} before it at the key, {limit.at_most} at once, the last day: "
        f"{measured.mean:.3g} s a run, {count(measured.samples, 'run')}",
    )
