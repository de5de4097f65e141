"""The jobs of a SQLite store: requests whose ids are fresh are stored without a look."""

import sqlite3
from collections.abc import Sequence

from forge_jobs.model.jobs import EnqueueOutcome, NewJob
from forge_jobs.storage.sql.enqueue import enqueue_new
from forge_jobs.storage.sql.job_store import SqlJobStore
from forge_jobs.storage.sql.transaction import Again, Tx


class SqliteJobStore(SqlJobStore):
    """:class:`~forge_jobs.storage.protocols.JobStore` on SQLite."""

    async def enqueue(
        self, requests: Sequence[NewJob], *, connection: object | None = None
    ) -> list[EnqueueOutcome]:
        if requests and connection is None and all(map(_is_plain, requests)):
            try:
                return await self._database.write(lambda tx: _store_new(tx, requests))
            except Again:
                pass  # nothing of it is stored; the long way tells a repeat from a conflict
        return await super().enqueue(requests, connection=connection)


def _is_plain(request: NewJob) -> bool:
    return request.unique is None and not request.after


def _store_new(tx: Tx, requests: Sequence[NewJob]) -> list[EnqueueOutcome]:
    try:
        return enqueue_new(tx, requests)
    except sqlite3.IntegrityError:
        raise Again from None
