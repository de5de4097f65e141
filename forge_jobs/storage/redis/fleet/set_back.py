"""Brings back dates ahead of the store's time, after a clock that has been set back.

The clock of the server on which a queue lies counts for the queue.
"""

from collections.abc import Mapping
from itertools import islice

import msgspec

from forge_jobs.clock import duration_us
from forge_jobs.model.jobs import Cause
from forge_jobs.model.processes import SetBack
from forge_jobs.storage.redis.base.database import Database
from forge_jobs.storage.redis.base.queues import in_all_queues, queue_names
from forge_jobs.storage.redis.base.scripts import request_of
from forge_jobs.storage.redis.config.queues import QueueRecord
from forge_jobs.storage.set_back import DUE_WHEN_STORED, LONGEST_TURN, TOLERANCE_US

_AT_ONCE = 1000
"""The most claims or jobs of a queue that one step looks at, so that every step is short."""

_QUEUES_AT_ONCE = 100
"""The most queues of one round, so that each gets a share of what a call may move."""


class _Lengths(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``lease_lengths.lua``."""

    queues: list[str]
    lengths: list[str | int]


class _Leases(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``bring_back_leases.lua``."""

    changed: int
    is_more: bool
    is_counter_ahead: bool


class _Jobs(msgspec.Struct, frozen=True, array_like=True):
    """The answer of ``bring_back_jobs.lua``."""

    moved: int
    is_more: bool
    score: int
    id: str


async def bring_back_leases(database: Database) -> SetBack:
    """See ``ProcStore.bring_back_leases``.

    The slots of a pod do not know when the pod's lease began, so the length is read first.
    """
    fleet = database.keys.fleet
    known = await database.run_one("lease_lengths", fleet, [], _Lengths)
    longest = await _longest_cooldowns(database)
    requests: dict[str, object] = {fleet: _leases(False, False, False)}
    for queue in known.queues:
        cooldown = longest.get(queue, -1)
        requests[database.keys.queue(queue)] = _leases(_AT_ONCE, cooldown, known.lengths)
    changed, is_ahead = 0, False
    while requests:
        answers, _ = await database.run_some("bring_back_leases", requests, _Leases)
        changed += sum(each.changed for each in answers.values())
        is_ahead = is_ahead or any(each.is_counter_ahead for each in answers.values())
        requests = {base: requests[base] for base, each in answers.items() if each.is_more}
    return SetBack(leases=changed, is_set_back=changed > 0 or is_ahead)


def _leases(limit: int | bool, longest: int | bool, lengths: object) -> tuple[object, ...]:
    """Return a request to a queue, or to the fleet, for which all is False."""
    return request_of(
        "bring_back_leases",
        tolerance=TOLERANCE_US,
        limit=limit,
        longest=longest,
        lengths=lengths,
    )


async def _longest_cooldowns(database: Database) -> Mapping[str, int]:
    """Return for each queue with a record the longest pause of its retry policy."""
    stored = await in_all_queues(database, "queue_states", [], list[QueueRecord])
    states = {queue: record.state(queue) for queue, found in stored.items() for record in found}
    policies = {queue: state.settings.cooldown for queue, state in states.items()}
    return {queue: duration_us(max(each.base, each.cap)) for queue, each in policies.items()}


async def bring_back_jobs(database: Database, limit: int) -> int:
    """See ``JobStore.bring_back_jobs``."""
    at_once = min(limit, _AT_ONCE)
    # No turn at a rate limit is so far away, and a job can ask for its turn again.
    causes = dict.fromkeys(DUE_WHEN_STORED, TOLERANCE_US) | {
        Cause.RATE_LIMITED: TOLERANCE_US + duration_us(LONGEST_TURN)
    }
    moved = 0
    # Where each queue goes on: behind which time and job.
    left = {database.keys.queue(queue): (0, "") for queue in sorted(await queue_names(database))}
    while left and moved < limit:
        some = list(islice(left, min(_QUEUES_AT_ONCE, limit - moved)))
        share = min(at_once, (limit - moved) // len(some))
        requests: dict[str, object] = {}
        for base in some:
            score, after = left.pop(base)
            requests[base] = request_of(
                "bring_back_jobs",
                tolerance=TOLERANCE_US,
                limit=share,
                causes=causes,
                score=score,
                after=after,
            )
        answers, _ = await database.run_some("bring_back_jobs", requests, _Jobs)
        moved += sum(each.moved for each in answers.values())
        left |= {base: (each.score, each.id) for base, each in answers.items() if each.is_more}
    return moved
