"""The calls of a client that store and follow groups and chains."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from forge_jobs.clients.bulk import BulkTotals, in_batches
from forge_jobs.clients.flows.plans import (
    EnqueuedGroup,
    Group,
    GroupPlan,
    GroupState,
    chained,
    in_steps,
    state_of,
)
from forge_jobs.clients.lists import ListCalls
from forge_jobs.errors import NotFound
from forge_jobs.handlers.requests import EnqueueRequest
from forge_jobs.model.ids import JobId, check_job_id
from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.storage.protocols import Storage

R = TypeVar("R")


class FlowCalls(ListCalls):
    """A part of the methods of every client. See ``JobClient``."""

    storage: Storage

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
        """Return how far the group has come: one look at the store, however many members there are.

        :raises NotFound: there is no such group
        """
        wanted = check_job_id(group_id, "group_id")
        tally = (await self._jobs.tallies([wanted])).get(wanted)
        if tally is None:
            raise _no_group(wanted)
        return state_of(wanted, tally)

    async def cancel_group(self, group_id: str) -> BulkTotals:
        """Cancel all members that wait, and ask those that run to stop.

        The group settles when the last of them has stopped. Then ``on_settled`` and ``on_failure``
        run, by which the program hears of the end.

        :raises NotFound: there is no such group, or the group is not stored yet
        """
        members = await self._members_of(check_job_id(group_id, "group_id"))
        try:
            return await in_batches(self._jobs.cancel, members)
        finally:
            self.storage.jobs.announce_changes(None)

    async def _members_of(self, group: JobId) -> tuple[JobId, ...]:
        members = (await self._jobs.parents([group])).get(group)
        if not members:
            raise _no_group(group)
        return members

    async def _stored(
        self, requests: Sequence[EnqueueRequest[Any]], connection: object | None
    ) -> list[EnqueueOutcome]:
        # Every request is checked before anything is stored.
        await self.prepared(requests)
        steps = in_steps(requests)
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(await self.enqueue_many(wanted, connection=connection))
        except StopIteration as finished:
            outcomes: list[EnqueueOutcome] = finished.value
            return outcomes


def _no_group(group: JobId) -> NotFound:
    return NotFound(
        f"there is no group {group}; it is not stored yet, its retention is over, or the store "
        "is another"
    )
