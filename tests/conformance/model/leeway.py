"""The freedom that the contract leaves, and how answers that may differ are made comparable.

Everything else must be the same to the microsecond. Each entry weakens the test for every backend,
and so names the sentence of the contract that allows it.
"""

import json
from collections.abc import Callable, Container, Sequence
from itertools import pairwise
from typing import Any

from msgspec.structs import asdict, replace

from forge_jobs.model.events import TimelineEvent
from forge_jobs.model.filters import JobSummary
from forge_jobs.model.jobs import ClaimedJob, Job
from forge_jobs.model.letters import read_dead_letter
from forge_jobs.model.processes import Beat, PodState
from forge_jobs.model.queues import QueueCounts
from forge_jobs.model.transitions import Exchange, Handover
from tests.conformance.model.reference.state import WAITING, ModelJob, World

# No order is promised, or none among those of one instant.
_IN_ANY_ORDER: dict[str, Callable[[Any], Any]] = {
    "jobs.stale_claims": lambda each: each.claim.job_id,
    "jobs.letters": lambda each: each.job.id,
    "jobs.handovers": lambda each: (each.child_id, each.parent_id),
    "procs.live_pods": lambda pod: pod.host_id,
    "procs.pods": lambda each: each.pod.host_id,
    "procs.workers": lambda each: each.job_id,
    "procs.drop_dead_pods": str,
}

# "How many rows": what a row is differs.
_COUNTS_ROWS = frozenset({"jobs.cleanup", "jobs.roll_up"})


class Leeway:
    """Answers with what is left open taken out."""

    def __init__(self, world: World) -> None:
        self._world = world

    def normal(self, method: str, answer: Any) -> Any:
        if method in _COUNTS_ROWS:
            return None
        if method in _IN_ANY_ORDER and isinstance(answer, list):
            place = _IN_ANY_ORDER[method]
            kept = [each for each in answer if self._is_told(each)]
            if method == "jobs.handovers":
                # "And one to a removed job of the same id." Oldest first.
                kept = list({place(each): each for each in kept}.values())
            return [self._plain(each) for each in sorted(kept, key=place)]
        if method == "jobs.events" and isinstance(answer, list):
            # Newest first. Jobs of one instant come in any order.
            return sorted(answer, key=_of_one_instant) if _is_newest_first(answer) else answer
        if method == "jobs.place" and any(map(_is_keyed, self._world.jobs.values())):
            # A job of a full key on hold has no place, and others come before.
            return None
        if method == "procs.due_kinds" and isinstance(answer, dict):
            return {name: kinds for name, kinds in answer.items() if not self._is_vague(name)}
        if isinstance(answer, dict):
            return {key: self._of_name(key, value) for key, value in answer.items()}
        if method == "jobs.list" and hasattr(answer, "jobs"):
            return replace(answer, jobs=tuple(map(self._plain, answer.jobs)))
        return self._plain(answer)

    def _plain(self, answer: Any) -> Any:
        match answer:
            case Beat():
                return replace(
                    answer,
                    # "Without a held lease some may be missing."
                    unknown=tuple(
                        sorted(
                            answer.unknown if answer.lease_held else (),
                            key=lambda claim: claim.job_id,
                        )
                    ),
                    queues={
                        name: replace(beat, next_due_in=None) if self._is_vague(name) else beat
                        for name, beat in answer.queues.items()
                        # "It must register again": the declarations of a lapsed pod are void.
                        if answer.lease_held
                    },
                    handovers=answer.lease_held
                    and answer.handovers
                    and self._has_news(answer.queues),
                    letters=answer.lease_held
                    and answer.letters
                    and self._has_letters(answer.queues),
                )
            case Exchange():
                # "Only a hint." And keys that take turns have no order within one claim.
                claimed = sorted(answer.claimed, key=self._of_turns)
                return replace(answer, claimed=tuple(claimed), next_due_in=None, goes_on=False)
            case PodState() if not answer.lease_remaining:
                # "Void": whether they are shown as zeros or not at all is left open.
                return replace(answer, slots={})
            case Job() | JobSummary():
                return self._plain_job(answer)
        return answer

    def _of_turns(self, claimed: ClaimedJob) -> str:
        claim = claimed.claim
        return claim.job_id if self._world.has_shares(claim.queue) else ""

    def _plain_job(self, shown: Any) -> Any:
        job = self._world.jobs.get(shown.id)
        if job is None:
            return shown
        if _is_keyed(job):
            # Which jobs of a full key a claim meets, and so puts on hold, is up to the store.
            shown = replace(shown, hold=None)
        if job.may_be_held:
            # A claim need not meet every job of an unknown kind.
            shown = replace(shown, hold=None)
        expiry = job.result_expires_at
        if isinstance(shown, Job) and expiry is not None and expiry <= self._world.now:
            # A result past its own time goes with the next cleanup, or before.
            shown = replace(shown, result=None)
        return shown

    def _of_name(self, name: str, value: Any) -> Any:
        """Normalise one queue's counts, or one job."""
        if not isinstance(value, QueueCounts) or not self._is_vague(name):
            return self._plain(value)
        fields = asdict(value)
        open_ones = [job for job in self._world.of_queue(name) if job.may_be_held]
        if open_ones:
            # One that has expired is held, or neither held nor due.
            expired = any(map(self._world.is_expired, open_ones))
            together = 0 if expired else fields["due"] + fields["held"]
            fields |= {"due": together, "held": 0, "oldest_due_for": None}
        if any(map(_is_keyed, self._world.of_queue(name))):
            fields |= {"due": 0, "held": 0, "oldest_due_for": None}
        return QueueCounts(**fields)

    def _is_vague(self, queue: str) -> bool:
        """Return whether some waiting job may be held or not, or has expired and is still there."""
        return any(
            job.may_be_held
            or (_is_keyed(job) and job.status in WAITING)
            or (job.status in WAITING and self._world.is_expired(job))
            for job in self._world.of_queue(queue)
        )

    def _has_news(self, queues: Container[str]) -> bool:
        """Return whether a parent of the pod's queues has a handover that a child waits for.

        Beside such handovers there may be others, for children that have ended or gone. "A store
        may also tell of other queues."
        """
        jobs = self._world.jobs
        return any(
            each.parent_id in jobs and jobs[each.parent_id].queue in queues
            for each in filter(self._is_told, self._world.handovers)
        )

    def _has_letters(self, queues: Container[str]) -> bool:
        """Return whether a job of the queues has left a letter that waits."""
        return any(
            origin.queue in queues
            for each in self._world.letters
            if (origin := read_dead_letter(json.loads(each.job.metadata), "")) is not None
        )

    def _is_told(self, each: Any) -> bool:
        """Return whether a child still waits for the handover."""
        if not isinstance(each, Handover):
            return True
        child = self._world.jobs.get(each.child_id)
        edge = child.edges.get(each.parent_id) if child else None
        return edge is not None and edge.has_news


def _is_keyed(job: ModelJob) -> bool:
    return bool(job.request.limit_name)


def _of_one_instant(event: TimelineEvent) -> tuple[Any, ...]:
    return (event.at, event.job_id, event.kind, event.detail)


def _is_newest_first(events: Sequence[TimelineEvent]) -> bool:
    return all(newer.at >= older.at for newer, older in pairwise(events))
