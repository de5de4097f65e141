"""The jobs of a SQLite store.

Requests with fresh ids are stored without a lookup, and a beat is synced only when it records a
start.
"""

import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from forge_jobs.model.jobs import Claim, EnqueueOutcome, NewJob
from forge_jobs.model.processes import Beat, HeldClaim, PodLease
from forge_jobs.storage.batches import check_batch
from forge_jobs.storage.sql.base.database import Database
from forge_jobs.storage.sql.base.transaction import Overtaken, Tx
from forge_jobs.storage.sql.hot.behind import without_room
from forge_jobs.storage.sql.jobs import heartbeat
from forge_jobs.storage.sql.jobs.enqueue import ensure_queues, is_plain, new_rows, note_new
from forge_jobs.storage.sql.jobs.store import SqlJobStore
from forge_jobs.storage.sql.sqlite.flavor import INSERT_JOBS


class SqliteJobStore(SqlJobStore):
    """:class:`~forge_jobs.storage.protocols.JobStore` on SQLite."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._on_record: frozenset[Claim] = frozenset()
        """Claims whose starts the last beat through this bundle has recorded, or found recorded."""

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        check_batch(requests)
        if requests and connection is None and all(map(is_plain, requests)):
            try:
                return await self._database.write(partial(_store_new, requests=requests))
            except Overtaken:
                pass  # Nothing is stored. The full script tells a repeat from a conflict.
        return await super().enqueue(requests, connection=connection)

    async def heartbeat(
        self, lease: PodLease, claims: Sequence[HeldClaim], lease_for: timedelta
    ) -> Beat:
        running = frozenset(held.claim for held in claims if held.worker_id)
        beat = await self._database.write(
            lambda tx: heartbeat.heartbeat(tx, lease, claims, lease_for),
            # Only a job whose start is on record can be suspected of a loss of power.
            synced=not running <= self._on_record,
        )
        self._on_record = running
        return beat


def _store_new(tx: Tx, requests: Sequence[NewJob]) -> list[EnqueueOutcome]:
    """Store requests without a lookup.

    :raises Overtaken: one of the ids is stored already
    """
    missing = {request.queue for request in requests} - tx.known_queues
    if missing:
        ensure_queues(tx, missing)
    try:
        full = without_room(tx, requests) if any(one.limit_name for one in requests) else ()
        tx.put(INSERT_JOBS, new_rows(requests, tx.now, full=full))
    except sqlite3.IntegrityError:
        raise Overtaken from None
    note_new(tx, requests)
    return [EnqueueOutcome(request.id) for request in requests]
