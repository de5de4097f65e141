"""The end most claims have: done, and nothing to decide from what the job was before.

So a batch of them is one statement, which fences, writes and answers, where every other end reads
its job first.
"""

from collections.abc import Sequence
from typing import Any

from forge_jobs.model.jobs import Cause, Claim, JobStatus
from forge_jobs.model.transitions import Finalization, Transition

SUCCEED = """
    SET status = 'done', cause = 'succeeded', finished_at = :now, settled_token = job.token,
        cancel_requested = FALSE, result = item.result,
        result_expires_at = CASE WHEN item.result IS NOT NULL THEN :now + job.result_ttl_us END,
        payload = CASE trim(item.kept_for, 'PTDHMS0.') WHEN '' THEN '' ELSE job.payload END
"""
"""What it writes to ``job``, given its ``item``. Nothing is kept for an ISO 8601 duration whose
digits are all zero, however it is spelled."""


def is_plain_success(transition: Transition) -> bool:
    """Whether the result is all that the transition leaves open."""
    return (
        transition.status is JobStatus.DONE
        and transition.cause is Cause.SUCCEEDED
        and transition.error is None
        and transition.cooldown is None
        and not (transition.hand_back or transition.count_snooze or transition.count_crash)
    )


def are_plain_successes(finalizations: Sequence[Finalization]) -> bool:
    """Whether one statement can judge them all: two items of one job see each other, and one pod's
    claims are compared with its name."""
    ids = {one.claim.job_id for one in finalizations}
    owners = {one.claim.host_id for one in finalizations}
    plain = all(is_plain_success(one.transition) for one in finalizations)
    return plain and len(ids) == len(finalizations) and len(owners) <= 1


def columns(items: Sequence[tuple[Claim, Transition]]) -> dict[str, list[Any]]:
    """The items as one list for each parameter of the statement."""
    return {
        "ids": [claim.job_id for claim, _ in items],
        "queues": [claim.queue for claim, _ in items],
        "tokens": [claim.token for claim, _ in items],
        "results": [transition.result for _, transition in items],
    }


def owner_of(items: Sequence[tuple[Claim, Transition]]) -> str:
    """The pod whose claims the items are, its parameter ``owner``."""
    return items[0][0].host_id if items else ""
