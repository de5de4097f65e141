"""Workflows: named steps as the jobs that are stored for them, and how far they have come."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, get_args

import msgspec
from msgspec import UNSET, Struct

from forge_jobs.clients.flows.plans import gate_request, part_id
from forge_jobs.errors import Conflict, InvalidInput, NotFound, a_type
from forge_jobs.handlers.option_checks import check_tags
from forge_jobs.handlers.preparing import MAX_PARENTS, check_request
from forge_jobs.handlers.requests import EnqueueRequest, OurKey
from forge_jobs.model.edges import STEP, WORKFLOW, EdgeState, Relative
from forge_jobs.model.ids import JobId, check_job_id, new_job_id
from forge_jobs.model.jobs import After, EnqueueOutcome, Job, JobStatus
from forge_jobs.model.names import check_name
from forge_jobs.model.payloads import MAX_PAYLOAD_BYTES

WORKFLOW_KIND = "forge.workflow"
"""The kind of the job that ends when a workflow has settled. See ``group_handlers``."""

FAILED = (JobStatus.DEAD, JobStatus.CANCELLED)

OnFailure = Literal["hold", "cancel", "continue"]


class Workflow:
    """Named steps, each an ordinary job that runs after the steps that it names::

        nightly = Workflow("nightly")
        nightly.step("fetch", fetch.request(day))
        nightly.step("clean", clean.request(), after=["fetch"])
        nightly.step("report", report.request(), after=["clean"])
        await client.enqueue_workflow(nightly)

    A step that dies holds the steps after it, until ``resume_workflow`` or ``cancel_workflow``.

    :param name: for people, and the first tag of the workflow's own job
    :param id: a ULID. A repeat with the same id and content stores what is missing
    :param deadline: aware. Steps that have not begun by then are cancelled, and so is the whole.
        Those that run go on
    :param queue: of the job that notices the end. The queue of the first step when left out
    :param tags: further tags of that job
    """

    def __init__(
        self,
        name: str,
        *,
        id: str | None = None,
        deadline: datetime | None = None,
        queue: str | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        self.name = check_name("workflow", name)
        self.id = id
        if deadline is not None and not _has_zone(deadline):
            fix = "give a datetime with a time zone"
            raise InvalidInput("deadline", "has no time zone", fix)
        self.deadline = deadline
        self.queue = queue
        self.tags = check_tags((name, *tags))
        self.requests: dict[str, EnqueueRequest[Any]] = {}
        self.after: dict[str, Mapping[str, OnFailure]] = {}

    def step(
        self,
        name: str,
        request: EnqueueRequest[Any],
        *,
        after: Sequence[str] | Mapping[str, OnFailure] = (),
    ) -> str:
        """Add a step, and return the name.

        :param name: of the step in this workflow, 1 to 200 characters
        :param request: a job without an id and without a unique key. A key of the handler does not
            count. Jobs that the request names in ``after`` are waited for too
        :param after: names of steps, also of steps that are added later. With the word for what
            follows when such a step ends without success: ``hold`` this step until the other is
            mended, as when only names are given, ``cancel`` this step, or ``continue``
        :raises InvalidInput: the name is taken, or a value is wrong
        """
        check_name("step", name)
        if name in self.requests:
            fix = "give each step a name of its own"
            raise InvalidInput("step", f"{name!r:.80} is there already", fix)
        check_request(request)
        if request.id is not None:
            raise _refused(name, "has an id", "give the workflow an id: those of the steps follow")
        if request.unique_key is not None or request.unique not in (UNSET, None):
            raise _refused(name, "has a unique key", "enqueue the job apart, and name it in after=")
        self.after[name] = _edges(name, after)
        self.requests[name] = request
        return name


class EnqueuedWorkflow(Struct, frozen=True, kw_only=True):
    """A workflow as stored.

    :param id: of the workflow, and of the job that ends when all steps are done
    :param steps: by name, each after the steps that it comes after
    """

    id: JobId
    steps: Mapping[str, EnqueueOutcome]


class StepState(Struct, frozen=True, kw_only=True):
    """A step of a workflow as stored.

    :param kind: "" when the job has been removed, as ``queue``
    :param status: None when the job has been removed
    :param after: the steps before this one, and what follows when they fail
    :param is_done: also of a job that was removed
    :param has_failed: ended without success, also of a job that was removed
    :param held_by: steps that ended without success and keep this one from running
    """

    name: str
    job_id: JobId
    queue: str
    kind: str
    status: JobStatus | None
    after: Mapping[str, str]
    is_done: bool
    has_failed: bool
    held_by: tuple[str, ...] = ()


class WorkflowState(Struct, frozen=True, kw_only=True):
    """How far a workflow has come.

    :param status: of the workflow's own job: ``blocked`` until the last step is done
    :param deadline: None without one
    :param steps: by name, each after the steps that it comes after
    """

    id: JobId
    name: str
    queue: str
    status: JobStatus
    enqueued_at: datetime
    deadline: datetime | None
    steps: Mapping[str, StepState]

    @property
    def total(self) -> int:
        """The number of steps."""
        return len(self.steps)

    @property
    def done(self) -> int:
        """Steps that ended with success."""
        return sum(each.is_done for each in self.steps.values())

    @property
    def failed(self) -> int:
        """Steps that ended without success."""
        return sum(each.has_failed for each in self.steps.values())

    @property
    def waiting(self) -> int:
        """Steps that have yet to end."""
        return self.total - self.done - self.failed

    @property
    def is_settled(self) -> bool:
        """True when the whole has ended: done, or cancelled."""
        return self.status in (*FAILED, JobStatus.DONE)

    @property
    def held_by(self) -> tuple[str, ...]:
        """The steps that ended without success, while the whole waits for them to be mended."""
        if self.status is not JobStatus.BLOCKED:
            return ()
        return tuple(name for name, each in self.steps.items() if each.has_failed)


class _Graph(Struct, frozen=True):
    """The payload of the workflow's own job: its record of the graph."""

    name: str
    steps: dict[str, dict[str, str]]


