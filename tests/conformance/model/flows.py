"""Groups of a real store: what a program asks of a client, and the handler that ends a group."""

from types import SimpleNamespace
from typing import Any, cast

from forge_jobs.clients.client import JobClient
from forge_jobs.clients.flows.plans import EnqueuedGroup, Group, GroupState
from forge_jobs.clients.grouping import settle_group
from forge_jobs.handlers.context import JobContext
from forge_jobs.handlers.outcomes import Dead
from forge_jobs.model.ids import JobId
from forge_jobs.storage.protocols import Storage


class Flows:
    """A fresh client for each call: nothing of the call before is known."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def enqueue_group(self, group: Group) -> EnqueuedGroup:
        async with JobClient(self._storage) as client:
            return await client.enqueue_group(group)

    async def group(self, group_id: JobId) -> GroupState:
        async with JobClient(self._storage) as client:
            return await client.group(group_id)

    async def cancel_group(self, group_id: JobId) -> Any:
        async with JobClient(self._storage) as client:
            return await client.cancel_group(group_id)

    async def resume_group(self, group_id: JobId) -> Any:
        async with JobClient(self._storage) as client:
            return await client.resume_group(group_id)

    async def settle(
        self, group_id: JobId, on_success: JobId | None, on_failure: JobId | None
    ) -> dict[str, int] | None:
        """Run the handler of the group's own job. None: the job is dead by that."""
        context = cast(JobContext, SimpleNamespace(job_id=group_id))
        async with JobClient(self._storage) as client:
            try:
                return await settle_group(context, client, on_success, on_failure)
            except Dead:
                return None
