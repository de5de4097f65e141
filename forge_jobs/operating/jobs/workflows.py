"""Reads and changes of workflows, as people who operate see them."""

from collections.abc import Container, Sequence
from datetime import datetime

from msgspec import Struct, structs

from forge_jobs.clients.flows.wholes import no_workflow, to_cancel, to_resume
from forge_jobs.clients.flows.workflows import (
    StepState,
    read_graph,
    workflow_state,
)
from forge_jobs.errors import DecryptionFailed, InvalidInput, KeyMissing, NotFound
from forge_jobs.model.edges import MOST_ASKED, WORKFLOW_KIND, Relative
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import Job, JobStatus
from forge_jobs.operating.access import Right
from forge_jobs.operating.jobs.calls import JobCalls
from forge_jobs.operating.jobs.documents import Changed

_AT_ONCE = 1_000
"""Jobs of one action."""

_SHOWN = "forge-jobs workflows list names the newest ones, forge-jobs explain says what a job is"

_SPOILT = "the payload of the workflow's own job is no graph: an edit has spoilt it"


class WorkflowLine(Struct, frozen=True, kw_only=True):
    """A workflow of a list.

    :param tags: the name of the workflow first
    :param waiting: steps that have yet to end
    :param held: steps that ended without success, and hold the whole
    """

    id: JobId
    tags: tuple[str, ...]
    queue: str
    status: JobStatus
    enqueued_at: datetime
    finished_at: datetime | None
    waiting: int = 0
    held: int = 0
    done: int = 0


class Workflows(Struct, frozen=True, kw_only=True):
    """A page of workflows, the newest first.

    :param cursor: for the next page, None at the end
    """

    workflows: tuple[WorkflowLine, ...]
    cursor: str | None = None


class WorkflowView(Struct, frozen=True, kw_only=True):
    """A workflow with its steps.

    :param name: "" where the graph cannot be read
    :param held_by: names of the steps that ended without success, while the whole waits for them
    :param unreadable: why the graph cannot be read: its key is not here, or an edit has spoilt it.
        Then the ids of jobs stand for the names of steps, and what a step comes after is not known
    """

    id: JobId
    name: str
    queue: str
    status: JobStatus
    enqueued_at: datetime
    deadline: datetime | None
    total: int
    done: int
    failed: int
    waiting: int
    held_by: tuple[str, ...]
    steps: tuple[StepState, ...]
    unreadable: str = ""


class WorkflowCalls(JobCalls):
    """A part of the methods of an operator. See ``Operator``."""

    async def list_workflows(self, *, cursor: str | None = None, limit: int = 50) -> Workflows:
        """A page of workflows, the newest first, with the counts of their steps.

        :param limit: 1 to 100
        """
        if not 1 <= limit <= MOST_ASKED:
            raise InvalidInput("limit", f"is {limit}", f"give 1 to {MOST_ASKED}")
        which = JobFilter(kinds=(WORKFLOW_KIND,))
        page = await self.list_jobs(which, cursor=cursor, limit=limit)
        tallies = await self.storage.jobs.tallies([each.id for each in page.jobs])
        lines = []
        for job in page.jobs:
            line = WorkflowLine(
                id=job.id,
                tags=job.tags,
                queue=job.queue,
                status=job.status,
                enqueued_at=job.enqueued_at,
                finished_at=job.finished_at,
            )
            if (tally := tallies.get(job.id)) is not None:
                line = structs.replace(
                    line, waiting=tally.open, held=tally.held, done=tally.settled
                )
            lines.append(line)
        return Workflows(workflows=tuple(lines), cursor=page.cursor)

    async def get_workflow(self, workflow_id: str) -> WorkflowView:
        """A workflow with its steps, their states, and what holds them.

        Steps in queues that are closed to the actor are left out, and so are removed ones for an
        actor of some queues. The counts are those of the steps that are shown.

        :raises NotFound: there is no such workflow
        """
        self.actor.need(Right.READ)
        gate, found = await self._workflow(workflow_id)
        graph, unreadable = self._graph(gate)
        state = workflow_state(graph, gate, found)
        steps = {name: each for name, each in state.steps.items() if self.actor.sees(each.queue)}
        seen = structs.replace(state, steps=steps)
        return WorkflowView(
            id=seen.id,
            name=seen.name,
            queue=seen.queue,
            status=seen.status,
            enqueued_at=seen.enqueued_at,
            deadline=seen.deadline,
            total=seen.total,
            done=seen.done,
            failed=seen.failed,
            waiting=seen.waiting,
            held_by=seen.held_by,
            steps=tuple(_within(each, steps.keys()) for each in steps.values()),
            unreadable=unreadable,
        )

    def _graph(self, gate: Job) -> tuple[str | None, str]:
        """Return the graph of a workflow's own job in plain text, and why it cannot be read."""
        try:
            graph = self.client.decrypted(gate).payload
        except (KeyMissing, DecryptionFailed) as error:
            return None, str(error)
        return graph, "" if read_graph(graph) is not None else _SPOILT

    async def cancel_workflow(self, workflow_id: str, *, reason: str = "") -> Changed:
        """Cancel all steps of a workflow that wait, ask those that run to stop, and end the whole.

        Recorded as a cancel of these jobs, an action for each thousand.

        :param reason: for people. Stays with the records
        :raises NotFound: there is no such workflow
        """
        self.actor.act("cancel_workflow")
        gate, found = await self._workflow(workflow_id)
        jobs = await to_cancel(self.storage.jobs, gate, found)
        return await self._in_actions("cancel_jobs", jobs, reason)

    async def resume_workflow(self, workflow_id: str, *, reason: str = "") -> Changed:
        """Requeue the steps of a workflow that ended without success, so that the rest goes on.

        Recorded as a requeue of these jobs, an action for each thousand.

        :param reason: for people. Stays with the records
        :raises NotFound: there is no such workflow, or a step that failed is no longer stored
        :raises Conflict: the workflow has ended with success
        """
        self.actor.act("resume_workflow")
        gate, found = await self._workflow(workflow_id)
        jobs = await to_resume(self.storage.jobs, gate, found)
        return await self._in_actions("requeue_jobs", jobs, reason)

    async def _workflow(self, workflow_id: str) -> tuple[Job, tuple[Relative, ...]]:
        wanted = check_job_id(workflow_id, "workflow_id")
        found = await self.storage.jobs.with_parents(wanted)
        if found is None and self.actor.access.queues is None:
            raise await no_workflow(self.storage.jobs, wanted)
        if found is None or not self.actor.sees(found[0].queue) or found[0].kind != WORKFLOW_KIND:
            raise NotFound(f"there is no workflow {workflow_id}; {_SHOWN}")
        return found

    async def _in_actions(self, verb: str, ids: Sequence[JobId], reason: str) -> Changed:
        total = Changed()
        for start in range(0, len(ids), _AT_ONCE):
            which = JobFilter(ids=tuple(ids[start : start + _AT_ONCE]))
            found = await self._visited(verb, which, reason)
            total.changed += found.changed
            total.requested += found.requested
            total.refused |= found.refused
        return total


def _within(step: StepState, seen: Container[str]) -> StepState:
    after = {name: word for name, word in step.after.items() if name in seen}
    held_by = tuple(name for name in step.held_by if name in after)
    return structs.replace(step, after=after, held_by=held_by)
