"""asyncpg and prepared statements."""

import asyncio
from collections.abc import Sequence
from typing import Self

import asyncpg

from bench.limits.bare import Bare

_TABLE = """
CREATE TABLE bare (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    status text NOT NULL DEFAULT 'waiting',
    token bigint NOT NULL DEFAULT 0,
    payload text NOT NULL,
    due_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz
);
CREATE INDEX bare_waiting ON bare (due_at, id) WHERE status = 'waiting';
"""
_FINISH = """
UPDATE bare SET status = 'done', finished_at = now()
FROM unnest($1::bigint[], $2::bigint[]) AS ended (id, token)
WHERE bare.id = ended.id AND bare.token = ended.token AND bare.status = 'running'
"""
# An array, so that no plan looks at the whole table.
_CLAIM = """
UPDATE bare SET status = 'running', token = bare.token + 1
WHERE bare.id = ANY(ARRAY(
    SELECT id FROM bare WHERE status = 'waiting' AND due_at <= now(){after}
    ORDER BY due_at, id LIMIT {limit} FOR UPDATE SKIP LOCKED
))
RETURNING bare.id, bare.token, bare.payload
"""


class BarePostgres(Bare):
    """A statement to claim, a statement to finish, each in a transaction."""

    async def __aenter__(self) -> Self:
        opened = (asyncpg.connect(self.url) for _ in range(self.connections))
        self._open = await asyncio.gather(*opened)
        await self._open[0].execute(_TABLE)
        self._claims = [
            await each.prepare(_CLAIM.format(limit="$1", after="")) for each in self._open
        ]
        self._finishes = [await each.prepare(_FINISH) for each in self._open]
        return self

    async def __aexit__(self, *error: object) -> None:
        for each in self._open:
            await each.close()

    async def fill(self, count: int) -> None:
        await self._open[0].execute(
            "INSERT INTO bare (payload) SELECT '{\"n\": ' || n || '}'"
            " FROM generate_series(1, $1::int) n",
            count,
        )
        await self._open[0].execute("VACUUM ANALYZE bare")
        await self._open[0].execute("CHECKPOINT")

    async def exchange(
        self, connection: int, ended: Sequence[tuple[int, int]], claim: int
    ) -> list[tuple[int, int]]:
        if ended:
            ids, tokens = zip(*ended, strict=True)
            await self._finishes[connection].fetch(ids, tokens)
        if not claim:
            return []
        rows = await self._claims[connection].fetch(claim)
        return [(row[0], row[1]) for row in rows]

    async def finished(self) -> int:
        count = "SELECT count(*) FROM bare WHERE status = 'done'"
        return int(await self._open[0].fetchval(count))


class FusedPostgres(BarePostgres):
    """A statement that finishes a batch and claims the next: half the commits.

    Finishing comes first. A claim keeps a lock on each job that another has claimed a moment
    before. Two callers that each held a lock and waited for the other's could wait for ever.
    """

    fused = True

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        claim = _CLAIM.format(limit="$3", after=" AND (SELECT count(*) FROM ended) >= 0")
        fused = f"WITH ended AS ({_FINISH} RETURNING 1) {claim}"
        self._fused = [await each.prepare(fused) for each in self._open]
        return self

    async def exchange(
        self, connection: int, ended: Sequence[tuple[int, int]], claim: int
    ) -> list[tuple[int, int]]:
        ids, tokens = [pair[0] for pair in ended], [pair[1] for pair in ended]
        rows = await self._fused[connection].fetch(ids, tokens, claim)
        return [(row[0], row[1]) for row in rows]
