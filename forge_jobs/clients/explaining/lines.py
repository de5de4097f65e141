"""Finds the job in front of one that is blocked: the head of its sequence, or of its parents."""

from collections.abc import Mapping

from msgspec import Struct

from forge_jobs.errors import Unavailable
from forge_jobs.model.edges import OF_SEQUENCES
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import TERMINAL, Job, JobStatus
from forge_jobs.policy.explanations import Explanation, Reason, count
from forge_jobs.storage.protocols import Storage

_STEPS = 10
"""So many jobs are followed to the front. A line may be as long as its queue."""

_PARENTS = 20

BLOCKED = (Reason.BLOCKED_BY_PARENTS, Reason.BLOCKED_BY_FAILED_PARENT)


class Front(Struct, frozen=True, kw_only=True):
    """The job in front of a blocked one.

    :param between: blocked jobs between the two
    :param is_last: nothing is in front of this one. False where more jobs than are followed wait
    :param is_sequence: the blocked job waits for its sequence
    """

    job: Job
    between: int
    is_last: bool
    is_sequence: bool

    def text(self, what: str) -> str:
        """Say in a line which job is in front and what that one does, for people.

        :param what: the explanation of the job in front
        """
        of = " in its sequence" if self.is_sequence else ""
        between = f" of {count(self.between, 'blocked job')} and of it" if self.between else ""
        first = "" if self.is_last else ", behind others,"
        return f"in front{between}{of} is {self.job.id}{first} {what}"


async def read_front(
    storage: Storage, job: Job, why: Explanation, parents: Mapping[JobId, Job]
) -> Front | None:
    """Follow what a blocked job waits for to the first job that waits for none.

    Of several parents the first that has yet to end, or that ended without success, is followed.
    None where none of them is there.

    :param why: of the job
    :param parents: those that are there
    """
    front = next((parents[JobId(each)] for each in why.blocked_by if each in parents), None)
    if front is None:
        return None
    between = 0
    while front.status is JobStatus.BLOCKED and front.waits_for and between < _STEPS:
        before = await storage.jobs.get(front.waits_for[:_PARENTS])
        first = min(
            before.values(), key=lambda each: (each.status in TERMINAL, each.id), default=None
        )
        if first is None:
            break
        front, between = first, between + 1
    return Front(
        job=front,
        between=between,
        is_last=front.status is not JobStatus.BLOCKED,
        is_sequence=await _is_sequence(storage, job, JobId(why.blocked_by[0])),
    )


async def _is_sequence(storage: Storage, job: Job, parent: JobId) -> bool:
    try:
        kin = (await storage.jobs.kin([job.id], limit=_PARENTS)).get(job.id)
    except Unavailable:
        return False
    edges = {each.id: each.on_failure for each in kin.parents} if kin else {}
    return edges.get(parent) in OF_SEQUENCES
