"""The heartbeat of a pod: the pod's own lease first, then the part of each queue."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta

import msgspec

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.ids import HostId, JobId
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import (
    Beat,
    ClaimState,
    HeldClaim,
    Pod,
    PodLease,
    QueueBeat,
    Slots,
)
from forge_jobs.storage.redis.base.answers import Decoder
from forge_jobs.storage.redis.base.database import BASES_AT_ONCE, Database
from forge_jobs.storage.redis.base.queues import decode_pod
from forge_jobs.storage.redis.base.scripts import item_of, request_of
from forge_jobs.storage.redis.config.queues import QueueRecord
from forge_jobs.storage.redis.fleet.registering import free_held_jobs
from forge_jobs.storage.redis.jobs.claim import by_queue
from forge_jobs.storage.redis.jobs.filters import portions
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.salvage import UNREADABLE

_BEATS_AT_ONCE = 200
"""For how many claims one step beats."""

_STATES = {
    "held": ClaimState.HELD,
    "cancel": ClaimState.CANCEL_REQUESTED,
    "lost": ClaimState.LOST,
}


class _Declared(msgspec.Struct, frozen=True, array_like=True):
    """The report of a beat on a queue that the pod declares.

    :param next_in: microseconds, -1 for none
    """

    record: QueueRecord
    target: int
    grant: int
    next_in: int

    def told(self, queue: str) -> QueueBeat:
        next_in = None if self.next_in < 0 else timedelta(microseconds=self.next_in)
        return QueueBeat(
            slots=Slots(self.target, self.grant),
            state=self.record.state(queue),
            next_due_in=next_in,
        )


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``beat.lua`` about a queue.

    :param declared: one, or none
    """

    lease_held: bool
    states: list[str]
    unlisted: list[tuple[str, int]]
    handovers: bool
    letters: bool
    declared: list[_Declared]


_decode = Decoder(_Answer).decode
_decode_own = Decoder(tuple[bool, str, int, bool]).decode


def _declared_in(doc: str) -> Pod | None:
    """Return the pod as the pod describes itself. None where that cannot be read."""
    try:
        return decode_pod(doc)
    except UNREADABLE:
        return None


@dataclass
class _Heard:
    """The answers of the parts of a store to one beat.

    :ivar now: the time of any of them, in microseconds
    :ivar silent: queues that said nothing
    :ivar admitted: queues in which the pod's lease had run out and the pod has a new one
    :ivar is_asked: a request to the pod waits
    """

    lease_held: bool
    answers: dict[str, _Answer]
    now: int
    silent: frozenset[str] = frozenset()
    admitted: frozenset[str] = frozenset()
    is_asked: bool = False


