"""The ends that a program gives to claims."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import Cause, Hold, JobStatus
from forge_jobs.model.transitions import Cooldown, Finalization, Occurrence, Transition
from tests.conformance.model.reference.state import ModelJob
from tests.support.factories import SECOND, crashed, dead, done, failed, rate_limited, snoozed

INTERRUPTED = Transition(
    status=JobStatus.PENDING, cause=Cause.INTERRUPTED, delay=None, hand_back=True
)

MARKS = ("0123456789abcdef no mail", "fedcba9876543210 no pay")
"""Of two strikes."""


def _struck(mark: str) -> Transition:
    return Transition(
        status=JobStatus.PENDING,
        cause=Cause.STRUCK,
        delay=None,
        hand_back=True,
        rate_limit=mark,
        hold=Hold.STRUCK,
    )


def _again(payload: str, seconds: int) -> Transition:
    occurrence = Occurrence(
        payload=payload,
        metadata='{"forge_jobs.occurrence": "2"}',
        max_attempts=None,
        timeout=None,
        keep_result=True,
        trace="",
    )
    return Transition(
        status=JobStatus.PENDING, cause=Cause.SUCCEEDED, delay=seconds * SECOND, again=occurrence
    )


def fitted(ends: Sequence[Finalization], jobs: Mapping[JobId, ModelJob]) -> Sequence[Finalization]:
    """Return the ends, with the fields of the claim where a job begins anew."""
    return [_fitted(each, jobs.get(each.claim.job_id)) for each in ends]


def _fitted(end: Finalization, job: ModelJob | None) -> Finalization:
    if end.transition.again is None or job is None:
        return end
    names = ("max_attempts", "timeout", "keep_result", "trace")
    given = {name: getattr(job.request, name) for name in names}
    again = replace(end.transition.again, **given)
    return replace(end, transition=replace(end.transition, again=again))


ENDINGS = {
    "again": _again('{"page": 2}', 0),
    "again later": _again("{}", 2),
    "done": done('"r"'),
    "done without a result": done(),
    "failed": failed(2 * SECOND),
    "failed at once": failed(),
    "dead": dead(),
    "dead without an error": dead(error=None),
    "interrupted": INTERRUPTED,
    "snoozed": snoozed(SECOND),
    "rate limited": rate_limited(SECOND),
    "struck": _struck(MARKS[0]),
    "struck by another": _struck(MARKS[1]),
    "throttled": snoozed(SECOND, cooldown=Cooldown(5 * SECOND, 1)),
    "throttled again": snoozed(cooldown=Cooldown(2 * SECOND, 3)),
}
REVIVALS = {
    "again": crashed(delay=None),
    "later": crashed(delay=2 * SECOND),
    "dead": dead(count_crash=True),
    "done": done('"late"'),
}
