"""The jobs of a Postgres store: the calls made for every job go the short way when they can."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from forge_jobs.errors import StorageError
from forge_jobs.model.jobs import ClaimedJob, EnqueueOutcome, NewJob
from forge_jobs.model.processes import Beat, HeldClaim, PodLease
from forge_jobs.model.transitions import Demand, Exchange, Finalization, StaleClaims
from forge_jobs.storage.notices import QUEUE
from forge_jobs.storage.sql.enqueue import enqueue
from forge_jobs.storage.sql.job_store import SqlJobStore
from forge_jobs.storage.sql.postgres import bulk, enqueues, exchanges, idle, lent
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.postgres.fronts import Fronts
from forge_jobs.storage.sql.successes import are_plain_successes


class PostgresJobStore(SqlJobStore):
    """:class:`~forge_jobs.storage.protocols.JobStore` on Postgres."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database
        self._fronts = Fronts()
        self._lent = lent.Lent(database.flavor, database.options.schema)

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        if connection is not None and requests and lent.fits(requests):
            return await self._enqueue_lent(requests, connection)
        known = self._postgres.knows({request.queue for request in requests})
        if not requests or connection is not None or not known or not enqueues.fits(requests):
            return await super().enqueue(requests, connection=connection)
        outcomes = [EnqueueOutcome(request.id) for request in requests]
        if len(requests) > bulk.FEW:
            with suppress(bulk.NotCopied):
                await self._write(lambda tx: bulk.copy_in(tx, requests), None, patient=False)
                return outcomes
        else:
            statement, values = enqueues.statement_for(requests), enqueues.values_of(requests)
            rows = await self._postgres.direct(statement, values, repeatable=True, news=_due)
            if rows is not None:
                return outcomes
        return await super().enqueue(requests, connection=connection)

    async def _enqueue_lent(
        self, requests: Sequence[NewJob], connection: object
    ) -> list[EnqueueOutcome]:
        from forge_jobs.storage.sql.callers import run_in_callers_transaction

        return await run_in_callers_transaction(
            connection,
            lambda tx: enqueue(tx, requests),
            self._postgres.flavor,
            self.store_id,
            lambda plain: self._lent.enqueue(plain, requests, self.store_id),
        )

    async def exchange(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        if not are_plain_successes(finalizations):
            return await super().exchange(queue, finalizations, demand, lease)
        start = self._fronts.of(queue)
        values = exchanges.values_of(queue, finalizations, demand, lease, start)
        rows = await self._postgres.direct(exchanges.EXCHANGE, values)
        if rows is None:
            return await super().exchange(queue, finalizations, demand, lease)
        answer = exchanges.answer(rows, lease.host_id)
        rest = [one for one in finalizations if one.claim.job_id not in answer.ended]
        if not rest:
            claimed = answer.claimed
            await self._set_aside(answer.unreadable)
            saw_all = self._fronts.note(
                queue,
                start,
                answer.first,
                walked=answer.walked,
                asked=demand.limit,
                got=len(claimed) + len(answer.unreadable),
            )
            if answer.unreadable:
                # What stands behind them is due too.
                return Exchange((True,) * len(finalizations), tuple(claimed), timedelta(0))
            if not (answer.is_whole and saw_all):
                claimed += await self._further(queue, demand, lease, len(claimed))
            next_due_in = answer.next_due_in if saw_all else timedelta(0)
            return Exchange((True,) * len(finalizations), tuple(claimed), next_due_in)
        # Then it has claimed nothing.
        whole = await super().exchange(queue, rest, demand, lease)
        outcomes = iter(whole.settled)
        settled: Iterator[bool | None] = (
            one.claim.job_id in answer.ended or next(outcomes) for one in finalizations
        )
        return Exchange(tuple(settled), whole.claimed, whole.next_due_in)

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        beat = None if claims else await idle.beat(self._postgres, lease, lease_for)
        return beat or await super().heartbeat(lease, claims, lease_for)

    async def stale_claims(self, stale_after: timedelta, limit: int) -> StaleClaims:
        found = await idle.stale_claims(self._postgres, stale_after, limit)
        return await super().stale_claims(stale_after, limit) if found is None else found

    async def _further(
        self, queue: str, demand: Demand, lease: PodLease, got: int
    ) -> list[ClaimedJob]:
        """Claims beyond the first ``got``, which the statement passed over."""
        workers, limit = demand.worker_ids[got:], demand.limit - got
        try:
            return await self.claim(queue, workers, limit, demand.kinds, lease)
        except StorageError:
            # What has been claimed must reach its workers.
            return []


def _due(rows: Sequence[Any]) -> list[str]:
    return [QUEUE + queue for queue in rows[0]["due"]]
