"""The standard library's sqlite3, with a thread for each connection."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Self, TypeVar
from urllib.parse import urlsplit

from bench.limits.bare import Bare

T = TypeVar("T")

_TABLE = """
CREATE TABLE bare (
    id INTEGER PRIMARY KEY,
    status TEXT NOT NULL DEFAULT 'waiting',
    token INTEGER NOT NULL DEFAULT 0,
    payload TEXT NOT NULL,
    due_at INTEGER NOT NULL DEFAULT 0,
    finished_at INTEGER
);
CREATE INDEX bare_waiting ON bare (due_at, id) WHERE status = 'waiting';
"""
_FINISH = """
UPDATE bare SET status = 'done', finished_at = 1
WHERE id = ? AND token = ? AND status = 'running'
"""
_CLAIM = """
UPDATE bare SET status = 'running', token = token + 1
WHERE id IN (
    SELECT id FROM bare WHERE status = 'waiting' AND due_at <= 1 ORDER BY due_at, id LIMIT ?
)
RETURNING id, token, payload
"""


class BareSqlite(Bare):
    """WAL, every commit synced. Finishing a batch and claiming the next are one transaction."""

    fused = True
    synchronous: ClassVar[str] = "FULL"

    async def __aenter__(self) -> Self:
        self._threads = [ThreadPoolExecutor(1) for _ in range(self.connections)]
        self._open = [await self._on(n, self._connect) for n in range(self.connections)]
        await self._on(0, lambda: self._open[0].executescript(_TABLE))
        return self

    async def __aexit__(self, *error: object) -> None:
        for n, each in enumerate(self._open):
            await self._on(n, each.close)
            self._threads[n].shutdown()

    async def _on(self, connection: int, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads[connection], call)

    def _connect(self) -> sqlite3.Connection:
        path = urlsplit(self.url).path.removeprefix("/")
        connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        return connection

    async def fill(self, count: int) -> None:
        def insert() -> None:
            connection = self._open[0]
            connection.execute("BEGIN IMMEDIATE")
            rows = ((f'{{"n": {n}}}',) for n in range(count))
            connection.executemany("INSERT INTO bare (payload) VALUES (?)", rows)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        await self._on(0, insert)

    async def exchange(
        self, connection: int, ended: Sequence[tuple[int, int]], claim: int
    ) -> list[tuple[int, int]]:
        def step() -> list[tuple[int, int]]:
            own = self._open[connection]
            own.execute("BEGIN IMMEDIATE")
            own.executemany(_FINISH, ended)
            claimed = own.execute(_CLAIM, (claim,)).fetchall() if claim else []
            own.execute("COMMIT")
            return [(row[0], row[1]) for row in claimed]

        return await self._on(connection, step)

    async def finished(self) -> int:
        count = "SELECT count(*) FROM bare WHERE status = 'done'"
        return await self._on(0, lambda: int(self._open[0].execute(count).fetchone()[0]))


class NormalSqlite(BareSqlite):
    """A loss of power may undo the last commits: less than our default promises."""

    synchronous = "NORMAL"
