"""The heartbeat of a pod: its own lease first, then each queue's part."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Claim
from forge_jobs.model.processes import Beat, ClaimState, HeldClaim, PodLease, QueueBeat, Slots
from forge_jobs.storage.redis.database import Database
from forge_jobs.storage.redis.fleet import decode_pod
from forge_jobs.storage.redis.ownership import by_queue
from forge_jobs.storage.redis.queue_records import QueueRecord

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
    """What ``lua/beat.lua`` answers.

    :param declared: one, or none
    """

    lease_held: bool
    states: list[str]
    unlisted: list[tuple[str, int]]
    handovers: bool
    declared: list[_Declared]


async def heartbeat(
    db: Database, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
) -> Beat:
    """See ``JobStore.heartbeat``."""
    length = duration_us(lease_for)
    own = (lease.host_id, lease.epoch, length)
    held, doc = await db.run_one("beat_pod", db.keys.fleet, own, tuple[bool, str])
    declared = decode_pod(doc).queues if doc else ()
    places = by_queue(one.claim for one in claims)
    renewal = length if held else 0
    queues = list(dict.fromkeys((*declared, *places)))
    requests = {
        db.keys.queue(queue): (
            lease.host_id,
            lease.epoch,
            renewal if queue in declared else False,
            [_listed(claims[index]) for index in places.get(queue, ())],
        )
        for queue in queues
    }
    answers = await db.run("beat", requests, _Answer)
    by_name = {queue: answers[db.keys.queue(queue)] for queue in queues}
    return Beat(
        lease_held=held and all(by_name[queue].lease_held for queue in declared),
        claims={
            claims[index].claim: _STATES[state]
            for queue, indexes in places.items()
            for index, state in zip(indexes, by_name[queue].states, strict=True)
        },
        unknown=tuple(
            Claim(queue, JobId(job_id), token)
            for queue, answer in by_name.items()
            for job_id, token in answer.unlisted
        ),
        queues={
            queue: told.told(queue) for queue, answer in by_name.items() for told in answer.declared
        },
        handovers=any(answer.handovers for answer in by_name.values()),
    )


def _listed(one: HeldClaim) -> tuple[str, int, str]:
    return one.claim.job_id, one.claim.token, one.worker_id
