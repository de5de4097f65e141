"""Workflows: named steps as the jobs that are stored for them, and how far they have come."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from forge_jobs.clients.flows.plans import FAILED, gate_request, has_failed
from forge_jobs.clients.flows.steps import (
    Graph,
    StepRequests,
    Steps,
    has_zone,
    in_order,
    refused,
)
from forge_jobs.clients.results import decrypted_job
from forge_jobs.errors import Conflict, DecryptionFailed, InvalidInput, KeyMissing, a_type
from forge_jobs.handlers.option_checks import check_tags
from forge_jobs.handlers.preparing import MAX_PARENTS
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.edges import WORKFLOW_KIND, EdgeState, Relative
from forge_jobs.model.ids import JobId, check_job_id, new_job_id
from forge_jobs.model.jobs import After, EnqueueOutcome, Job, JobStatus, NewJob
from forge_jobs.model.names import check_name
from forge_jobs.privacy.encryption import Encryption, Part, decrypted
from forge_jobs.privacy.secrets import ORIGIN


class Workflow(Steps):
    """Named steps, each an ordinary job, or a ``Group``, that runs after the steps that it names::

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
        super().__init__()
        self.name = check_name("workflow", name)
        self.id = id
        if deadline is not None and not has_zone(deadline):
            problem = "has no time zone" if isinstance(deadline, datetime) else "is no datetime"
            fix = "give a datetime with a time zone, as datetime.now(UTC) + timedelta(hours=1)"
            raise InvalidInput("deadline", problem, fix)
        self.deadline = deadline
        self.queue = queue
        self.tags = check_tags((name, *tags))


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


class WorkflowPlan:
    """The requests of a workflow, in the order in which they are stored."""

    def __init__(self, workflow: Workflow) -> None:
        if not isinstance(workflow, Workflow):
            fix = 'give Workflow("name") with steps'
            raise InvalidInput("workflow", f"is {a_type(workflow)}", fix)
        order = in_order(workflow)
        if not order:
            raise InvalidInput("workflow", "has 0 steps", f"give 1 to {MAX_PARENTS}")
        self.id = new_job_id() if workflow.id is None else check_job_id(workflow.id)
        graph = Graph(workflow.name, {name: dict(workflow.after[name]) for name in order})
        ids = graph.checked().ids(self.id)
        self._steps = StepRequests(workflow, order, ids, self.id, workflow.deadline)
        gate = gate_request(
            self.id,
            WORKFLOW_KIND,
            msgspec.to_builtins(graph),
            [After(each, "hold") for each in ids.values()],
            first=next(iter(self._steps)),
            queue=workflow.queue,
        )
        self._gate = gate.options(tags=workflow.tags, expires_at=workflow.deadline)

    def requests(self) -> list[EnqueueRequest[Any]]:
        """Steps first, because a job comes after jobs that are stored."""
        return [*self._steps, self._gate]

    def stored(self, outcomes: Sequence[EnqueueOutcome]) -> EnqueuedWorkflow:
        """Return the workflow by the outcomes of the requests."""
        return EnqueuedWorkflow(id=self.id, steps=self._steps.stored(outcomes))


class Addition:
    """The requests of steps that are added to a stored workflow.

    :param gate: the workflow's own job, decrypted
    :ivar requests: of the steps that are new
    :ivar owners: the step that each request belongs to: a member of a group belongs to the group
    :ivar repeats: of the steps that were added before
    :raises InvalidInput: a name is taken, a step comes after one that is not there, they go in a
        circle, or there are too many
    :raises Conflict: there are new steps, and the workflow has settled. Or the graph cannot be read
    """

    def __init__(self, gate: Job, steps: Steps) -> None:
        if not isinstance(steps, Steps):
            fix = "give Steps() with steps"
            raise InvalidInput("steps", f"is {a_type(steps)}", fix)
        graph = read_graph(gate.payload)
        if graph is None:
            raise Conflict(
                f"the graph of workflow {gate.id} cannot be read; its payload was edited: put back "
                "the payload of before, or cancel the workflow and enqueue another"
            )
        every = graph.every
        order = in_order(steps, every)
        new = [name for name in order if not _is_there(graph, name, steps.after[name])]
        added = dict(graph.added)
        for name in new:
            added[name] = dict(steps.after[name])
        self.graph = Graph(graph.name, graph.steps, added).checked()
        if new and gate.status is not JobStatus.BLOCKED:
            raise Conflict(
                f"workflow {gate.id} has settled: it is {gate.status.value}, and takes no steps"
            )
        ids = self.graph.ids(gate.id)
        self._steps = StepRequests(steps, new, ids, gate.id, gate.expires_at)
        self.requests = list(self._steps)
        self.owners = self._steps.owners()
        old = [name for name in order if name not in set(new)]
        self.repeats = list(StepRequests(steps, old, ids, gate.id, gate.expires_at))
        self.edges = [After(ids[name], "hold") for name in order]
        self._outcomes = {name: EnqueueOutcome[Any](ids[name]) for name in order}

    def stored(self, outcomes: Sequence[EnqueueOutcome]) -> dict[str, EnqueueOutcome]:
        """Return the outcome of each step, by the outcomes of the requests."""
        return {**self._outcomes, **self._steps.stored(outcomes)}


