"""Statements and commits of the calls made for every job, counted."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from operator import le
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from bench.tracing import BORDERS, SqliteStatements
from forge_jobs.model.filters import JobFilter
from forge_jobs.model.jobs import After, JobStatus
from forge_jobs.model.processes import PodLease
from forge_jobs.model.queues import QueueChange, RateLimit
from forge_jobs.model.transitions import Demand, Finalization, Transition
from forge_jobs.policy.dependencies import delivery
from forge_jobs.storage.protocols import Storage
from forge_jobs.storage.sql.postgres.driver import connections
from tests.support.backends import BACKENDS, forget
from tests.support.factories import KIND, QUEUE, dead, done, enqueue_one, new_job, register

pytestmark = pytest.mark.anyio

LONG = timedelta(hours=1)

# For 2,000 jobs enqueued, which SQLite takes in blocks, and else for 1,000 or one.
MOST = {
    "sqlite": {
        "enqueue one": (4, 2),
        "enqueue many": (90, 2),
        "claim": (7, 2),
        "end and claim": (8, 2),
        "end": (3, 2),
        "take tokens": (2, 2),
    },
    "postgres": {
        "enqueue one": (1, 0),
        "enqueue many": (1, 0),
        "claim": (1, 0),
        "end and claim": (1, 0),
        "end": (1, 2),
        "take tokens": (1, 0),
    },
}
"""Statements of a call, and the extra ones that begin and end a transaction."""

_BETWEEN = (*BORDERS, "SET LOCAL")
"""Beginnings of statements of PostgreSQL that are about the transaction."""

_OF_SESSION = ("SET ", "RESET ALL")
"""Beginnings of those that are about the session. Whether a call needs one depends on the session
that is free: on a slow machine a wake-up may still be on the one that was used before."""


class Asked:
    """The statements that the driver was given since the last read."""

    def __init__(self) -> None:
        self.statements = 0
        self.borders = 0
        self.notices = 0
        self.settings = 0
        self.texts: list[str] = []
        """All statements so far, for the message of a failure."""

    def read(self) -> tuple[int, int]:
        """Statements, and how many more began or ended a transaction."""
        told = self.statements, self.borders
        self.statements = self.borders = 0
        return told


class AskedOfPostgres(Asked):
    """Reported by every connection that the driver opens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        connect = asyncpg.connect

        async def connected(*arguments: Any, **options: Any) -> Any:
            connection = await connect(*arguments, **options)
            connection.add_query_logger(self._note)
            return connection

        monkeypatch.setattr(asyncpg, "connect", connected)

    def _note(self, record: Any) -> None:
        if record.query.startswith("BEGIN; EXECUTE "):
            # One message: a statement with its transaction, and the wake-up behind the commit.
            self.statements += 1
            self.notices += 1
            self.texts.append(record.query)
        elif record.query.lstrip().upper().startswith(_BETWEEN):
            self.borders += 1
        elif record.query.startswith(_OF_SESSION):
            self.settings += 1
        elif "pg_notify(" in record.query:
            self.notices += 1
        else:
            self.statements += 1
            self.texts.append(record.query)


