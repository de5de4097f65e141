"""The jobs of a Postgres store: hot calls go the short way when they can."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec import structs

from forge_jobs.errors import StorageError
from forge_jobs.model.jobs import ClaimedJob, EnqueueOutcome, NewJob
from forge_jobs.model.payloads import MAX_PAYLOAD_BYTES
from forge_jobs.model.processes import Beat, HeldClaim, PodLease
from forge_jobs.model.transitions import Demand, Exchange, Finalization, StaleClaims
from forge_jobs.storage.batches import check_batch
from forge_jobs.storage.elsewhere import KnownElsewhere
from forge_jobs.storage.sql.base.job_rows import Picked, claimed_jobs
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.config.limits import lock_name
from forge_jobs.storage.sql.hot.claim import branches_for
from forge_jobs.storage.sql.jobs.endings import are_plain_successes
from forge_jobs.storage.sql.jobs.enqueue import enqueue
from forge_jobs.storage.sql.jobs.store import SqlJobStore
from forge_jobs.storage.sql.jobs.unknown_kinds import hold_unknown_kinds
from forge_jobs.storage.sql.postgres import idle, lent
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.postgres.short import bulk, claims, enqueues, exchanges
from forge_jobs.storage.sql.postgres.short.claim_cursors import ClaimCursors
from forge_jobs.storage.sql.postgres.short.exchanges import Answer
from forge_jobs.storage.wakeups import QUEUE


class PostgresJobStore(SqlJobStore):
    """:class:`~forge_jobs.storage.protocols.JobStore` on Postgres."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database
        self._cursors = ClaimCursors()
        self._elsewhere = KnownElsewhere()
        self._limited: set[str] = set()
        """Queues whose jobs, as of the last claim, have limits."""
        self._lent = lent.CallersConnections(database.flavor, database.options.schema)

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        check_batch(requests)
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
            rows = await self._postgres.direct(
                statement,
                values,
                repeatable=True,
                topics_of=_due,
                surely=enqueues.topic_of(requests),
            )
            if rows is not None:
                return outcomes
        return await super().enqueue(requests, connection=connection)

    async def _enqueue_lent(
        self, requests: Sequence[NewJob], connection: object
    ) -> list[EnqueueOutcome]:
        from forge_jobs.storage.sql.base.callers import run_in_callers_transaction

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
            return await self._by_script(queue, finalizations, demand, lease)
        if queue in self._limited and demand.limit > 0:
            return await self._within_limits(queue, finalizations, demand, lease)
        start = self._cursors.of(queue)
        values = exchanges.values_of(queue, finalizations, demand, lease, start)
        elsewhere = self._elsewhere.of(queue)
        branches = branches_for(demand.kinds) if elsewhere else 0
        rows = await self._postgres.direct(exchanges.exchange(branches), values)
        if rows is None:
            return await self._by_script(queue, finalizations, demand, lease)
        answer = exchanges.answer(rows, lease.host_id)
        rest = [one for one in finalizations if one.claim.job_id not in answer.ended]
        if answer.is_limited and demand.limit > 0:
            self._limited.add(queue)
            # In this case the statement has claimed nothing.
            whole = await self._within_limits(queue, rest, demand, lease)
            return _joined(finalizations, answer, whole)
        if not rest:
            claimed = answer.claimed
            saw_all = self._cursors.note(
                queue,
                start,
                answer.first,
                walked=answer.walked or 0,
                asked=demand.limit,
                got=len(claimed) + len(answer.unreadable),
            )
            if answer.unreadable:
                await self._set_aside(answer.unreadable)
                # Jobs behind the unreadable ones are due too.
                return Exchange((True,) * len(finalizations), tuple(claimed), timedelta(0))
            is_new = not answer.unknown.issubset(elsewhere)
            if not (answer.is_whole and saw_all) or is_new:
                more, is_cut = await self._further(queue, demand, lease, answer)
                claimed += more
                saw_all = saw_all and not is_cut
            next_due_in = answer.next_due_in if saw_all else timedelta(0)
            return Exchange((True,) * len(finalizations), tuple(claimed), next_due_in)
        # In this case the statement has claimed nothing.
        return _joined(finalizations, answer, await self._by_script(queue, rest, demand, lease))

    async def _by_script(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        whole = await super().exchange(queue, finalizations, demand, lease)
        if whole.claimed or whole.next_due_in != timedelta(0) or demand.limit < 1:
            return whole
        # A script claims nothing where limits have to be looked at: the lock of the queue would
        # last over ways to the server, and for as long as a process is frozen.
        try:
            claims = await self._within_limits(queue, (), demand, lease)
        except StorageError:
            if not finalizations:
                raise
            # The answers to the ends must arrive.
            return whole
        return structs.replace(claims, settled=whole.settled)

    async def _within_limits(
        self, queue: str, finalizations: Sequence[Finalization], demand: Demand, lease: PodLease
    ) -> Exchange:
        """End plain successes and claim jobs of limits and others, in one step of the server."""
        elsewhere = self._elsewhere.of(queue)
        start = self._cursors.of(queue)
        values = exchanges.values_within_limits(
            queue,
            finalizations,
            demand,
            lease,
            start,
            by_kind=bool(elsewhere),
            queue_lock=self._postgres.flavor.lock_key(lock_name(queue)),
        )

        def topics_of(rows: list[Any]) -> list[str]:
            return [QUEUE + queue] if any(row["wakes"] for row in rows) else []

        direct = self._postgres.direct
        rows = await direct(exchanges.WITHIN_LIMITS, values, topics_of=topics_of)
        if rows is None and finalizations:
            # Most often a job that ends is locked. A script does not wait for the job.
            return await self._by_script(queue, finalizations, demand, lease)
        if rows is None:
            rows = await direct(exchanges.PATIENTLY_WITHIN_LIMITS, values, topics_of=topics_of)
        if rows is None:
            # A pooler stands between.
            rows = await self._postgres.write(lambda tx: _in_script(tx, values, queue))
        answer = exchanges.answer_within_limits(rows, lease.host_id)
        if answer.is_limited:
            self._limited.add(queue)
        elif answer.claimed:
            self._limited.discard(queue)
        # A claim that decides about each job looks at everything, and so do those after that.
        self._cursors.note(
            queue,
            start,
            answer.first,
            walked=answer.walked or 0,
            asked=demand.limit,
            got=0 if answer.walked is None else len(answer.claimed) + len(answer.unreadable),
        )
        await self._set_aside(answer.unreadable)
        if not answer.unknown.issubset(elsewhere):
            with suppress(StorageError):
                kinds = await self._postgres.write(
                    lambda tx: hold_unknown_kinds(tx, queue, demand.kinds)
                )
                self._elsewhere.note(queue, kinds.elsewhere)
        rest = [one for one in finalizations if one.claim.job_id not in answer.ended]
        if rest:
            # In this case the statement has claimed nothing.
            return _joined(finalizations, answer, await self._by_script(queue, rest, demand, lease))
        settled = (True,) * len(finalizations)
        return Exchange(settled, tuple(answer.claimed), answer.next_due_in, answer.goes_on)

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        beat = None if claims else await idle.beat(self._postgres, lease, lease_for)
        return beat or await super().heartbeat(lease, claims, lease_for)

    async def stale_claims(self, stale_after: timedelta, limit: int) -> StaleClaims:
        found = await idle.stale_claims(self._postgres, stale_after, limit)
        return await super().stale_claims(stale_after, limit) if found is None else found

    async def _further(
        self, queue: str, demand: Demand, lease: PodLease, answer: Answer
    ) -> tuple[list[ClaimedJob], bool]:
        """Make further claims after an answer that skipped jobs.

        :return: the jobs, and whether others are due that were not looked at
        """
        got = answer.claimed
        rest = structs.replace(
            demand,
            worker_ids=demand.worker_ids[len(got) :],
            limit=0 if answer.is_cut else demand.limit - len(got),
            max_bytes=demand.max_bytes - sum(len(job.payload.encode()) for job in got),
        )

        def script(tx: Tx) -> Picked:
            by_kind, may_exceed = bool(answer.unknown), not got
            return claims.claim(tx, queue, rest, lease, by_kind=by_kind, may_exceed=may_exceed)

        try:
            picked = await self._database.write(script)
        except StorageError:
            # Claims that have been made must reach their workers. The jobs that were skipped wait.
            return [], rest.limit > 0
        self._elsewhere.note(queue, picked.elsewhere)
        claimed, unreadable = claimed_jobs(picked.rows, lease.host_id)
        await self._set_aside(unreadable)
        if picked.rows or not picked.is_cut or rest.limit < 1:
            return claimed, False
        # A script claims nothing where limits have to be looked at.
        self._limited.add(queue)
        if got and rest.max_bytes < MAX_PAYLOAD_BYTES:
            # The first job of a claim may be larger than the bound.
            return [], True
        try:
            within = await self._within_limits(queue, (), rest, lease)
        except StorageError:
            return [], True
        return list(within.claimed), within.next_due_in == timedelta(0)


def _joined(finalizations: Sequence[Finalization], answer: Answer, rest: Exchange) -> Exchange:
    """Return the exchange of ends of which a first step has ended some, and of its rest."""
    outcomes = iter(rest.settled)
    settled: Iterator[bool | None] = (
        one.claim.job_id in answer.ended or next(outcomes) for one in finalizations
    )
    return structs.replace(rest, settled=tuple(settled))


def _in_script(tx: Tx, values: Mapping[str, Any], queue: str) -> list[Any]:
    statement = exchanges.PATIENTLY_WITHIN_LIMITS
    given = statement.arguments({**values, "clock": tx.now, "part": tx.part})
    rows = list(tx.connection.exec_driver_sql(statement.text, tuple(given)))
    if any(row.wakes for row in rows):
        tx.wake_queue(queue)
    return rows


def _due(rows: Sequence[Any]) -> list[str]:
    return [QUEUE + queue for queue in rows[0]["due"]]