class Beats:
    """Sends beats. On one server each is one step, once the queues that the pod declares are known.

    With more queues than a step takes the pod's own lease is renewed a step before theirs. In a
    cluster each part is a separate step, and the lease counts queue by queue: see ``_in_parts``.
    The same holds on one server once a queue was met there that cannot be read.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._declared: tuple[PodLease, str, tuple[str, ...]] | None = None
        """A lease, what its pod has said of itself, and the queues that the pod declares."""
        self._left: dict[HostId, set[str]] = {}
        """By pod the queues that the pod has left, and that may hold claims of the pod still."""
        self._goes_in_parts = db.is_cluster

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        """See ``JobStore.heartbeat``."""
        places = by_queue(one.claim for one in claims)
        earlier = await self._earlier(lease, places, claims)
        left = self._left.setdefault(lease.host_id, set())
        beat = _Asked(lease, places, claims, duration_us(lease_for), earlier, left)
        heard = await (self._in_parts(beat) if self._goes_in_parts else self._at_once(beat))
        declared = self._known(lease)
        self._forget_left(lease, heard)
        return Beat(
            lease_held=heard.lease_held,
            claims={
                claims[index].claim: _STATES[state]
                for queue, indexes in beat.places.items()
                if queue in heard.answers
                for index, state in zip(
                    indexes, [*earlier[queue], *heard.answers[queue].states], strict=True
                )
            },
            unknown=tuple(
                Claim(queue, JobId(job_id), token, lease.host_id)
                for queue, answer in heard.answers.items()
                for job_id, token in answer.unlisted
            ),
            queues={
                queue: told.told(queue)
                for queue, answer in heard.answers.items()
                if queue in declared and queue not in heard.silent
                for told in answer.declared
            },
            handovers=any(answer.handovers for answer in heard.answers.values()),
            letters=any(answer.letters for answer in heard.answers.values()),
            now=from_us(heard.now),
            silent=heard.silent,
            admitted=heard.admitted,
            requests=heard.lease_held and heard.is_asked,
        )

    async def _earlier(
        self, lease: PodLease, places: Mapping[str, Sequence[int]], claims: Sequence[HeldClaim]
    ) -> Mapping[str, Sequence[str]]:
        """Beat for what one step cannot hold. Return by queue the states of the first claims."""
        states: dict[str, list[str]] = {queue: [] for queue in places}
        share = max(1, _BEATS_AT_ONCE // max(1, min(len(places), BASES_AT_ONCE)))
        for queue, indexes in places.items():
            base = self._db.keys.queue(queue)
            # The last ones are left for the step that tells what else there is.
            for some in portions(indexes[: max(0, len(indexes) - share)], _BEATS_AT_ONCE):
                listed = [_listed(claims[index]) for index in some]
                request = _request(lease, False, listed)
                found, silent = await self._db.run_some("beat", {base: request}, _Answer)
                if silent:
                    break
                states[queue] += found[base].states
        return states

    async def _at_once(self, beat: "_Asked") -> _Heard:
        fleet, lease = self._db.keys.fleet, beat.lease
        own: dict[str, object] = {fleet: _request(lease, beat.length)}
        declared = self._known(lease)
        parts = beat.parts(self._db, declared, beat.length)
        if declared and len(parts) < BASES_AT_ONCE:
            raw, silent = await self._db.run_some("beat", own | parts, msgspec.Raw)
            if fleet in silent:
                raise silent[fleet]
            held, doc, now, is_asked = _decode_own(raw.pop(fleet))
            if self._has_changed(lease, doc):
                return await self._at_once(beat)
        else:
            held, doc, now, is_asked = _decode_own(
                (await self._db.run("beat", own, msgspec.Raw))[fleet]
            )
            found = _declared_in(doc) if doc else None
            # A pod whose record is spoilt registers again, which writes the record anew.
            held, declared = held and found is not None, found.queues if found else ()
            self._declared = (lease, doc, declared)
            parts = beat.parts(self._db, declared, beat.length if held else 0)
            raw, silent = await self._db.run_some("beat", parts, msgspec.Raw)
        answers = {queue_of(base): _decode(answer) for base, answer in raw.items()}
        quiet = frozenset(map(queue_of, silent))
        # From now on the lease counts queue by queue.
        self._goes_in_parts = self._goes_in_parts or bool(quiet)
        is_held = held and all(answers[queue].lease_held for queue in declared if queue in answers)
        return _Heard(is_held, answers, now, quiet, is_asked=is_asked)

    async def _in_parts(self, beat: "_Asked") -> _Heard:
        """Let every part renew what it holds, also when others fail.

        Claims and grants go by the queues' copies of the lease. So a pod that holds one of them has
        lived: the pod keeps its own lease with the fleet, also one that ran out while the fleet's
        part was silent, and is admitted again to queues whose part was.
        """
        fleet, lease = self._db.keys.fleet, beat.lease
        own = _request(lease, beat.length)
        declared = self._known(lease)
        # One question for all, once it is known which queues those are.
        parts = beat.parts(self._db, declared, beat.length) if declared else {}
        raw, silent = await self._db.run_some("beat", {fleet: own} | parts, msgspec.Raw)
        pod: Pod | None = None
        held, now, is_asked = False, 0, False
        if fleet in raw:
            held, doc, now, is_asked = _decode_own(raw.pop(fleet))
            if self._has_changed(lease, doc):
                return await self._in_parts(beat)
            pod = _declared_in(doc) if doc else None
            if not declared:
                declared = pod.queues if pod else ()
                self._declared = (lease, doc, declared)
                parts = beat.parts(self._db, declared, beat.length if held and pod else 0)
                raw, silent = await self._db.run_some("beat", parts, msgspec.Raw)
        elif not declared:
            raise silent[fleet]
        answers = {queue_of(base): _decode(answer) for base, answer in raw.items()}
        quiet = frozenset(queue_of(base) for base in silent if base != fleet)
        lives = any(answer.lease_held for answer in answers.values())
        lapsed = [name for name in declared if name in answers and not answers[name].lease_held]
        if fleet in silent:
            if not lives:
                raise silent[fleet]
            now = max(told.record.now for each in answers.values() for told in each.declared)
            return _Heard(True, answers, now, quiet.union(lapsed))
        if lives and pod and not held:
            again = await self._db.run(
                "beat", {fleet: _request(lease, beat.length, more=True)}, msgspec.Raw
            )
            held, _, _, is_asked = _decode_own(again[fleet])
        admitted = None
        if held and pod:
            admitted = await self._admit_again(pod, beat, lapsed)
        if admitted is None:
            return _Heard(False, answers, now, quiet)
        return _Heard(True, answers, now, quiet.union(lapsed) - admitted, admitted, is_asked)

    async def _admit_again(
        self, pod: Pod, beat: "_Asked", queues: Sequence[str]
    ) -> frozenset[str] | None:
        """The queues in which the pod has a lease again. None: one of them has gone, so that the
        pod has to declare and register anew."""
        request = request_of(
            "pod_readmit", host=pod.host_id, epoch=beat.lease.epoch, lease_for=beat.length
        )
        requests = {self._db.keys.queue(name): request for name in queues}
        answers, _ = await self._db.run_some("pod_readmit", requests, tuple[bool, bool])
        if not all(is_there for is_there, _ in answers.values()):
            return None
        for base, (_, has_held) in answers.items():
            if has_held:
                await free_held_jobs(self._db, base, pod.kinds)
        return frozenset(map(queue_of, answers))

    def _known(self, lease: PodLease) -> tuple[str, ...]:
        """The queues that the pod is known to declare."""
        return self._declared[2] if self._declared and self._declared[0] == lease else ()

    def _has_changed(self, lease: PodLease, doc: str) -> bool:
        """Forget the queues of a pod that says something else of itself than before.

        A pod whose lease is lost says nothing.
        """
        if not doc or not self._known(lease) or (self._declared and self._declared[1] == doc):
            return False
        self._left.setdefault(lease.host_id, set()).update(self._known(lease))
        self._declared = None
        return True

    def _forget_left(self, lease: PodLease, heard: "_Heard") -> None:
        """Forget queues that the pod declares again, and those that have no claim of the pod.

        A queue that still knows the pod may take one more claim.
        """
        left = self._left.get(lease.host_id, set())
        left.difference_update(self._known(lease))
        left.difference_update(
            queue
            for queue, answer in heard.answers.items()
            if not answer.unlisted and not answer.declared
        )
        if not left:
            self._left.pop(lease.host_id, None)


@dataclass(frozen=True)
class _Asked:
    """A single beat.

    :ivar places: the positions of claims, by queue
    :ivar length: of the lease, microseconds
    :ivar earlier: the states of a queue's first claims, from steps before
    :ivar left: queues that the pod has left, asked for claims that the pod does not list
    """

    lease: PodLease
    places: Mapping[str, Sequence[int]]
    claims: Sequence[HeldClaim]
    length: int
    earlier: Mapping[str, Sequence[str]]
    left: Set[str]

    def parts(self, db: Database, declared: Sequence[str], renewal: int) -> dict[str, object]:
        """Return the request to each queue that the pod declares, has left or has claims of."""
        parts: dict[str, object] = {}
        for queue in dict.fromkeys((*declared, *self.left, *self.places)):
            listed, states = self.places.get(queue, ()), self.earlier.get(queue, ())
            told = zip(listed, states, strict=False)
            held = [self.claims[index].claim.job_id for index, state in told if state != "lost"]
            rest = [_listed(self.claims[index]) for index in listed[len(states) :]]
            # A queue that is left renews nothing, and says whether the pod is still known there.
            elsewhere = 0 if queue in self.left else False
            renewed = renewal if queue in declared else elsewhere
            parts[db.keys.queue(queue)] = _request(self.lease, renewed, rest, held)
        return parts


def _request(
    lease: PodLease, length: int | bool, claims: object = False, more: object = False
) -> tuple[object, ...]:
    """Return the request to one part, explained in ``beat.lua``."""
    return request_of(
        "beat", host=lease.host_id, epoch=lease.epoch, lease_for=length, claims=claims, more=more
    )


def _listed(one: HeldClaim) -> tuple[object, ...]:
    claim = one.claim
    return item_of("beat", "one", id=claim.job_id, token=claim.token, worker=one.worker_id)
