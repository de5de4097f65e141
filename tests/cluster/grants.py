"""All written grants, recorded inside the store as they are committed."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from typing import Protocol

import anyio
import asyncpg

from tests.cluster.redis_grants import RedisGrantLog
from tests.support.ledger import Ledger, Run

_CLOCKS_APART_MS = 2.0
"""SQLite's clock shows milliseconds."""


class GrantLog(Protocol):
    """The grants since the recording began."""

    async def sums(self, queue: str = "work") -> list[int]:
        """The sum of all grants of the queue after each write, in the order of the commits."""
        ...

    async def grants_of(self, process_id: int, queue: str = "work") -> list[tuple[float, int]]:
        """Return each grant of a process's pod, with the milliseconds of the write, in order."""
        ...


async def exceeded(log: GrantLog, ran: Ledger, queue: str = "work") -> list[Run]:
    """Return runs that began although their pod had as many open as it was granted at that time.

    Runs without a noted end, of killed and frozen processes, are not counted.

    :param ran: the runs of this queue alone
    """
    ended = [run for run in ran.runs if run.ended_ns is not None]
    by_process = {pid: await log.grants_of(pid, queue) for pid in {run.process_id for run in ended}}
    return [
        run for run in ended if _open_beside(run, ended) > _granted(run, by_process[run.process_id])
    ]


def _granted(run: Run, grants: list[tuple[float, int]]) -> int:
    """Return the pod's grant when the run began, the larger one if it changed just then."""
    before = [granted for at, granted in grants if at < run.wall_ms - _CLOCKS_APART_MS][-1:]
    just = [granted for at, granted in grants if abs(at - run.wall_ms) <= _CLOCKS_APART_MS]
    return max([*before, *just], default=0)


def _open_beside(run: Run, runs: list[Run]) -> int:
    """Return how many runs of the process were open when the run began, including the run."""
    return sum(
        other.process_id == run.process_id
        and other.started_ns <= run.started_ns
        and (other.ended_ns or 0) > run.started_ns
        for other in runs
    )


_TABLES = (
    "CREATE TABLE grant_log"
    " ({serial}, at {real}, queue TEXT, host_id TEXT, granted INT, total INT)",
    "CREATE TABLE pod_log (host_id TEXT, process_id INT)",
)
_SUMS = "SELECT total FROM grant_log WHERE queue = {queue} ORDER BY number"
_GRANTS_OF = (
    "SELECT at, granted FROM grant_log WHERE queue = {queue} AND host_id IN"
    " (SELECT host_id FROM pod_log WHERE process_id = {process}) ORDER BY number"
)
_WRITES = (
    ("INSERT", "NEW", "NEW.granted"),
    ("UPDATE", "NEW", "NEW.granted"),
    ("DELETE", "OLD", "0"),
)


class _SqliteLog:
    _NOW_MS = "(julianday('now') - 2440587.5) * 86400000.0"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        for table in _TABLES:
            connection.execute(table.format(serial="number INTEGER PRIMARY KEY", real="REAL"))
        connection.execute(
            "CREATE TRIGGER pods_on_insert AFTER INSERT ON forge_pods BEGIN"
            " INSERT INTO pod_log VALUES (NEW.host_id, NEW.process_id); END"
        )
        for event, row, granted in _WRITES:
            connection.execute(
                f"CREATE TRIGGER grants_on_{event} AFTER {event} ON forge_slots BEGIN"
                f" INSERT INTO grant_log (at, queue, host_id, granted, total)"
                f" SELECT {self._NOW_MS}, {row}.queue, {row}.host_id, {granted},"
                f" coalesce(sum(granted), 0) FROM forge_slots WHERE queue = {row}.queue; END"
            )
        connection.commit()

    async def sums(self, queue: str = "work") -> list[int]:
        return [total for (total,) in self._connection.execute(_SUMS.format(queue="?"), (queue,))]

    async def grants_of(self, process_id: int, queue: str = "work") -> list[tuple[float, int]]:
        statement = _GRANTS_OF.format(queue="?", process="?")
        return list(self._connection.execute(statement, (queue, process_id)))


class _PostgresLog:
    # Triggers run as the transaction commits, and one at a time: each sees what the one before has
    # committed. So every sum is one that the queue really had.
    _RECORD = """
        CREATE FUNCTION record_grant() RETURNS trigger LANGUAGE plpgsql AS $$
        DECLARE
            host TEXT := coalesce(NEW.host_id, OLD.host_id);
        BEGIN
            PERFORM pg_advisory_xact_lock(1);
            INSERT INTO grant_log (at, queue, host_id, granted, total)
            SELECT extract(epoch FROM clock_timestamp()) * 1000,
                   coalesce(NEW.queue, OLD.queue), host, coalesce(NEW.granted, 0),
                   coalesce(sum(granted), 0)
            FROM forge_slots WHERE queue = coalesce(NEW.queue, OLD.queue);
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER grants_on_commit AFTER INSERT OR UPDATE OR DELETE ON forge_slots
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION record_grant();
        CREATE FUNCTION record_pod() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO pod_log VALUES (NEW.host_id, NEW.process_id);
            RETURN NULL;
        END $$;
        CREATE TRIGGER pods_on_insert AFTER INSERT ON forge_pods
            FOR EACH ROW EXECUTE FUNCTION record_pod();
    """

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def begin(self) -> None:
        for table in _TABLES:
            await self._connection.execute(
                table.format(serial="number BIGSERIAL", real="DOUBLE PRECISION")
            )
        await self._connection.execute(self._RECORD)

    async def sums(self, queue: str = "work") -> list[int]:
        rows = await self._connection.fetch(_SUMS.format(queue="$1"), queue)
        return [row["total"] for row in rows]

    async def grants_of(self, process_id: int, queue: str = "work") -> list[tuple[float, int]]:
        statement = _GRANTS_OF.format(queue="$1", process="$2")
        rows = await self._connection.fetch(statement, queue, process_id)
        return [(row["at"], row["granted"]) for row in rows]


@asynccontextmanager
async def grant_log(url: str) -> AsyncIterator[GrantLog]:
    """Record from now on."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///").partition("?")[0]
        with closing(sqlite3.connect(path, timeout=10)) as file:
            yield _SqliteLog(file)
        return
    if url.startswith("redis"):
        async with aclosing(RedisGrantLog(url)) as redis, anyio.create_task_group() as group:
            await group.start(redis.watch)
            yield redis
            group.cancel_scope.cancel()
        return
    connection = await asyncpg.connect(url)
    try:
        log = _PostgresLog(connection)
        await log.begin()
        yield log
    finally:
        await connection.close()
