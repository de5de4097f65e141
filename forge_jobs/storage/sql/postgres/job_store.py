"""The jobs of a Postgres store: the calls made for every job go the short way when they can."""

from collections.abc import Sequence

from forge_jobs.errors import StorageError
from forge_jobs.model.jobs import ClaimedJob, EnqueueOutcome, NewJob
from forge_jobs.model.processes import PodLease
from forge_jobs.model.transitions import Demand, Exchange, Finalization
from forge_jobs.storage.notices import QUEUE
from forge_jobs.storage.sql.job_store import SqlJobStore
from forge_jobs.storage.sql.postgres import enqueues, exchanges
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.successes import are_plain_successes


class PostgresJobStore(SqlJobStore):
    """:class:`~forge_jobs.storage.protocols.JobStore` on Postgres."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        known = self._postgres.knows({request.queue for request in requests})
        if requests and connection is None and known and enqueues.fits(requests):
            statement, values = enqueues.statement_for(requests), enqueues.values_of(requests)
            rows = await self._postgres.direct(statement, values, repeatable=True)
            if rows is not None:
                self._postgres.tell([QUEUE + queue for queue in rows[0]["due"]])
                return [EnqueueOutcome(request.id) for request in requests]
        return await super().enqueue(requests, connection=connection)

    async def exchange(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        if not are_plain_successes(finalizations):
            return await super().exchange(queue, finalizations, demand, lease)
        values = exchanges.values_of(queue, finalizations, demand, lease)
        rows = await self._postgres.direct(exchanges.EXCHANGE, values)
        if rows is None:
            return await super().exchange(queue, finalizations, demand, lease)
        answer = exchanges.answer(rows)
        rest = [one for one in finalizations if one.claim.job_id not in answer.ended]
        if not rest:
            claimed = await self._claimed(queue, demand, lease, answer)
            return Exchange((True,) * len(finalizations), tuple(claimed), answer.next_due_in)
        # Then it has claimed nothing.
        whole = await super().exchange(queue, rest, demand, lease)
        outcomes = iter(whole.settled)
        settled = (one.claim.job_id in answer.ended or next(outcomes) for one in finalizations)
        return Exchange(tuple(settled), whole.claimed, whole.next_due_in)

    async def _claimed(
        self, queue: str, demand: Demand, lease: PodLease, answer: exchanges.Answer
    ) -> list[ClaimedJob]:
        """The claims, and those behind jobs that could not be taken."""
        found = answer.claimed
        if answer.is_whole:
            return found
        try:
            return found + await self.claim(
                queue,
                demand.worker_ids[len(found) :],
                demand.limit - len(found),
                demand.kinds,
                lease,
            )
        except StorageError:
            # What has been claimed must reach its workers.
            return found
