"""The ends that a program gives to claims."""

from forge_jobs.model.jobs import Cause, JobStatus
from forge_jobs.model.transitions import Cooldown, Transition
from tests.conformance.model.program import SECOND
from tests.support.factories import crashed, dead, done, failed, rate_limited, snoozed

INTERRUPTED = Transition(
    status=JobStatus.PENDING, cause=Cause.INTERRUPTED, delay=None, hand_back=True
)
ENDINGS = {
    "done": done('"r"'),
    "done without a result": done(),
    "failed": failed(2 * SECOND),
    "failed at once": failed(),
    "dead": dead(),
    "interrupted": INTERRUPTED,
    "snoozed": snoozed(SECOND),
    "rate limited": rate_limited(SECOND),
    "throttled": snoozed(SECOND, cooldown=Cooldown(5 * SECOND, 1)),
    "throttled again": snoozed(cooldown=Cooldown(2 * SECOND, 3)),
}
REVIVALS = {
    "again": crashed(delay=None),
    "later": crashed(delay=2 * SECOND),
    "dead": dead(count_crash=True),
    "done": done('"late"'),
}
