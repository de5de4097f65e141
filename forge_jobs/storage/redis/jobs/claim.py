"""Claims: made, ended and kept. Each call is one step per queue."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from operator import itemgetter

import msgspec

from forge_jobs.clock import SystemClock, duration_us, from_us
from forge_jobs.errors import StorageError, Unavailable
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import Cause, Claim, ClaimedJob, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import (
    Demand,
    Exchange,
    Finalization,
    Revival,
    StaleClaim,
    StaleClaims,
    Transition,
)
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.job_rows import (
    StoredClaim,
    claimed_job,
    decode_doc,
    doc_of,
    error_json,
)
from forge_jobs.storage.redis.base.queues import in_all_queues, unknown_kinds
from forge_jobs.storage.redis.base.requests import DemandFields, EndFields
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.salvage import UNREADABLE, log_set_aside

CLAIMS_AT_ONCE = 200
"""How many claims one step makes or ends: at 10 to 20 us each, all other calls wait as long."""

_PUT_BACK_AT_ONCE = 200
"""How many claims one step releases or revives: each goes back into several lists."""

_STALE_AT_ONCE = 400
"""How many silent claims one step reads, of all queues together."""

_HOLD_AT_ONCE = 1000
"""The most jobs of unknown kinds that one claim puts aside, so that every step is short."""

_EXPIRED_AT_ONCE, _EXPIRED_STEPS = 250, 4
"""The most expired jobs that one claim takes away before it goes on: each step is short."""

_STUCK, _MANY, _FULL, _TURNS = "stuck", "many", "full", "turns"
_LEFT = [_MANY, _TURNS, *[_FULL] * 4]
"""Why a claim goes on, behind some 250 jobs that wait for their limit at most four times."""

_RELEASED = Transition(status=JobStatus.PENDING, cause=Cause.RELEASED, delay=None, hand_back=True)

_elapsed = SystemClock().elapsed

_Pairs = Sequence[tuple[Claim, Transition]]
_NO_ENDS = ((), (), "")


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``exchange.lua``. Times are microseconds."""

    settled: list[bool]
    claims: list[StoredClaim]
    next_in: int
    strange: list[str]
    kinds_version: int
    unreadable: list[tuple[str, str]]
    left: str


