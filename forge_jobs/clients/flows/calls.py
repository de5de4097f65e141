"""The calls of a client that store and follow groups, chains and workflows."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import anyio.lowlevel
import msgspec
from msgspec import structs

from forge_jobs.clients.bulk import BulkTotals, in_batches, sum_of
from forge_jobs.clients.flows.plans import (
    FAILED,
    EnqueuedGroup,
    Group,
    GroupPlan,
    GroupState,
    chained,
    group_to_resume,
    in_steps,
    state_of,
)
from forge_jobs.clients.flows.steps import Graph, Steps, workflow_of
from forge_jobs.clients.flows.wholes import no_workflow, to_cancel, to_resume
from forge_jobs.clients.flows.workflows import (
    Added,
    Addition,
    EnqueuedWorkflow,
    Workflow,
    WorkflowPlan,
    WorkflowState,
    is_repeat,
    read_graph,
    workflow_state,
)
from forge_jobs.clients.lists import ListCalls
from forge_jobs.clients.results import decrypted_job
from forge_jobs.errors import (
    Conflict,
    InvalidInput,
    Locked,
    NotFound,
    Unavailable,
)
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.preparing import MAX_PARENTS
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.edges import GROUP_KIND, STEP, WORKFLOW_KIND, Kin, Relative
from forge_jobs.model.edits import content_of
from forge_jobs.model.filters import BulkOutcome
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import EnqueueOutcome, Job, NewJob
from forge_jobs.outages import Pauses
from forge_jobs.privacy.encryption import Encryption, Part, is_encrypted
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.wakeups import until_set

R = TypeVar("R")

_CHECKED_AT_ONCE = 1_000
_READ_AT_ONCE = 50
"""Jobs that one call reads. Each may bring a result of a megabyte."""
_TRIES = 50
_PAUSES = Pauses(0.01, 0.5, jitter=1)


class FlowCalls(ListCalls):
    """A part of the methods of every client. See ``JobClient``."""

    storage: Storage
    _encryption: Encryption | None

    @abstractmethod
    async def prepared(self, requests: Iterable[EnqueueRequest]) -> tuple[NewJob, ...]: ...

    @abstractmethod
    async def enqueue_many(
        self,
        requests: Iterable[EnqueueRequest[R]],
        *,
        spread: timedelta | float | None = None,
        connection: object | None = None,
    ) -> list[EnqueueOutcome[R]]: ...

    async def enqueue_group(
        self, group: Group, *, connection: object | None = None
    ) -> EnqueuedGroup:
        """Store the members, the job that notices their end, and the callbacks.

        All or none up to 196 members, and in a transaction of the caller. Larger groups are stored
        in steps of 200, members first: a caller that dies in between leaves members without a
        group, which a repeat with the same ``Group.id`` completes.

        :raises Conflict: the id is stored with other content
        :raises InvalidInput: a request is wrong, or there are none or too many. Nothing is stored
        """
        plan = GroupPlan(group)
        return plan.stored(await self._stored(plan.requests(), connection))

    async def enqueue_chain(
        self,
        requests: Iterable[EnqueueRequest[Any]],
        *,
        id: str | None = None,
        connection: object | None = None,
    ) -> list[EnqueueOutcome]:
        """Store jobs that run one after the other, and return their outcomes in order.

        Each job reads the result of the one before by ``ctx.parents()``. When a job dies or is
        cancelled, those behind are cancelled. All or none up to 200 jobs, otherwise in steps.

        :param id: a ULID from which the ids of the jobs are derived. A repeat with the same id and
            content stores what is missing
        """
        return await self._stored(chained(requests, id), connection)

    async def group(self, group_id: str) -> GroupState:
        """Return how far the group has come: two small reads, however many members there are.

        :raises NotFound: there is no such group
        """
        gate = await self._group_gate(check_job_id(group_id, "group_id"))
        tally = (await self._jobs.tallies([gate.id])).get(gate.id)
        if tally is None:
            raise _no_group(gate.id)
        return state_of(gate.id, tally)

    async def cancel_group(self, group_id: str) -> BulkTotals:
        """Cancel all members that wait, and ask those that run to stop.

        The group settles when the last of them has stopped. Then ``on_settled`` and ``on_failure``
        run, by which the program hears of the end.

        :raises NotFound: there is no such group, or the group is not stored yet
        """
        gate = await self._group_gate(check_job_id(group_id, "group_id"))
        members = (await self._jobs.parents([gate.id])).get(gate.id, ())
        return await self._changed(self._jobs.cancel, members)

    async def resume_group(self, group_id: str) -> BulkTotals:
        """Requeue the members that ended without success, after what was wrong has been mended.

        A group that has failed waits for its members again, and so does ``on_success``. The other
        callbacks have run by then, and do not run again. When the last other member ends while
        the requeued ones run, the group fails: call again once they have ended. So may a caller
        that dies midway. The totals refuse an ``on_success`` that is not stored as not found: the
        job has been removed, or was dropped at the enqueue in favour of another job with its unique
        key.

        :raises NotFound: there is no such group, or a member that failed has been removed
        :raises Conflict: the group has ended with success
        :raises KeyMissing: the group is encrypted, and this client has no such key
        """
        wanted = check_job_id(group_id, "group_id")
        gate = await self._group_gate(wanted)
        payload = decrypted_job(gate, self._encryption).payload
        kin = (await self._jobs.kin([gate.id], limit=MAX_PARENTS)).get(gate.id, Kin())
        failed, whole = group_to_resume(gate, payload, kin.parents)
        totals = await self._changed(self._jobs.requeue, failed)
        gate = await self._group_gate(wanted)
        if gate.status not in FAILED:
            return totals
        # One after the other: the callback waits for the group, which waits by then.
        return sum_of(totals, await self._changed(self._jobs.requeue, whole))

    async def enqueue_workflow(
        self, workflow: Workflow, *, connection: object | None = None
    ) -> EnqueuedWorkflow:
        """Store the steps, each a job after those that it names, and the job that ends the whole.

        All or none up to 199 steps, and in a transaction of the caller. Larger workflows are stored
        in steps of 200: a caller that dies in between leaves jobs that run without a workflow,
        which a repeat with the same ``Workflow(id=)`` completes.

        :raises Conflict: the id is stored with other content
        :raises InvalidInput: a request is wrong, there are none or too many steps, a step comes
            after one that is not there, or they go in a circle. Nothing is stored
        """
        # Of many jobs that takes seconds, in which the event loop has to go on.
        plan = await asyncio.to_thread(WorkflowPlan, workflow)
        return plan.stored(await self._stored(plan.requests(), connection))

    async def workflow(self, workflow_id: str) -> WorkflowState:
        """Return the graph of the workflow, and how far each step has come.

        One look at the store, at the workflow's own job and what that job comes after, however many
        steps there are. Steps that were removed meanwhile are there without their status.

        :raises NotFound: there is no such workflow, or it is not stored yet
        :raises KeyMissing: the graph is encrypted, and this client has no such key
        """
        gate, steps = await self._with_steps(workflow_id)
        return workflow_state(decrypted_job(gate, self._encryption).payload, gate, steps)

    async def add_steps(
        self, workflow: str | JobContext, steps: Steps
    ) -> dict[str, EnqueueOutcome[Any]]:
        """Add steps to a workflow that has not settled, and return their outcomes by name.

        An added step may come after any step of the workflow, and none of the earlier steps comes
        after an added one. The whole waits for the added steps too, and they have its deadline. A
        repeat, as of a step that is tried again, adds nothing twice. A caller that dies midway may
        leave steps for which the whole does not wait, until a repeat.

        Nothing is stored of a call that is refused. Where another caller uses one of the names at
        the same moment, or the workflow settles, what this call has stored by then is cancelled.

        :param workflow: the id, or the context of a step that adds further ones
        :raises NotFound: there is no such workflow, or it is not stored yet
        :raises Conflict: the workflow has settled, by success or cancel. Or a step was added before
            with another kind or payload, the graph cannot be read, or the job of the context is no
            step
        :raises InvalidInput: a name is taken, a step comes after one that is not there, they go in
            a circle, or there would be more than 10,000
        :raises KeyMissing: the graph is encrypted, and this client has no such key
        """
        if isinstance(workflow, str) or not hasattr(workflow, "metadata"):
            workflow_id = cast(str, workflow)  # what is neither is refused as an id
        else:
            workflow_id = workflow_of(workflow.job_id, workflow.metadata)
        added = Added()
        try:
            for tried in range(_TRIES):
                if tried:
                    # Others add steps to the same workflow.
                    await until_set(asyncio.Event(), _PAUSES.after(tried))
                gate = await self._gate(workflow_id)
                addition = Addition(decrypted_job(gate, self._encryption), steps)
                if not tried:
                    await self._check_repeats(addition.repeats)
                outcomes = await self._stored(addition.requests, None, added.taken_by(addition))
                # Once the graph has the names, no other caller takes them.
                if addition.requests and not await self._noted(gate, addition.graph):
                    continue
                added.is_noted = added.is_noted or bool(addition.requests)
                if await self._joined(gate, addition):
                    return addition.stored(outcomes)
        except (Conflict, InvalidInput, NotFound) as error:
            await self._taken_back(workflow_id, added)
            if isinstance(error, Conflict):
                # The store names the job of a step that another caller added meanwhile.
                await self._check_repeats(added.requests)
            raise
        raise Unavailable("gave up: others kept adding steps to the same workflow; try again")

    async def _taken_back(self, workflow_id: str, added: Added) -> None:
        """Cancel what a call has stored that is refused, but for the steps that others added."""
        if not added.jobs:
            return
        gate = await self._whole(check_job_id(workflow_id), WORKFLOW_KIND)
        text = None if gate is None else decrypted_job(gate, self._encryption).payload
        await self._changed(self._jobs.cancel, added.of_none_else(read_graph(text), workflow_id))

    async def _check_repeats(self, requests: Sequence[EnqueueRequest[Any]]) -> None:
        """Check the kinds and payloads of steps that were added before, as far as still stored.

        :raises Conflict: a step of that name is another job
        """
        for start in range(0, len(requests), _READ_AT_ONCE):
            wanted = await self.prepared(requests[start : start + _READ_AT_ONCE])
            found = await self._jobs.get([each.id for each in wanted])
            for each in wanted:
                if (job := found.get(each.id)) and not is_repeat(each, job, self._encryption):
                    raise Conflict(
                        f"step {job.metadata.get(STEP, each.id)!r:.80} is in the workflow already, "
                        "with another kind or payload; give each step a name of its own"
                    )

    async def _joined(self, gate: Job, addition: Addition) -> bool:
        """Let the whole wait for the steps, also for those of a caller that died before this.

        :raises Conflict: the whole has settled without them
        """
        edges = addition.edges
        if addition.repeats:
            known = set((await self._jobs.parents([gate.id])).get(gate.id, ()))
            edges = [each for each in edges if each.job_id not in known]
        try:
            if edges:
                await self._jobs.await_also(gate.id, edges)
            return True
        except Locked:
            return False
        except Conflict as error:
            raise Conflict(
                f"workflow {gate.id} has settled without the steps: it takes no steps any more"
            ) from error

    async def _noted(self, gate: Job, graph: Graph) -> bool:
        """Write the graph into the workflow's own job. False: the job is another one by now, or
        another call holds the job.
        """
        text = msgspec.json.encode(graph).decode()
        if self._encryption is not None and is_encrypted(gate.payload):
            text = self._encryption.encrypt(text, job_id=gate.id, kind=gate.kind, part=Part.PAYLOAD)
        before = content_of(gate)
        after = structs.replace(before, payload=text)
        try:
            await self._jobs.edit(gate.id, token=gate.token, before=before, after=after)
        except (Conflict, Locked):
            return False
        self.storage.jobs.announce_changes([gate.queue])
        return True

    async def cancel_workflow(self, workflow_id: str) -> BulkTotals:
        """Cancel all steps that wait, ask those that run to stop, and cancel the whole.

        The last steps are cancelled first, so that none begins because another was cancelled.
        Members of groups are cancelled too.

        :raises NotFound: there is no such workflow, or it is not stored yet
        """
        gate, steps = await self._with_steps(workflow_id)
        jobs = await to_cancel(self._jobs, gate, steps)
        return await self._changed(self._jobs.cancel, jobs)

    async def resume_workflow(self, workflow_id: str) -> BulkTotals:
        """Requeue the steps that ended without success, after what was wrong has been mended.

        Dead and cancelled steps begin anew, those whose parents failed among them, and wait for
        their parents as before. Steps that they held go on behind them. A workflow that was
        cancelled waits for its steps again. A deadline that has passed no longer counts. A caller
        that dies midway may call again.

        Of a step that is a group the members that failed are requeued, and the group behind them.

        :raises NotFound: there is no such workflow, or a step or member that failed has been
            removed
        :raises Conflict: the workflow has ended with success
        """
        gate, steps = await self._with_steps(workflow_id)
        jobs = await to_resume(self._jobs, gate, steps)
        return await self._changed(self._jobs.requeue, jobs)

    async def _with_steps(self, workflow_id: str) -> tuple[Job, tuple[Relative, ...]]:
        wanted = check_job_id(workflow_id, "workflow_id")
        found = await self._jobs.with_parents(wanted)
        if found is None or found[0].kind != WORKFLOW_KIND:
            raise await no_workflow(self._jobs, wanted)
        return found

    async def _gate(self, workflow_id: str) -> Job:
        wanted = check_job_id(workflow_id, "workflow_id")
        gate = await self._whole(wanted, WORKFLOW_KIND)
        if gate is None:
            raise await no_workflow(self._jobs, wanted)
        return gate

    async def _group_gate(self, wanted: JobId) -> Job:
        gate = await self._whole(wanted, GROUP_KIND)
        if gate is None:
            raise _no_group(wanted)
        return gate

    async def _whole(self, wanted: JobId, kind: str) -> Job | None:
        gate = (await self._jobs.get([wanted])).get(wanted)
        return None if gate is None or gate.kind != kind else gate

    async def _changed(
        self, verb: Callable[..., Awaitable[BulkOutcome]], ids: Iterable[JobId]
    ) -> BulkTotals:
        try:
            return await in_batches(verb, ids)
        finally:
            # Also after an error: some batches may have been applied.
            self.storage.jobs.announce_changes(None)

    async def _stored(
        self,
        requests: Sequence[EnqueueRequest[Any]],
        connection: object | None,
        note: Callable[[Sequence[EnqueueOutcome]], None] = lambda outcomes: None,
    ) -> list[EnqueueOutcome]:
        # Every request is checked before anything is stored, and few are prepared at once.
        for start in range(0, len(requests), _CHECKED_AT_ONCE):
            await self.prepared(requests[start : start + _CHECKED_AT_ONCE])
            await anyio.lowlevel.checkpoint()
        steps = in_steps(requests)
        try:
            wanted = next(steps)
            while True:
                answer = await self.enqueue_many(wanted, connection=connection)
                note(answer)
                wanted = steps.send(answer)
        except StopIteration as finished:
            outcomes: list[EnqueueOutcome] = finished.value
            return outcomes


def _no_group(group: JobId) -> NotFound:
    return NotFound(
        f"there is no group {group}; it is not stored yet, its retention is over, or the store "
        "is another"
    )
