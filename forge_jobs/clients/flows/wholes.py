"""The jobs that a cancel or a resume of a workflow is about, and the command of a resume."""

from collections.abc import Sequence

from forge_jobs.clients.flows.plans import (
    FAILED,
    failed_parts,
    part_id,
    stored_failures,
)
from forge_jobs.errors import NotFound
from forge_jobs.handlers.preparing import MAX_PARENTS
from forge_jobs.model.edges import (
    GROUP_KIND,
    MOST_ASKED,
    WORKFLOW,
    WORKFLOW_KIND,
    Kin,
    Relative,
    Tally,
)
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId
from forge_jobs.model.jobs import ACTIVE, Job, JobStatus
from forge_jobs.policy import remedies
from forge_jobs.storage.protocols import JobStore

_FIX = "cancel the workflow and enqueue another, or end it without them by release_held"

_NAMED = 10
"""A command names so many jobs at most."""


def mended_by(failed: Sequence[Job]) -> str:
    """Return the command by which what waits for these jobs goes on, and nothing is left out.

    "" where no single command does: a group outside of a workflow is resumed by a program.

    :param failed: jobs that ended without success
    """
    wholes = {
        each.id if each.kind == WORKFLOW_KIND else each.metadata.get(WORKFLOW, "")
        for each in failed
    }
    if len(wholes) == 1 and (whole := wholes.pop()):
        return remedies.resume_workflow(whole)
    if not failed or any(each.kind in (GROUP_KIND, WORKFLOW_KIND) for each in failed):
        return ""
    return remedies.requeue(*(each.id for each in failed[:_NAMED]))


async def key_holders(jobs: JobStore, failed: Sequence[Job]) -> dict[JobId, JobId]:
    """Return the failed jobs that cannot be requeued, each with the job that has the unique key.

    One look for each job with a key, of the first ten such jobs alone.
    """
    found: dict[JobId, JobId] = {}
    keyed = [(each, each.unique_key) for each in failed if each.unique_key is not None]
    for each, key in keyed[:_NAMED]:
        which = JobFilter(queues=(each.queue,), unique_key=key, statuses=tuple(ACTIVE))
        page = await jobs.list(which, limit=1)
        if page.jobs:
            found[each.id] = page.jobs[0].id
    return found


async def no_workflow(jobs: JobStore, wanted: JobId) -> NotFound:
    """Return the refusal of a workflow that is not stored, or in part: one look at its first step.

    The steps of a large workflow are stored before the whole.
    """
    first = part_id(wanted, 0)
    found = (await jobs.get([first])).get(first)
    if found is not None and found.metadata.get(WORKFLOW) == wanted:
        return NotFound(
            f"workflow {wanted} is stored in part: its caller is storing it, or has died before "
            "the end; enqueue the workflow again with the same id, which stores what is missing"
        )
    return NotFound(
        f"there is no workflow {wanted}; it is not stored yet, its retention is over, or the "
        "store is another"
    )


async def to_cancel(jobs: JobStore, gate: Job, steps: Sequence[Relative]) -> list[JobId]:
    """Return the jobs that a cancel is about, children before parents, and the whole last.

    So none begins because another was cancelled. Groups are read one by one.
    """
    found: list[JobId] = []
    for step in reversed(steps):
        found.append(step.id)
        if step.kind == GROUP_KIND and step.status not in (JobStatus.DONE, JobStatus.DEAD):
            found += (await jobs.parents([step.id])).get(step.id, ())
    return [*found, gate.id]


async def to_resume(jobs: JobStore, gate: Job, steps: Sequence[Relative]) -> list[JobId]:
    """Return the jobs that a resume requeues, parents before children, and the whole last.

    Members that failed come before their group, also of a group that has yet to end.

    :raises Conflict: the workflow has ended with success
    :raises NotFound: a step that failed, or a member of a group, has been removed
    """
    failed = set(failed_parts("workflow", gate, "steps", steps, _FIX))
    groups = await _with_failures(jobs, steps)
    found: list[JobId] = []
    for step in steps:
        if step.id in groups:
            kin = (await jobs.kin([step.id], limit=MAX_PARENTS)).get(step.id, Kin())
            found += stored_failures("group", step.id, "members", kin.parents, _FIX)
        if step.id in failed:
            found.append(step.id)
    return [*found, gate.id] if gate.status in FAILED else found


async def _with_failures(jobs: JobStore, steps: Sequence[Relative]) -> set[JobId]:
    """Return the groups of which a member may have failed: one look for each hundred of them."""
    groups = {each.id: each.status for each in steps if each.kind == GROUP_KIND}
    found = {job_id for job_id, status in groups.items() if status in FAILED}
    waiting = [job_id for job_id, status in groups.items() if status is JobStatus.BLOCKED]
    for start in range(0, len(waiting), MOST_ASKED):
        tallies = await jobs.tallies(waiting[start : start + MOST_ASKED])
        found.update(job_id for job_id, each in tallies.items() if _has_failures(each))
    return found


def _has_failures(tally: Tally) -> bool:
    return tally.dead + tally.cancelled > 0