class _Stale(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``stale.lua`` about one claim."""

    beat: int
    id: str
    token: int
    kind: str
    host: str
    attempt: int
    crashes: int
    started: bool
    cancel: bool
    doc: str


class _StaleOfQueue(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``stale.lua`` about a queue."""

    now: int
    claims: list[_Stale]
    is_cut: bool


async def exchange(
    db: Database,
    queue: str,
    finalizations: Sequence[Finalization],
    demand: Demand,
    lease: PodLease,
) -> Exchange:
    """See ``JobStore.exchange``."""
    pairs = [(one.claim, one.transition) for one in finalizations]
    base, asked_at, left = db.keys.queue(queue), _elapsed(), [*_LEFT]

    def asked(part: Demand) -> dict[str, object]:
        fields = DemandFields(
            host=lease.host_id,
            epoch=lease.epoch,
            workers=part.worker_ids[: part.limit],
            limit=part.limit,
            kinds=list(part.kinds),
            room=part.max_bytes,
            passed=db.known_elsewhere.of(queue),
            goes_on=part is not first,
        )
        return {base: fields}

    part = first = _part_of(demand, ())
    settled, answers = await _step(db, "finalize", pairs, claims=asked(part))
    answer = answers[base]
    stored, script = answer.claims, "exchange"
    # Claims of which nothing is to be lost, if a further step fails.
    with contextlib.suppress(StorageError):
        while (answer.left in left or len(answer.claims) == part.limit) and (
            part := _part_of(demand, stored)
        ).limit:
            if answer.left == _FULL:
                left.pop()
            script = "exchange_in_turn" if answer.left == _TURNS else script
            _, answers = await _step(db, "finalize", (), claims=asked(part), script=script)
            answer = answers[base]
            stored += answer.claims
    db.waits.claimed(queue, asked_at)
    if answer.strange:
        await _hold_unknown(db, queue, answer)
    if answer.left == _STUCK:
        await _take_expired_away(db, queue)
    for job_id, reason in answer.unreadable:
        log_set_aside(queue, job_id, reason)
    claimed, unreadable = _claimed_jobs(queue, lease.host_id, stored)
    if unreadable:
        await _give_back(db, queue, unreadable)
    next_in = 0 if unreadable else answer.next_in  # What stands behind these is due too.
    return Exchange(
        tuple(settled),
        tuple(claimed),
        None if next_in < 0 else timedelta(microseconds=next_in),
        goes_on=answer.left == _FULL,
    )


def _part_of(demand: Demand, claims: Sequence[StoredClaim]) -> Demand:
    """Return the claims of one step after others. The first may bring one job of any size."""
    room = demand.max_bytes - sum(len(one.payload) for one in claims)
    limit = min(demand.limit - len(claims), CLAIMS_AT_ONCE) if room > 0 else 0
    ids = demand.worker_ids[len(claims) :]
    return msgspec.structs.replace(demand, worker_ids=ids, limit=limit, max_bytes=room)


def _claimed_jobs(
    queue: str, host_id: HostId, stored: Iterable[StoredClaim]
) -> tuple[list[ClaimedJob], list[tuple[StoredClaim, str]]]:
    """The claims, and those of jobs that cannot be read with the reason."""
    claimed: list[ClaimedJob] = []
    unreadable: list[tuple[StoredClaim, str]] = []
    for one in stored:
        try:
            claimed.append(claimed_job(queue, host_id, one))
        except UNREADABLE as error:
            unreadable.append((one, " ".join(str(error).split())))
    return claimed, unreadable


async def _give_back(
    db: Database, queue: str, unreadable: Iterable[tuple[StoredClaim, str]]
) -> None:
    """Put claimed jobs on hold that cannot be read.

    The caller has claims already, which must not be lost over this. A claim that stays is named by
    the pod's next beat as one that the pod does not know, and handed back.
    """
    items = []
    for stored, reason in unreadable:
        log_set_aside(queue, stored.id, reason)
        items.append(
            item_of("give_back", "item", id=stored.id, token=stored.token, kind=stored.kind)
        )
    with contextlib.suppress(StorageError):
        await db.run_one("give_back", db.keys.queue(queue), items, bool)


async def finalize(db: Database, finalizations: Sequence[Finalization]) -> list[bool]:
    """See ``JobStore.finalize``."""
    pairs = [(one.claim, one.transition) for one in finalizations]
    return (await _step(db, "finalize", pairs))[0]


async def release(db: Database, claims: Sequence[Claim]) -> list[bool]:
    """See ``JobStore.release``."""
    return (await _step(db, "release", [(claim, _RELEASED) for claim in claims]))[0]


async def revive(db: Database, revivals: Sequence[Revival], stale_after: timedelta) -> list[bool]:
    """See ``JobStore.revive``."""
    pairs = [(one.claim, one.transition) for one in revivals]
    return (await _step(db, "revive", pairs, stale_after=duration_us(stale_after)))[0]


async def record_start(db: Database, claims: Sequence[Claim]) -> list[bool]:
    """See ``JobStore.record_start``."""
    places = by_queue(claims)
    requests = {
        db.keys.queue(queue): [
            item_of("record_start", "one", id=one.job_id, token=one.token, host=one.host_id)
            for one in (claims[index] for index in indexes)
        ]
        for queue, indexes in places.items()
    }
    answers = await db.run("record_start", requests, list[bool])
    return _in_order(places, {queue: answers[db.keys.queue(queue)] for queue in places})


async def stale_claims(db: Database, stale_after: timedelta, limit: int) -> StaleClaims:
    """See ``JobStore.stale_claims``."""
    age = duration_us(stale_after)
    found = await in_all_queues(db, "stale", _stale(age, limit, 0), _StaleOfQueue)
    with contextlib.suppress(Unavailable):
        await _read_on(db, found, age, limit)
    every = [(one.beat, one.id, queue, one) for queue, many in found.items() for one in many.claims]
    stale = (
        StaleClaim(
            claim=Claim(queue, JobId(one.id), one.token, HostId(one.host)),
            kind=one.kind,
            attempt=one.attempt,
            max_attempts=_max_attempts(one.doc),
            crashes=one.crashes,
            started=one.started,
            cancel_requested=one.cancel,
        )
        for _, _, queue, one in sorted(every, key=itemgetter(0, 1))[:limit]
    )
    # In a cluster any two queues may lie on different servers, and clocks of servers differ.
    times = {queue if db.is_cluster else "": from_us(many.now) for queue, many in found.items()}
    return StaleClaims(stale, read_at=times)


async def _read_on(db: Database, found: dict[str, _StaleOfQueue], age: int, limit: int) -> None:
    """Add what did not fit into the first step, one queue after another.

    A claim that has ended meanwhile moves others forward, of which this pass may miss some.
    """
    for queue, first in found.items():
        is_cut = first.is_cut
        while is_cut:
            start = len(first.claims)
            request = _stale(age, limit - start, start)
            more = await db.run_one("stale", db.keys.queue(queue), request, _StaleOfQueue)
            first.claims.extend(more.claims)
            is_cut = more.is_cut


def _stale(age: int, limit: int, start: int) -> tuple[object, ...]:
    return request_of(
        "stale", stale_after=age, limit=limit, **{"from": start}, at_once=_STALE_AT_ONCE
    )


def _max_attempts(doc: str) -> int | None:
    try:
        return decode_doc(doc).max_attempts
    except UNREADABLE:
        return None


def by_queue(claims: Iterable[Claim]) -> dict[str, list[int]]:
    """The positions of the claims of each queue."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for index, claim in enumerate(claims):
        places[claim.queue].append(index)
    return places


async def _step(
    db: Database,
    mode: str,
    pairs: _Pairs,
    *,
    stale_after: int = 0,
    claims: Mapping[str, object] | None = None,
    script: str = "exchange",
) -> tuple[list[bool], dict[str, _Answer]]:
    """End claims and make others. Return per pair whether the claim is settled, and all answers.

    :param claims: per base a demand
    """
    demands, at_once = claims or {}, CLAIMS_AT_ONCE if mode == "finalize" else _PUT_BACK_AT_ONCE
    settled_before: list[bool] = []
    while len(pairs) > at_once:
        settled_before += (await _step(db, mode, pairs[:at_once], stale_after=stale_after))[0]
        pairs = pairs[at_once:]
    places = by_queue(claim for claim, _ in pairs)
    bases = {queue: db.keys.queue(queue) for queue in places}
    ends = {
        bases[queue]: _ends([pairs[index] for index in indexes])
        for queue, indexes in places.items()
    }
    requests = {
        base: request_of(
            "exchange",
            mode=mode,
            outcomes=outcomes,
            items=items,
            stale_after=stale_after,
            demand=demands.get(base, False),
            owner=owner,
        )
        for base, (outcomes, items, owner) in (dict.fromkeys(demands, _NO_ENDS) | ends).items()
    }
    answers = await db.run(script, requests, _Answer)
    settled = {queue: answers[base].settled for queue, base in bases.items()}
    return settled_before + _in_order(places, settled), answers


def _ends(pairs: _Pairs) -> tuple[object, object, str]:
    """Outcomes, each once, claims with the number of theirs, from 1, and the pod of all claims that
    name none."""
    owner = pairs[0][0].host_id
    numbers: dict[Transition, int] = {}
    items = [
        EndFields(
            claim.job_id,
            claim.token,
            numbers.setdefault(transition, len(numbers) + 1),
            claim.host_id != owner and claim.host_id,
        )
        for claim, transition in pairs
    ]
    return [_outcome(transition) for transition in numbers], items, owner


def _outcome(transition: Transition) -> tuple[object, ...]:
    """Return the transition as ``outcomes.lua`` takes it."""
    cooldown, error, again = transition.cooldown, transition.error, transition.again
    return item_of(
        "exchange",
        "parts",
        status=transition.status,
        cause=transition.cause,
        delay=False if transition.delay is None else duration_us(transition.delay),
        handed_back=int(transition.hand_back),
        snoozes=int(transition.count_snooze),
        crashes=int(transition.count_crash),
        error=False if error is None else error_json(error),
        result=False if transition.result is None else transition.result,
        length=False if cooldown is None else duration_us(cooldown.length),
        level=0 if cooldown is None else cooldown.level,
        limit=transition.rate_limit or False,
        again=False if again is None else (again.payload, doc_of(again)),
        group=(error is not None and error.error_group) or False,
        hold=transition.hold or False,
    )


def _in_order(
    places: Mapping[str, Sequence[int]], answers: Mapping[str, Sequence[bool]]
) -> list[bool]:
    ordered = [False] * sum(len(indexes) for indexes in places.values())
    for queue, indexes in places.items():
        for index, answer in zip(indexes, answers[queue], strict=True):
            ordered[index] = answer
    return ordered


async def _hold_unknown(db: Database, queue: str, answer: _Answer) -> None:
    """Put jobs aside whose kind no live pod knows, unless one has registered meanwhile.

    The caller has an answer already, which must not be lost over this: the next claim that meets
    such jobs tries again.
    """
    with contextlib.suppress(Unavailable):
        unknown = await unknown_kinds(db, answer.strange)
        db.known_elsewhere.note(queue, set(answer.strange) - set(unknown))
        if unknown:
            request = request_of(
                "hold", version=answer.kinds_version, kinds=unknown, most=_HOLD_AT_ONCE
            )
            await db.run_one("hold", db.keys.queue(queue), request, bool)


async def _take_expired_away(db: Database, queue: str) -> None:
    """Cancel expired jobs that stand before others. The sweep does the rest."""
    with contextlib.suppress(Unavailable):
        for _ in range(_EXPIRED_STEPS):
            await db.run_one("expire", db.keys.queue(queue), _EXPIRED_AT_ONCE, int)
