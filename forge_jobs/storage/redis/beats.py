"""The heartbeat of a pod: its own lease first, then each queue's part."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from forge_jobs.clock import duration_us, from_us
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import Beat, ClaimState, HeldClaim, PodLease, QueueBeat, Slots
from forge_jobs.storage.redis.answers import Decoder
from forge_jobs.storage.redis.database import BASES_AT_ONCE, Database
from forge_jobs.storage.redis.fleet import decode_pod
from forge_jobs.storage.redis.keys import queue_of
from forge_jobs.storage.redis.ownership import by_queue
from forge_jobs.storage.redis.queue_records import QueueRecord
from forge_jobs.storage.salvage import UNREADABLE

_STATES = {
    "held": ClaimState.HELD,
    "cancel": ClaimState.CANCEL_REQUESTED,
    "lost": ClaimState.LOST,
}


class _Declared(msgspec.Struct, frozen=True, array_like=True):
    """What a beat tells of a queue that the pod declares.

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
    """What ``lua/beat.lua`` answers of a queue.

    :param declared: one, or none
    """

    lease_held: bool
    states: list[str]
    unlisted: list[tuple[str, int]]
    handovers: bool
    declared: list[_Declared]


_decode = Decoder(_Answer).decode
_decode_own = Decoder(tuple[bool, str, int]).decode


def _queues_in(doc: str) -> tuple[str, ...] | None:
    """What the pod declares; None where that cannot be read."""
    try:
        return decode_pod(doc).queues
    except UNREADABLE:
        return None


class Beats:
    """Beats; on one server each is one step, once it is known which queues the pod declares.

    In a cluster, or with more queues than a step takes, the pod's own lease is renewed a step
    before theirs.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        # A pod that declares other queues registers, and has another lease then.
        self._declared: tuple[PodLease, tuple[str, ...]] | None = None

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        """See ``JobStore.heartbeat``."""
        fleet, length = self._db.keys.fleet, duration_us(lease_for)
        places = by_queue(one.claim for one in claims)
        own: dict[str, object] = {fleet: (lease.host_id, lease.epoch, length)}
        declared = self._known(lease)
        parts = self._parts(lease, declared, places, claims, length)
        if declared and len(parts) < BASES_AT_ONCE and not self._db.is_cluster:
            raw = await self._db.run("beat", own | parts, msgspec.Raw)
            held, _, now = _decode_own(raw.pop(fleet))
        else:
            held, doc, now = _decode_own((await self._db.run("beat", own, msgspec.Raw))[fleet])
            found = _queues_in(doc) if doc else ()
            # A pod whose record is spoilt registers again, which writes it anew.
            held, declared = held and found is not None, found or ()
            self._declared = (lease, declared)
            parts = self._parts(lease, declared, places, claims, length if held else 0)
            raw = await self._db.run("beat", parts, msgspec.Raw)
        answers = {queue_of(base): _decode(answer) for base, answer in raw.items()}
        return Beat(
            lease_held=held and all(answers[queue].lease_held for queue in declared),
            claims={
                claims[index].claim: _STATES[state]
                for queue, indexes in places.items()
                for index, state in zip(indexes, answers[queue].states, strict=True)
            },
            unknown=tuple(
                Claim(queue, JobId(job_id), token, lease.host_id)
                for queue, answer in answers.items()
                for job_id, token in answer.unlisted
            ),
            queues={
                queue: told.told(queue)
                for queue, answer in answers.items()
                for told in answer.declared
            },
            handovers=any(answer.handovers for answer in answers.values()),
            now=from_us(now),
        )

    def _known(self, lease: PodLease) -> tuple[str, ...]:
        """The queues that the pod is known to declare."""
        return self._declared[1] if self._declared and self._declared[0] == lease else ()

    def _parts(
        self,
        lease: PodLease,
        declared: Sequence[str],
        places: Mapping[str, Sequence[int]],
        claims: Sequence[HeldClaim],
        renewal: int,
    ) -> dict[str, object]:
        """What is asked of each queue that the pod declares or that it has claims of."""
        return {
            self._db.keys.queue(queue): (
                lease.host_id,
                lease.epoch,
                renewal if queue in declared else False,
                [_listed(claims[index]) for index in places.get(queue, ())],
            )
            for queue in dict.fromkeys((*declared, *places))
        }


def _listed(one: HeldClaim) -> tuple[str, int, str]:
    return one.claim.job_id, one.claim.token, one.worker_id
