"""The pods of a Postgres store, where a caller's transaction may lock a job that is to be freed."""

from collections.abc import Sequence

from sqlalchemy import BigInteger, bindparam, text

from forge_jobs.storage.sql.base.tables import SET_ASIDE
from forge_jobs.storage.sql.base.transaction import Tx
from forge_jobs.storage.sql.fleet.pods import SqlProcStore, free_held_jobs
from forge_jobs.storage.sql.postgres.database import PostgresDatabase
from forge_jobs.storage.sql.postgres.direct import DirectScript

# The kinds of held jobs are found by seeking from one to the next, however many jobs are held.
_FREEABLE = text(
    f"""
    WITH RECURSIVE met AS (
        (
            SELECT queue, kind FROM forge_jobs
            WHERE {SET_ASIDE} ORDER BY queue, kind LIMIT 1
        )
        UNION ALL
        SELECT further.queue, further.kind FROM met CROSS JOIN LATERAL (
            SELECT queue, kind FROM forge_jobs
            WHERE {SET_ASIDE} AND (queue, kind) > (met.queue, met.kind)
            ORDER BY queue, kind LIMIT 1
        ) AS further
    )
    SELECT DISTINCT kind FROM met WHERE kind IN (
        SELECT json_array_elements_text(kinds::json) FROM forge_pods WHERE lease_until > :now
    )
    """
).bindparams(bindparam("now", type_=BigInteger))
_ASK_FREEABLE = DirectScript(_FREEABLE)


class PostgresProcStore(SqlProcStore):
    """:class:`~forge_jobs.storage.protocols.ProcStore` on Postgres."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database)
        self._postgres = database

    async def free_held_jobs(self, limit: int) -> int:
        asked = await self._postgres.ask(_ASK_FREEABLE, {})
        if asked is None:
            found = await self._postgres.read(_freeable)
        else:
            found = [row.kind for row in asked]
        if not found:
            return 0
        return await self._postgres.write(lambda tx: free_held_jobs(tx, sorted(found), limit))


def _freeable(tx: Tx) -> Sequence[str]:
    return tx.execute(_FREEABLE, {"now": tx.now}).scalars().all()