class AskedOfSqlite(Asked):
    """Reported by the module that opens the file. A statement for many rows counts once a row."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        # Put back at the end.
        monkeypatch.setattr(sqlite3, "connect", sqlite3.connect)
        self._traced = SqliteStatements()

    def read(self) -> tuple[int, int]:
        told = self._traced.count, self._traced.borders
        self._traced.count = self._traced.borders = 0
        return told


ASKED = {"sqlite": AskedOfSqlite, "postgres": AskedOfPostgres}


@pytest.fixture(params=ASKED)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def asked(backend: str, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return ASKED[backend](monkeypatch)


@pytest.fixture
async def store(backend: str, asked: Asked, tmp_path: Path) -> AsyncIterator[Storage]:
    """A store on connections that are watched."""
    async with BACKENDS[backend](tmp_path, None) as opened:
        yield opened
    await forget(backend, tmp_path)


@pytest.fixture
async def lease(store: Storage) -> PodLease:
    """The lease of a pod that has made every call once: no connection does anything first."""
    lease = await register(store, lease_for=LONG)
    await enqueue_one(store)
    await store.jobs.enqueue([new_job() for _ in range(10)])
    first = await store.jobs.exchange(QUEUE, [], demand(11), lease)
    await store.jobs.exchange(QUEUE, ends(first.claimed), demand(10), lease)
    await store.config.ensure_rate_limit("gh", RateLimit(capacity=2, per=LONG))
    await store.config.take_tokens("gh", 1)
    return lease


def demand(limit: int) -> Demand:
    return Demand(worker_ids=("w",), limit=limit, kinds=frozenset({KIND}))


def ends(claimed: Sequence[Any]) -> list[Finalization]:
    return [Finalization(each.claim, done()) for each in claimed]


@pytest.mark.parametrize("limits", [{}, {"of other jobs": 1}])
async def test_statements_and_commits_do_not_grow_with_the_batch(
    store: Storage,
    lease: PodLease,
    asked: Asked,
    backend: str,
    limits: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await store.config.ensure_limits(QUEUE, limits)
    size = 1_000
    used: dict[str, tuple[int, int]] = {}

    # However slow the machine is, a call waits for the notice before opening a connection.
    monkeypatch.setattr(connections, "BRIEFLY_S", 60.0)
    asked.read()
    asked.notices = asked.settings = 0
    await enqueue_one(store)
    used["enqueue one"] = asked.read()
    await store.jobs.enqueue([new_job() for _ in range(2 * size)])
    used["enqueue many"] = asked.read()
    first = await store.jobs.exchange(QUEUE, [], demand(size), lease)
    used["claim"] = asked.read()
    second = await store.jobs.exchange(QUEUE, ends(first.claimed), demand(size), lease)
    used["end and claim"] = asked.read()
    settled = await store.jobs.finalize(ends(second.claimed))
    used["end"] = asked.read()
    grant = await store.config.take_tokens("gh", 1)
    used["take tokens"] = asked.read()
    await store.aclose()

    assert grant.granted
    assert len(first.claimed) == len(second.claimed) == len(settled) == size
    for name, counted in used.items():
        assert all(map(le, counted, MOST[backend][name])), f"{name}: {counted} of {asked.texts}"
    # Sent apart: of one enqueue, of the other, and what waited before.
    assert asked.notices <= 3
    # Of sessions that are new, or were used otherwise: not of each call.
    assert asked.settings <= 3


async def test_a_letter_costs_one_statement_a_batch_and_only_where_one_is_asked_for(
    store: Storage, lease: PodLease, asked: Asked
) -> None:
    used: list[int] = []
    for to in ("", "dead", ""):
        await store.config.set_queue(QUEUE, QueueChange(dead_letter=to))
        await store.jobs.enqueue([new_job() for _ in range(100)])
        claimed = (await store.jobs.exchange(QUEUE, [], demand(100), lease)).claimed
        asked.read()
        settled = await store.jobs.finalize([Finalization(each.claim, dead()) for each in claimed])
        used.append(asked.read()[0])
        assert len(settled) == 100
    without, with_letters, again = used
    # SQLite writes a number for the wake-up too. The logger of asyncpg shows no prepared statement.
    assert without == again
    assert with_letters <= without + 2, asked.texts


@pytest.mark.parametrize("end", [done, dead])
async def test_a_handover_of_a_hundred_children_takes_the_statements_of_one(
    store: Storage, lease: PodLease, asked: Asked, end: Callable[[], Transition]
) -> None:
    used: list[tuple[int, int]] = []
    # The first call of a connection does more, and a second connection may open in between.
    for children in (1, 1, 100, 1, 100):
        parent = await enqueue_one(store)
        await store.jobs.enqueue([new_job(after=(After(parent),)) for _ in range(children)])
        [claimed] = (await store.jobs.exchange(QUEUE, [], demand(1), lease)).claimed
        asked.read()
        assert await store.jobs.finalize([Finalization(claimed.claim, end())]) == [True]
        ended = asked.read()[0]
        deliveries = [delivery(each) for each in await store.jobs.handovers(500)]
        asked.read()
        assert await store.jobs.deliver(deliveries) == children
        used.append((ended, asked.read()[0]))
        await store.jobs.cancel(JobFilter(statuses=(JobStatus.PENDING,)), limit=500)
    assert min(used[2], used[4]) == min(used[1], used[3]), asked.texts