class Added:
    """The jobs that a call has stored so far, to be taken back when the call is refused.

    :ivar jobs: job -> the step that the job belongs to
    :ivar requests: of the try that was made last
    :ivar is_noted: the graph has the steps of the call
    """

    def __init__(self) -> None:
        self.jobs: dict[JobId, JobId] = {}
        self.requests: Sequence[EnqueueRequest[Any]] = ()
        self.is_noted = False

    def taken_by(self, addition: Addition) -> Callable[[Sequence[EnqueueOutcome]], None]:
        """Return what notes the outcomes of the next requests of the addition."""
        owners = iter(addition.owners)
        self.requests = addition.requests
        return lambda answer: self.jobs.update((each.job_id, next(owners)) for each in answer)

    def of_none_else(self, graph: Graph | None, whole: str) -> list[JobId]:
        """Return the jobs, children before parents, without those of steps that are in the graph:
        another caller has added the same ones.
        """
        noted = graph is not None and not self.is_noted
        others = set(graph.ids(JobId(whole)).values()) if graph is not None and noted else set()
        return [job for job, step in reversed(self.jobs.items()) if step not in others]


def _is_there(graph: Graph, name: str, after: Mapping[str, str]) -> bool:
    """Return whether the step was added before, as by a step that is tried again."""
    if graph.added.get(name) == dict(after):
        return True
    if name in graph.every:
        fix = "give each step a name of its own"
        raise refused(name, "is there already", fix)
    return False


def is_repeat(wanted: NewJob, stored: Job, encryption: Encryption | None) -> bool:
    """Return whether a stored job has the kind and payload of a request, as far as can be read."""
    if wanted.kind != stored.kind:
        return False
    if not stored.payload:
        return True  # it was not kept
    given = msgspec.json.decode(wanted.metadata or "{}", type=dict[str, str])
    try:
        before = decrypted_job(stored, encryption).payload
        now = decrypted(
            encryption,
            wanted.payload,
            job_id=wanted.id,
            kind=wanted.kind,
            part=Part.PAYLOAD,
            origin=given.get(ORIGIN, ""),
        )
    except (KeyMissing, DecryptionFailed):
        return True
    return before == now or _decoded(before) == _decoded(now)


def _decoded(payload: str) -> Any:
    try:
        return msgspec.json.decode(payload)
    except msgspec.DecodeError:
        return payload


def workflow_state(graph_text: str | None, gate: Job, parents: Sequence[Relative]) -> WorkflowState:
    """Return the state by the workflow's own job, and by what that job comes after.

    The ids of steps sort as the steps of the graph.

    :param graph_text: the payload of the job, decrypted. None, or spoilt by an edit: not known, ids
        stand for names
    """
    graph = read_graph(graph_text) or Graph("", {})
    names = {job_id: name for name, job_id in graph.ids(gate.id).items()}
    # A step that is being added is not in the graph yet.
    found = {names.get(each.id, each.id): each for each in parents}
    every = graph.every
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
                after=every.get(name, {}),
                is_done=_is_done(each),
                has_failed=name in failed,
                held_by=_holders(each, every.get(name, {}), failed),
            )
            for name, each in found.items()
        },
    )


def read_graph(text: str | None) -> Graph | None:
    """Return the graph of the payload of a workflow's own job, None when it cannot be read."""
    try:
        return msgspec.json.decode(text or "", type=Graph)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def _is_done(step: Relative) -> bool:
    settled = step.status is None and step.edge is EdgeState.SETTLED
    return settled or step.status is JobStatus.DONE


def _holders(step: Relative, after: Mapping[str, str], failed: set[str]) -> tuple[str, ...]:
    if step.status is not JobStatus.BLOCKED:
        return ()
    return tuple(name for name, word in after.items() if name in failed and word != "continue")