class WorkflowPlan:
    """The requests of a workflow, in the order in which they are stored."""

    def __init__(self, workflow: Workflow) -> None:
        if not isinstance(workflow, Workflow):
            fix = 'give Workflow("name") with steps'
            raise InvalidInput("workflow", f"is {a_type(workflow)}", fix)
        order = _order(workflow)
        self.id = new_job_id() if workflow.id is None else check_job_id(workflow.id)
        self._ids = {name: part_id(self.id, number) for number, name in enumerate(order)}
        self._steps = {name: self._step(workflow, name) for name in order}
        graph = {
            "name": workflow.name,
            "steps": {name: dict(workflow.after[name]) for name in order},
        }
        size = len(msgspec.json.encode(graph))
        if size > MAX_PAYLOAD_BYTES:
            fix = "give steps shorter names, or fewer edges"
            raise InvalidInput("workflow", f"has a graph of {size} bytes as JSON", fix)
        gate = gate_request(
            self.id,
            WORKFLOW_KIND,
            graph,
            [After(each, "hold") for each in self._ids.values()],
            first=self._steps[order[0]],
            queue=workflow.queue,
        )
        self._gate = gate.options(tags=workflow.tags, expires_at=workflow.deadline)

    def _step(self, workflow: Workflow, name: str) -> EnqueueRequest[Any]:
        request, deadline = workflow.requests[name], workflow.deadline
        edges = workflow.after[name].items()
        ours: dict[str, str] = {OurKey(STEP): name, OurKey(WORKFLOW): self.id}
        expires = request.expires_at
        # A time without a zone stays, to be refused by name.
        if deadline and (expires is None or (_has_zone(expires) and deadline < expires)):
            expires = deadline
        return request.options(
            id=self._ids[name],
            after=[*request.after, *(After(self._ids[each], policy) for each, policy in edges)],
            unique=None,
            metadata={**request.metadata, **ours},
            expires_at=expires,
        )

    def requests(self) -> list[EnqueueRequest[Any]]:
        """Steps first, because a job comes after jobs that are stored."""
        return [*self._steps.values(), self._gate]

    def stored(self, outcomes: Sequence[EnqueueOutcome]) -> EnqueuedWorkflow:
        """Return the workflow by the outcomes of the requests."""
        return EnqueuedWorkflow(id=self.id, steps=dict(zip(self._steps, outcomes, strict=False)))


