"""The calls for groups, chains and workflows of the blocking client."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from forge_jobs.clients.bulk import BulkTotals
from forge_jobs.clients.flows.calls import FlowCalls
from forge_jobs.clients.flows.plans import EnqueuedGroup, Group, GroupState
from forge_jobs.clients.flows.steps import Steps
from forge_jobs.clients.flows.workflows import EnqueuedWorkflow, Workflow, WorkflowState
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.jobs import EnqueueOutcome

T = TypeVar("T")


class SyncFlowCalls(ABC):
    """A part of the methods of the blocking client. See ``SyncJobClient``."""

    @abstractmethod
    def _call(self, method: Callable[[FlowCalls], Coroutine[Any, Any, T]]) -> T: ...

    def enqueue_group(self, group: Group) -> EnqueuedGroup:
        """Store jobs that belong together. As ``JobClient.enqueue_group``."""
        return self._call(lambda client: client.enqueue_group(group))

    def enqueue_chain(
        self, requests: Iterable[EnqueueRequest[Any]], *, id: str | None = None
    ) -> list[EnqueueOutcome]:
        """Store jobs that run one after the other. As ``JobClient.enqueue_chain``."""
        return self._call(lambda client: client.enqueue_chain(requests, id=id))

    def group(self, group_id: str) -> GroupState:
        """Return how far a group has come. As ``JobClient.group``."""
        return self._call(lambda client: client.group(group_id))

    def cancel_group(self, group_id: str) -> BulkTotals:
        """Cancel the members of a group. As ``JobClient.cancel_group``."""
        return self._call(lambda client: client.cancel_group(group_id))

    def resume_group(self, group_id: str) -> BulkTotals:
        """Requeue the members that failed. As ``JobClient.resume_group``."""
        return self._call(lambda client: client.resume_group(group_id))

    def enqueue_workflow(self, workflow: Workflow) -> EnqueuedWorkflow:
        """Store named steps, checked first. As ``JobClient.enqueue_workflow``."""
        return self._call(lambda client: client.enqueue_workflow(workflow))

    def workflow(self, workflow_id: str) -> WorkflowState:
        """Return the graph and how far each step has come. As ``JobClient.workflow``."""
        return self._call(lambda client: client.workflow(workflow_id))

    def add_steps(self, workflow: str | JobContext, steps: Steps) -> dict[str, EnqueueOutcome[Any]]:
        """Add steps to a workflow that has not settled. As ``JobClient.add_steps``."""
        return self._call(lambda client: client.add_steps(workflow, steps))

    def cancel_workflow(self, workflow_id: str) -> BulkTotals:
        """Cancel all steps and the whole. As ``JobClient.cancel_workflow``."""
        return self._call(lambda client: client.cancel_workflow(workflow_id))

    def resume_workflow(self, workflow_id: str) -> BulkTotals:
        """Requeue the steps that failed. As ``JobClient.resume_workflow``."""
        return self._call(lambda client: client.resume_workflow(workflow_id))