def workflow_state(graph_text: str | None, gate: Job, parents: Sequence[Relative]) -> WorkflowState:
    """Return the state by the workflow's own job, and by what that job comes after.

    The ids of steps sort as the steps of the graph.

    :param graph_text: the payload of the job, decrypted. None: not known, ids stand for names
    """
    graph = _Graph("", {each.id: {} for each in parents})
    if graph_text is not None:
        graph = msgspec.json.decode(graph_text, type=_Graph)
    found = dict(zip(graph.steps, parents, strict=True))
    failed = {name for name, each in found.items() if has_failed(each)}
    return WorkflowState(
        id=gate.id,
        name=graph.name,
        queue=gate.queue,
        status=gate.status,
        enqueued_at=gate.enqueued_at,
        deadline=gate.expires_at,
        steps={
            name: StepState(
                name=name,
                job_id=each.id,
                queue=each.queue,
                kind=each.kind,
                status=each.status,
                after=graph.steps[name],
                is_done=_is_done(each),
                has_failed=name in failed,
                held_by=_holders(each, graph.steps[name], failed),
            )
            for name, each in found.items()
        },
    )


def to_resume(gate: Job, parents: Sequence[Relative]) -> list[JobId]:
    """Return the jobs that a resume requeues, parents before children, the whole last.

    :raises Conflict: the workflow has ended with success
    :raises NotFound: a step that failed has been removed
    """
    if gate.status is JobStatus.DONE:
        raise Conflict(f"workflow {gate.id} has ended with success: there is nothing to resume")
    failed = [each for each in parents if has_failed(each)]
    gone = [each.id for each in failed if each.status is None]
    if gone:
        raise NotFound(
            f"{len(gone)} steps of workflow {gate.id} that failed are gone, {gone[0]} among "
            "them; cancel the workflow and enqueue another, or end it without them by "
            "release_held"
        )
    whole = [gate.id] if gate.status in FAILED else []
    return [*(each.id for each in failed), *whole]


def has_failed(step: Relative) -> bool:
    """Return whether a step has ended without success."""
    return step.status in FAILED or (step.status is None and step.edge is EdgeState.HELD)


def _is_done(step: Relative) -> bool:
    settled = step.status is None and step.edge is EdgeState.SETTLED
    return settled or step.status is JobStatus.DONE


def _holders(step: Relative, after: Mapping[str, str], failed: set[str]) -> tuple[str, ...]:
    if step.status is not JobStatus.BLOCKED:
        return ()
    return tuple(name for name, word in after.items() if name in failed and word != "continue")


def _has_zone(time: datetime) -> bool:
    return time.utcoffset() is not None


def _order(workflow: Workflow) -> list[str]:
    """Return the names of the steps, each after those that it comes after."""
    names = workflow.requests
    if not 1 <= len(names) <= MAX_PARENTS:
        raise InvalidInput("workflow", f"has {len(names)} steps", f"give 1 to {MAX_PARENTS}")
    for name, after in workflow.after.items():
        if unknown := [each for each in after if each not in names]:
            fix = "add that step, or correct the name"
            raise _refused(name, f"comes after {unknown[0]!r:.80}, which is no step", fix)
    try:
        return list(TopologicalSorter(workflow.after).static_order())
    except CycleError as error:
        circle = [str(each) for each in reversed(error.args[1])]
        shown = " -> ".join(circle if len(circle) <= 8 else [*circle[:4], "...", *circle[-3:]])
        fix = "take one of these edges out"
        raise InvalidInput("workflow", f"has a circle: {shown}", fix) from None


def _edges(name: str, after: object) -> Mapping[str, OnFailure]:
    if isinstance(after, str) or not isinstance(after, Sequence | Mapping):
        fix = 'give names of steps in a list, or {"name": "continue"}'
        raise _refused(name, f"has after={after!r:.80}", fix)
    edges: dict[str, OnFailure] = (
        dict(after) if isinstance(after, Mapping) else dict.fromkeys(after, "hold")
    )
    for each, word in edges.items():
        if word not in get_args(OnFailure):
            fix = "give hold, cancel or continue"
            raise _refused(name, f"has the word {word!r:.80} for step {each!r:.80}", fix)
    return edges


def _refused(name: str, problem: str, fix: str) -> InvalidInput:
    return InvalidInput(f"step {name!r:.80}", problem, fix)
